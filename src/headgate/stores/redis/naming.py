"""Names of counters in Redis; docs/redis-layout.md describes them for people.

    <prefix>:<key>            on a single server
    {<tag>}<prefix>:<key>     in a cluster

The prefix names the group of counters and contains no colon, so the first colon always ends it and
the key follows as it is. A group is one of

    namespace            the first limit of a limiter ("headgate" is left out)
    namespace#n          its n-th limit, counted from 0
    namespace=name       a counter with a name
    namespace/limit      a counter of `hit_all` without one
    @group               any other group that a store was given

and marks may follow: `!` the key is long and its digest takes its place, `+` the list of a
sliding window log, `~` slots and `~|` their partitions, `^` the lease ledger, `<` usage merged from
other regions, `,` published values. In namespaces, names and limits every character that could be
mistaken for one of these is percent-encoded.

In a cluster only keys of one slot can be used in one request. The tag is one of a fixed number that
are spread evenly over the slots, chosen by the key alone: all limits of one caller share a slot,
and so do many callers, so that their checks can be batched.
"""

from __future__ import annotations

import re
from binascii import crc32, crc_hqx
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from headgate.stores.base import group_name

if TYPE_CHECKING:
    from collections.abc import Callable


LAYOUT: Final = 2
"""The version of names and values, as in docs/redis-layout.md."""
CLUSTER_SLOTS: Final = 16_384
TAGS: Final = 16
"""The number of tags in a cluster."""
LOG: Final = "+"
SLOTS: Final = "~"
PARTITIONS: Final = "~|"
LEASES: Final = "^"
USAGE: Final = "<"
VALUES: Final = ","
"""The marks of keys beside a counter."""
LONGEST_KEY: Final = 200
"""Bytes of a key above which its digest takes its place."""
DEFAULT_NAMESPACE: Final = "headgate"

_GROUP: Final = re.compile(r"(\d+)([:=/])(.*)", re.DOTALL)
_NAME: Final = re.compile(rb"(\{[^{}:]*\})?([^:{}]*?)(!?)([+~]?):(.+)", re.DOTALL)
_PREFIX: Final = re.compile(
    r"@(?P<other>.+)"
    r"|(?P<namespace>[^@#=/]*)(?:#(?P<place>[0-9]{1,9})|=(?P<name>.+)|/(?P<limit>.+))?",
    re.DOTALL,
)
_DIGEST: Final = re.compile("[0-9a-f]{32}")
_PLAIN: Final = " .-_"


class Names:
    """The names of counters on one kind of server."""

    def __init__(self, *, has_tags: bool) -> None:
        self.has_tags = has_tags
        self._tags = tags() if has_tags else ()

    def tag(self, name: bytes) -> bytes:
        """Return the part of *name* that names of one request have in common."""
        return name.partition(b"}")[0] if self.has_tags else b""

    def of_group(self, group: str, mark: str = "") -> Callable[[str], bytes]:
        """Return a quick function from a key to the name of its counter in *group*."""
        start, counter = prefix(group, mark), self.counter
        if self.has_tags:
            return lambda key: counter(group, key, mark)

        def name(key: str) -> bytes:
            try:
                raw = key.encode()
            except UnicodeEncodeError:
                return counter(group, key, mark)
            return start + raw if len(raw) <= LONGEST_KEY else counter(group, key, mark)

        return name

    def counter(self, group: str, key: str, mark: str = "") -> bytes:
        """Return the name of the counter of *key* in *group*, or of the key *mark* beside it."""
        raw = key.encode("utf-8", "surrogatepass")
        tag = self._tags[crc32(raw) % TAGS] if self._tags else b""
        if len(raw) > LONGEST_KEY:
            mark = f"!{mark}"
            raw = blake2b(raw, digest_size=16).hexdigest().encode()
        return tag + prefix(group, mark) + raw


def slot_of(name: bytes) -> int:
    """Return the slot of *name*: of the text between its first { and the next }, if any."""
    start = name.find(b"{")
    if start >= 0:
        end = name.find(b"}", start + 1)
        if end > start + 1:
            name = name[start + 1 : end]
    return crc_hqx(name, 0) % CLUSTER_SLOTS


@lru_cache(maxsize=4096)
def prefix(group: str, mark: str = "") -> bytes:
    """Return the beginning of the names of the counters of *group*, the colon included."""
    return f"{_group(group)}{mark}:".encode()


def _group(group: str) -> str:
    found = _GROUP.fullmatch(group)
    if found:
        length, kind, rest = int(found[1]), found[2], found[3]
        namespace, what = rest[:length], rest[length + 1 :]
        if rest[length : length + 1] == kind and what:
            shown = "" if namespace == DEFAULT_NAMESPACE else _quoted(namespace)
            if kind != ":":
                return f"{shown}{kind}{_quoted(what)}"
            if what.isascii() and what.isdecimal():
                return shown if what == "0" else f"{shown}#{what}"
    return f"@{_quoted(group)}"


def _quoted(text: str) -> str:
    """Percent-encode the characters of a prefix's syntax; an empty text becomes a lone `%`."""
    return quote(text, safe=_PLAIN, errors="surrogatepass").replace("~", "%7E") or "%"


@cache
def tags() -> tuple[bytes, ...]:
    """Return the tags, one in each of as many equal parts of all slots."""
    return tuple(_tag(part) for part in range(TAGS))


def _tag(part: int) -> bytes:
    number = 0
    while True:
        tag = f"{part}.{number}".encode()
        if crc_hqx(tag, 0) % CLUSTER_SLOTS * TAGS // CLUSTER_SLOTS == part:
            return b"{%b}" % tag
        number += 1


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The parts of the name of a counter.

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
    """True if `key` is the digest of a long key."""
    beside: str
    """"+" for the list of a log, "~" for slots, "" for a counter itself."""
    key: str

    @property
    def group(self) -> str:
        """The group, as stores know it."""
        if self.namespace is None:
            return self.other or ""
        if self.limit is not None:
            return f"{len(self.namespace)}/{self.namespace}/{self.limit}"
        return group_name(self.namespace, self.name or self.place or 0)

    @property
    def counter(self) -> str:
        """The counter among those of its key, for people."""
        if self.place is not None:
            return f"limits[{self.place}]"
        if self.name is not None:
            return f"name={self.name}"
        return f"limit={self.limit}" if self.limit is not None else f"group={self.other}"


def parse_name(name: bytes) -> ParsedName | None:
    """Parse *name*; None if it is not a name of Headgate's."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    tag, text, hashed, beside, raw = found.groups(b"")
    try:
        group = _PREFIX.fullmatch(text.decode("ascii"))
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
    """Undo `_quoted`; an empty text is the default namespace."""
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
    """Return True if *raw* is short enough for a key, and *tag* is the tag that it gets."""
    if is_hashed:
        return _DIGEST.fullmatch(key) is not None and (not tag or tag in tags())
    return len(raw) <= LONGEST_KEY and (not tag or tag == tags()[crc32(raw) % TAGS])
