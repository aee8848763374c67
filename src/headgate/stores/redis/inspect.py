"""Finding counters for a person to look at. It reads, and never writes.

Names are found with SCAN, a step at a time, on every primary: KEYS would hold everybody up. A name
that Headgate could not have written, or a value, is somebody else's and left out; and so is a
counter that is gone by the time it is read. The figures are as of the server's own clock.
"""

from __future__ import annotations

import re
from binascii import crc32
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from headgate.algorithms import LeakyQueueAlgorithm, algorithm_for
from headgate.algorithms.leaky_queue import Line, Vacancy
from headgate.algorithms.sliding_log import Log
from headgate.errors import LimitError
from headgate.limits import FixedWindow, LeakyQueue, SlidingWindowCounter, SlidingWindowLog
from headgate.stores.base import group_name
from headgate.stores.redis.codec import EXTRA_MANTISSAS
from headgate.stores.redis.naming import DEFAULT_NAMESPACE, LONGEST_KEY, TAGS, Names, prefix, tags
from headgate.units import DAY, HOUR, MICROSECOND, MINUTE, SECOND, WEEK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headgate.limits import Limit


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


# What the value of a counter means to a person: states as `lua/counters.lua` writes them, read.
#
# A value comes in as bytes and goes out as a `State`, or as None if Headgate did not write it. The
# figures of windows are those of the pure algorithms. Nothing here talks to a server.


BEGINNING: Final = 25
"""Bytes of a value that `looks_like_state` needs to see."""
_STATE: Final = re.compile(rb"\d{16}(?:\d{3},\d|/\d)|[FCL]\d{1,16},|Q\d{1,23}")
_PACED: Final = re.compile(
    rb"(\d{16})(?:(?:(\d\d)(\d)|/(\d{1,24})),\d{1,16}|/(\d{1,24})/(\d{1,16})/\d{1,16}/(\d{1,16}))"
    rb"(?:@\d{1,16})?"
)
_FIXED: Final = re.compile(rb"F(\d{1,16}),(\d{1,16}),(\d{1,16}),(\d{1,16})(?:,(\d{1,16}))?")
_CELLS: Final = re.compile(rb"C(\d{1,16}),(\d{1,16}),(\d{1,16}),(\d{1,16}),(\d[\d,]*)")
_LOG: Final = re.compile(rb"L" + rb",".join([rb"(\d{1,16})"] * 6))
_QUEUE: Final = re.compile(
    rb"Q(\d{1,24}),(\d{1,16}),(\d{1,16}),(\d{1,16}),\d{1,16},\d{1,16}((?:;\d+:\d+:\d+)*)"
)
_ENTRY: Final = re.compile(rb"(\d{1,16})(?::(\d{1,16}))?")
_HOLD: Final = re.compile(rb"(\d{1,16}):(\d{1,16}):\d{1,16}:(.*)", re.DOTALL)
_PART: Final = re.compile(rb"([A-Za-z0-9._-]+):\d{16}:(.*)", re.DOTALL)
_MANTISSAS: Final = {code: mantissa for mantissa, code in EXTRA_MANTISSAS.items()}
_PERIODS: Final = (("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY), ("w", WEEK))


@dataclass(frozen=True, slots=True)
class Held:
    """An open reservation of *amount* units, or the lease of a slot; it ends by itself.

    *part* is the part of the callers that has the slot, if it is one that has a share.
    """

    name: str
    amount: int
    ends_in_ns: int
    part: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A counter as it is now.

    `kind` is the algorithm; "paced" stands for token bucket, GCRA and leaky bucket, which leave the
    same trace. `limit` is the rate, or the quota and the window, without the algorithm. `quota` is
    None where a counter does not know it: a paced one and a queue know their rate, slots not even
    that.
    """

    kind: str
    limit: str | None
    quota: int | None
    in_use: int
    as_new_in_ns: int
    """Nanoseconds until it is as if untouched, if nothing more comes."""
    reservations: tuple[Held, ...] = ()
    leases: tuple[Held, ...] = ()

    @property
    def held(self) -> int:
        """What open reservations have set aside. It is not in use, and not free either."""
        return sum(one.amount for one in self.reservations)


def looks_like_state(beginning: bytes) -> bool:
    """Whether a value with this beginning may be a counter's; the rest is worth reading then."""
    return _STATE.match(beginning) is not None


def read_state(value: bytes, entries: Sequence[bytes], now_ns: int) -> State | None:
    """The state in *value*, with the *entries* of the list beside it; None if it is none."""
    text, *rest = value.split(b"|")
    holds = [_HOLD.fullmatch(one) for one in rest]
    if not all(holds):
        return None
    try:
        state = _readers.get(text[:1], _read_paced)(text, entries, now_ns)
    except LimitError:  # numbers that no limit has
        return None
    if state is None:
        return None
    named = [(one[3], int(one[2]), int(one[1])) for one in holds if one]
    reservations = _live(named, now_ns)
    as_new_in = max([state.as_new_in_ns, *(one.ends_in_ns for one in reservations)])
    return State(state.kind, state.limit, state.quota, state.in_use, as_new_in, reservations)


def read_slots(leases: Sequence[tuple[bytes, float]], parts: Sequence[bytes], now_ns: int) -> State:
    """The slots whose *leases* run out at the given microseconds; *parts* says whose they are."""
    owners: dict[str, str] = {}
    for found in filter(None, map(_PART.fullmatch, parts)):
        owners[_word(found[2])] = found[1].decode("ascii")
    live = tuple(
        replace(one, part=owners.get(one.name))
        for one in _live([(name, 1, int(expires)) for name, expires in leases], now_ns)
    )
    as_new_in = max((one.ends_in_ns for one in live), default=0)
    return State("concurrency", None, None, len(live), as_new_in, leases=live)


def _live(held: Sequence[tuple[bytes, int, int]], now_ns: int) -> tuple[Held, ...]:
    """Those of *held* (name, amount, end in microseconds) that have not ended, soonest first."""
    ends = sorted((end * MICROSECOND - now_ns, name, amount) for name, amount, end in held)
    return tuple(
        Held(_word(name), amount, ends_in) for ends_in, name, amount in ends if ends_in > 0
    )


def _word(name: bytes) -> str:
    """A name as its owner gave it (see `requests._word`)."""
    plain = name.replace(b"%7C", b"|").replace(b"%25", b"%")
    return plain.decode("utf-8", "backslashreplace")


def _read_paced(text: bytes, _: Sequence[bytes], now_ns: int) -> State | None:
    found = _PACED.fullmatch(text)
    if not found:
        return None
    instant, mantissa, power, whole, unit, ticks, more = found.groups()
    q, p, f = int(whole or unit or 0), int(ticks or 1), int(more or 0)
    if mantissa:
        q = _MANTISSAS.get(int(mantissa), int(mantissa)) * 10 ** int(power)
    if not q or not p:
        return None
    # In ticks of 1/p of a nanosecond, of which a unit takes 1,000 q.
    in_use = max(0, (int(instant) * MICROSECOND - now_ns) * p + f * MICROSECOND)
    used = -(-in_use // (q * MICROSECOND))
    return State("paced", _rate(Fraction(p, q * MICROSECOND)), None, used, -(-in_use // p))


def _rate(per_ns: Fraction) -> str:
    """A rate as one would write it: 100/m rather than 1.666.../s."""
    for name, period in _PERIODS:
        if (per_ns * period).denominator == 1:
            return f"{per_ns * period}/{name}"
    return f"1/{float(1 / per_ns / SECOND):.6g}s"


def _read_fixed(text: bytes, _: Sequence[bytes], now_ns: int) -> State | None:
    found = _FIXED.fullmatch(text)
    if not found:
        return None
    window, quota, index, count = map(int, found.groups()[:4])
    start_ns = (int(found[5]) if found[5] else index * window) * MICROSECOND
    return _computed(FixedWindow(quota, _seconds(window)), (start_ns, count), now_ns)


def _read_cells(text: bytes, _: Sequence[bytes], now_ns: int) -> State | None:
    found = _CELLS.fullmatch(text)
    if not found:
        return None
    window, subwindows, quota, index = map(int, found.groups()[:4])
    counts = found[5].split(b",")
    if len(counts) != subwindows + 1 or not all(counts):
        return None
    limit = SlidingWindowCounter(quota, _seconds(window), subwindows=subwindows)
    return _computed(limit, (index, tuple(map(int, counts))), now_ns)


def _read_log(text: bytes, entries: Sequence[bytes], now_ns: int) -> State | None:
    found = _LOG.fullmatch(text)
    if not found:
        return None
    window, quota, high, _, debt, offset = map(int, found.groups())
    limit = SlidingWindowLog(quota, _seconds(window))
    log = Log(high * MICROSECOND)
    for entry in map(_ENTRY.fullmatch, entries):
        if entry:
            log.add((int(entry[1]) + offset) * MICROSECOND, int(entry[2] or 1))
    if not log.total:  # somebody deleted the list: what is left is debt that nothing works off
        ends = max(0, log.high + window * MICROSECOND - now_ns)
        return State(limit.algorithm, _numbers(limit), quota, debt, ends if debt else 0)
    log.debt = debt
    return _computed(limit, log, now_ns)


def _read_queue(text: bytes, _: Sequence[bytes], now_ns: int) -> State | None:
    found = _QUEUE.fullmatch(text)
    if not found or not int(found[1]) or not int(found[2]):
        return None
    unit, ticks, whole, more = map(int, found.groups()[:4])
    limit = LeakyQueue(Fraction(ticks * SECOND, unit * MICROSECOND), 0)
    algorithm = LeakyQueueAlgorithm(limit, grain_ns=MICROSECOND)

    def instant(whole: int, more: int) -> int:
        exact = Fraction(whole * ticks + more, ticks) * MICROSECOND * algorithm.pace.ticks_per_ns
        return int(exact)

    vacancies = [map(int, one.split(b":")) for one in found[5].split(b";")[1:]]
    line = Line(
        instant(whole, more),
        tuple([Vacancy(instant(w, f), units) for w, f, units in vacancies]),
        now_ns,
    )
    used, fresh_in = algorithm.used(line, now_ns), algorithm.fresh_in(line, now_ns)
    rate = _rate(Fraction(ticks, unit * MICROSECOND))
    return State(algorithm.limit.algorithm, rate, None, used, fresh_in)


def _computed(limit: Limit, state: object, now_ns: int) -> State:
    algorithm = algorithm_for(limit)
    used, fresh_in = algorithm.used(state, now_ns), algorithm.fresh_in(state, now_ns)
    return State(limit.algorithm, _numbers(limit), limit.quota, used, fresh_in if used else 0)


def _numbers(limit: Limit) -> str:
    """A limit's notation without the algorithm's name, which is told apart."""
    return str(limit).replace(f" {limit.algorithm}", "")


def _seconds(microseconds: int) -> Fraction:
    return Fraction(microseconds, 1_000_000)


_readers: Final[dict[bytes, Callable[[bytes, Sequence[bytes], int], State | None]]] = {
    b"F": _read_fixed,
    b"C": _read_cells,
    b"L": _read_log,
    b"Q": _read_queue,
}
