"""Finding counters for a person to look at. It reads, and never writes.

Names are found with SCAN, a step at a time, on every primary: KEYS would hold everybody up. A name
that Headgate could not have written, or a value, is somebody else's and left out; and so is a
counter that is gone by the time it is read. The figures are as of the server's own clock.
"""

from __future__ import annotations

import re
from binascii import crc32
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from headgate.stores.port import group_name
from headgate.stores.redis.counters.naming import (
    DEFAULT_NAMESPACE,
    LONGEST_KEY,
    TAGS,
    Names,
    prefix,
    tags,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.stores.redis.inspection.reading import State

_NAME: Final = re.compile(rb"(\{[^{}:]*\})?([^:{}]*?)(!?)([+~]?):(.+)", re.DOTALL)
_GROUP: Final = re.compile(
    r"@(?P<other>.+)"
    r"|(?P<namespace>[^@#=/]*)(?:#(?P<place>[0-9]{1,9})|=(?P<name>.+)|/(?P<limit>.+))?",
    re.DOTALL,
)
_DIGEST: Final = re.compile("[0-9a-f]{32}")
_WILD: Final = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")
_SPECIAL: Final = re.compile(rb"([*?\[\]\\^-])")


@dataclass(frozen=True, slots=True)
class ParsedName:
    """What the name of a counter says.

    The counter is one of a limiter's stack (`place`, from 0), one of `hit_all` with a `name` or
    with a `limit` in place of one, or one of any `other` group; the rest are None.
    """

    tag: bytes
    namespace: str | None
    place: int | None
    name: str | None
    limit: str | None
    other: str | None
    is_hashed: bool
    """Whether `key` is the digest of a long key."""
    beside: str
    """"+" for the list of a log, "~" for slots, "" for a counter itself."""
    key: str

    @property
    def group(self) -> str:
        """The group as a store is given it."""
        if self.namespace is None:
            return self.other or ""
        if self.limit is not None:
            return f"{len(self.namespace)}/{self.namespace}/{self.limit}"
        return group_name(self.namespace, self.name or self.place or 0)

    @property
    def counter(self) -> str:
        """Which counter of its key it is, for people."""
        if self.place is not None:
            return f"limits[{self.place}]"
        if self.name is not None:
            return f"name={self.name}"
        return f"limit={self.limit}" if self.limit is not None else f"group={self.other}"


def parse_name(name: bytes) -> ParsedName | None:
    """What *name* says; None if it is none that Headgate gives."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    tag, text, hashed, beside, raw = found.groups(b"")
    try:
        group = _GROUP.fullmatch(text.decode("ascii"))
        key = raw.decode("utf-8", "surrogatepass")
        words = {word: _plain(text) for word, text in group.groupdict().items()} if group else {}
    except UnicodeDecodeError:
        return None
    if not words or not _is_own_key(tag, raw, key, is_hashed=bool(hashed)):
        return None
    marks = (hashed + beside).decode()
    parsed = _parsed(tag, words, marks, key)
    return parsed if prefix(parsed.group, marks) == b"%b%b%b:" % (text, hashed, beside) else None


def _plain(text: str | None) -> str | None:
    """What was encoded as *text* (see `naming.prefix`)."""
    if not text:
        return DEFAULT_NAMESPACE if text == "" else None
    return "" if text == "%" else unquote(text, errors="surrogatepass")


def _parsed(tag: bytes, words: dict[str, str | None], marks: str, key: str) -> ParsedName:
    other, name, limit = words["other"], words["name"], words["limit"]
    namespace = None if other is not None else words["namespace"]
    in_stack = other is None and name is None and limit is None
    place = int(words["place"] or 0) if in_stack else None
    hashed, beside = "!" in marks, marks.lstrip("!")
    return ParsedName(tag, namespace, place, name, limit, other, hashed, beside, key)


def _is_own_key(tag: bytes, raw: bytes, key: str, *, is_hashed: bool) -> bool:
    """Whether *raw* is as long as a key can be, and the tag the one that it gets."""
    if is_hashed:
        return _DIGEST.fullmatch(key) is not None and (not tag or tag in tags())
    return len(raw) <= LONGEST_KEY and (not tag or tag == tags()[crc32(raw) % TAGS])


@dataclass(frozen=True, slots=True)
class Search:
    """Which counters are looked for: those of *key*, or of keys like *pattern*, or all.

    *pattern* is a glob as in a shell: `*`, `?`, `[abc]`, `[!abc]`. A key that is too long to be
    stored is found by *key* alone, in full or by its digest.
    """

    namespace: str | None = None
    pattern: str | None = None
    key: str | None = None

    def match(self, *, has_tags: bool) -> bytes:
        """A pattern for SCAN that finds all these names, and perhaps others."""
        start = b"{*}" if has_tags else b""
        if self.namespace is not None:
            start += escaped(prefix(group_name(self.namespace, 0)).rstrip(b":"))
        if self.key is not None:
            return b"%b*:%b" % (start, escaped(self._raw_key))
        return b"%b*:%b" % (start, _loosened(self.pattern or "*"))

    def accepts(self, found: ParsedName) -> bool:
        """Whether it is one of those looked for. The list beside a log is none."""
        if found.beside == "+" or self.namespace not in (None, found.namespace):
            return False
        if self.key is not None:
            return found.key.encode("utf-8", "surrogatepass") == self._raw_key
        return self.pattern is None or fnmatchcase(found.key, self.pattern)

    @property
    def _raw_key(self) -> bytes:
        """The key as it stands in names: itself or its digest."""
        name = Names(has_tags=False).counter(group_name(DEFAULT_NAMESPACE, 0), self.key or "")
        return name.partition(b":")[2]


def escaped(literal: bytes) -> bytes:
    """A pattern for SCAN that matches *literal* and nothing else."""
    return _SPECIAL.sub(rb"\\\1", literal)


def _loosened(pattern: str) -> bytes:
    """The shell's *pattern* for SCAN, every wildcard a star: to Redis a character is a byte."""
    literals = (escaped(text.encode("utf-8", "surrogatepass")) for text in _WILD.split(pattern))
    return b"*".join(literals)


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter that was found: its name in Redis, what that says, its state, its time to live."""

    redis_name: bytes
    name: ParsedName
    state: State
    ttl_ns: int


class Primary(Protocol):
    """A server that counters can be read from."""

    has_tags: bool

    def scan(self, match: bytes) -> Iterator[Sequence[bytes]]:
        """The names like *match*, a step at a time; a name may come twice."""

    def read(self, names: Sequence[bytes]) -> Iterable[tuple[bytes, State, int]]:
        """Those of *names* that are counters: the name, the state, nanoseconds to live."""


def find_counters(primaries: Iterable[Primary], search: Search) -> Iterator[Counter]:
    """The counters that *search* is for, each once, in no order. Looks as they are asked for."""
    seen: set[bytes] = set()
    for primary in primaries:
        for step in primary.scan(search.match(has_tags=primary.has_tags)):
            parsed = {name: parse_name(name) for name in step if name not in seen}
            wanted = {
                name: one
                for name, one in parsed.items()
                if one and bool(one.tag) == primary.has_tags and search.accepts(one)
            }
            seen.update(wanted)
            for name, state, ttl_ns in primary.read(list(wanted)):
                yield Counter(name, wanted[name], state, ttl_ns)
