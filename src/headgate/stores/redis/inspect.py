"""Finding and reading counters, for a person to look at. It reads, and never writes.

Names are found with SCAN, a step at a time, on every primary: KEYS would block the server. Names
and values that Headgate could not have written are left out, and so are counters that expire before
they are read. The figures are as of the server's own clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol

from headgate.algorithms import algorithm_for
from headgate.algorithms.sliding_log import Log
from headgate.errors import LimitError, StoreError
from headgate.limits import FixedWindow, LeakyQueue, SlidingWindowCounter, SlidingWindowLog
from headgate.stores.base import group_name
from headgate.stores.redis import errors
from headgate.stores.redis.batching import PendingResult
from headgate.stores.redis.codec import EXTRA_MANTISSAS, QueueSpec
from headgate.stores.redis.naming import DEFAULT_NAMESPACE, Names, ParsedName, parse_name, prefix
from headgate.stores.redis.requests import Command, pack
from headgate.stores.redis.transport import Transport
from headgate.units import DAY, HOUR, MICROSECOND, MILLISECOND, MINUTE, SECOND, WEEK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.limits import Limit
    from headgate.server_urls import Address
    from headgate.stores.redis.url import RedisURL

    Words = tuple[bytes | str | int, ...]

_WILD: Final = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")
_SPECIAL: Final = re.compile(rb"([*?\[\]\\^-])")
_STEP: Final = 1_000
"""Keys that the server examines in one step of SCAN: a fraction of a millisecond."""
_PATIENCE: Final = 5.0
"""Seconds that a reply may take, at least: the URL's timeout is for decisions."""
_LONGEST_VALUE: Final = 1 << 18
"""Bytes of a value that are read: those of other applications may be of any size."""
_WRONG_TYPE: Final = "WRONGTYPE"
_AT_ONCE: Final = 100
"""Counters that are read in one round trip: each may have a long list beside it."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the counters of *key*, or of keys like *pattern*, or all.

    *pattern* is a glob as in a shell: `*`, `?`, `[abc]`, `[!abc]`. A key that is too long to be
    stored is found by *key* alone, in full or by its digest.
    """

    namespace: str | None = None
    pattern: str | None = None
    key: str | None = None

    def match(self, *, has_tags: bool) -> bytes:
        """Return a pattern for SCAN that matches all these names, and perhaps others."""
        start = b"{*}" if has_tags else b""
        if self.namespace is not None:
            start += escaped(prefix(group_name(self.namespace, 0)).rstrip(b":"))
        if self.key is not None:
            return b"%b*:%b" % (start, escaped(self._raw_key))
        return b"%b*:%b" % (start, _loosened(self.pattern or "*"))

    def accepts(self, found: ParsedName) -> bool:
        """Return True if the search is for *found*. The list beside a log is no counter."""
        if found.beside == "+" or self.namespace not in (None, found.namespace):
            return False
        if self.key is not None:
            return found.key.encode("utf-8", "surrogatepass") == self._raw_key
        return self.pattern is None or fnmatchcase(found.key, self.pattern)

    @property
    def _raw_key(self) -> bytes:
        """The key as it is written in names: itself or its digest."""
        name = Names(has_tags=False).counter(group_name(DEFAULT_NAMESPACE, 0), self.key or "")
        return name.partition(b":")[2]


def escaped(literal: bytes) -> bytes:
    """Return a pattern for SCAN that matches *literal* and nothing else."""
    return _SPECIAL.sub(rb"\\\1", literal)


def _loosened(pattern: str) -> bytes:
    """Translate a glob for SCAN, every wildcard a star: to Redis a character is a byte."""
    literals = (escaped(text.encode("utf-8", "surrogatepass")) for text in _WILD.split(pattern))
    return b"*".join(literals)


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter that was found: its name in Redis, parsed too, its state, its time to live."""

    redis_name: bytes
    name: ParsedName
    state: State
    ttl_ns: int


class Primary(Protocol):
    """A server that counters can be read from."""

    has_tags: bool

    def scan(self, match: bytes) -> Iterator[Sequence[bytes]]:
        """Yield the names like *match*, a step at a time; a name may come twice."""

    def read(self, names: Sequence[bytes]) -> Iterable[tuple[bytes, State, int]]:
        """Yield those of *names* that are counters: name, state, nanoseconds to live."""


def find_counters(primaries: Iterable[Primary], search: Search) -> Iterator[Counter]:
    """Yield the counters that *search* is for, each once, in no order."""
    seen: set[bytes] = set()
    for primary in primaries:
        for step in primary.scan(search.match(has_tags=primary.has_tags)):
            parsed = {name: parse_name(name) for name in step if name not in seen}
            accepted = {
                name: one
                for name, one in parsed.items()
                if one and bool(one.tag) == primary.has_tags and search.accepts(one)
            }
            seen.update(accepted)
            for name, state, ttl_ns in primary.read(list(accepted)):
                yield Counter(name, accepted[name], state, ttl_ns)


class Server:
    """The primary at *address*. Raises `StoreError`.

    A key whose slot is being moved may be at another node: the transport reads it there.
    """

    def __init__(self, transport: Transport, address: Address, *, has_tags: bool) -> None:
        self._transport = transport
        self._address = address
        self.has_tags = has_tags

    def scan(self, match: bytes) -> Iterator[Sequence[bytes]]:
        cursor = b""
        while cursor != b"0":
            command = ("SCAN", cursor or b"0", "MATCH", match, "COUNT", _STEP)
            ((cursor, names),) = self._replies([(b"", command)], at=self._address)
            yield names

    def check(self) -> None:
        """Raise `StoreError` if it cannot be reached, or is a node of a cluster by itself.

        Such a node has only a part of the counters, and under other names.
        """
        try:
            (found,) = self._replies([(b"", ("INFO", "cluster"))], at=self._address)
        except StoreError as error:
            if error.reason not in ("denied", "refused"):  # an ACL may forbid INFO
                raise
        else:
            if b"cluster_enabled:1" in found:
                raise errors.store_error("MOVED", str(self._address))

    def read(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, State, int]]:
        for first in range(0, len(names), _AT_ONCE):
            yield from self._read(names[first : first + _AT_ONCE])

    def _read(self, names: Sequence[bytes]) -> Iterator[tuple[bytes, State, int]]:
        commands = [(name, command) for name in names for command in _reading(name)]
        # TIME is last: no state is younger.
        *replies, (seconds, micros) = self._replies([*commands, (names[0], ("TIME",))])
        now_ns = (int(seconds) * 1_000_000 + int(micros)) * MICROSECOND
        for n, name in enumerate(names):
            value, entries, ttl = replies[3 * n :][:3]
            # Every key of ours has a TTL, so one without is not ours.
            state = _state(name, value, entries or (), now_ns) if ttl and ttl > 0 else None
            if state:
                yield name, state, ttl * MILLISECOND

    def _replies(
        self, commands: Sequence[tuple[bytes, Words]], at: Address | None = None
    ) -> list[Any]:
        """Return the replies to *commands*, each about a key; None if that is of another type."""
        results = [PendingResult() for _ in commands]
        self._transport.perform(
            [
                Command(pack(words), result, key)
                for (key, words), result in zip(commands, results, strict=True)
            ],
            at=at,
        )
        found = [one.outcome() for one in results]
        for error in found:
            if isinstance(error, StoreError) and _WRONG_TYPE not in str(error):
                raise error
        return [None if isinstance(one, StoreError) else one for one in found]


def _reading(name: bytes) -> tuple[Words, Words, Words]:
    """Return the commands that read the value of *name*, the key beside it, and its TTL in ms."""
    if _is_for_slots(name):
        value: Words = ("ZRANGE", name, 0, -1, "WITHSCORES")
        beside: Words = ("ZRANGE", name.replace(b":", b"|:", 1), 0, -1)
    else:
        value = ("GETRANGE", name, 0, _LONGEST_VALUE - 1)
        beside = ("LRANGE", name.replace(b":", b"+:", 1), 0, -1)
    return value, beside, ("PTTL", name)


def _is_for_slots(name: bytes) -> bool:
    return name.partition(b":")[0].endswith(b"~")


def _state(name: bytes, value: Any, entries: Sequence[bytes], now_ns: int) -> State | None:
    if value is None:
        return None
    if _is_for_slots(name):
        leases = list(zip(value[::2], map(float, value[1::2]), strict=True))
        return read_slots(leases, entries, now_ns)
    return read_state(value, entries, now_ns)


@contextmanager
def open_primaries(url: RedisURL) -> Iterator[list[Server]]:
    """Connect to the primaries of *url*. Raises `StoreError`."""
    url = replace(url, timeout=max(_PATIENCE, url.timeout))
    with closing(Transport(url)) as transport:
        is_cluster = url.is_cluster
        found = [Server(transport, one, has_tags=is_cluster) for one in transport.primaries()]
        if not is_cluster:
            found[0].check()
        yield found


# The values of counters, as lua/counters.lua writes them.

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
_HOLD: Final = re.compile(rb"(\d{1,16}):(\d{1,16}):\d{1,16}([+!]?):(.*)", re.DOTALL)
_PART: Final = re.compile(rb"([A-Za-z0-9._-]+):\d{16}:(.*)", re.DOTALL)
_MANTISSAS: Final = {code: mantissa for mantissa, code in EXTRA_MANTISSAS.items()}
Charges = Sequence[tuple[int, int]]
"""What is charged besides: the time in nanoseconds and the amount, in order."""
_PERIODS: Final = (("s", SECOND), ("m", MINUTE), ("h", HOUR), ("d", DAY), ("w", WEEK))


@dataclass(frozen=True, slots=True)
class Held:
    """An open reservation of *amount* units, or the lease of a slot; it ends by itself.

    *part* is the partition that has the slot, if it has a share.
    """

    name: str
    amount: int
    ends_in_ns: int
    part: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A counter as it is now.

    `kind` is the algorithm; "paced" stands for token bucket, GCRA and leaky bucket, whose values
    are alike. `limit` is the rate, or the quota and the window, without the algorithm. `quota` is
    None where it is not stored: for "paced" and queues, which store their rate, and for slots.
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
        """The units that open reservations have set aside: neither in use nor free."""
        return sum(one.amount for one in self.reservations)


def read_state(value: bytes, entries: Sequence[bytes], now_ns: int) -> State | None:
    """Read the state in *value*, with the *entries* of the list beside it; None if it is none."""
    text, *rest = value.split(b"|")
    holds = [_HOLD.fullmatch(one) for one in rest]
    if not all(holds):
        return None
    pattern, reader = _READERS.get(text[:1], (_PACED, _read_paced))
    found = pattern.fullmatch(text)
    charging = sorted(
        [(int(one[1]) * MICROSECOND, int(one[2])) for one in holds if one and one[3] == b"+"]
    )
    expired = [charge for charge in charging if charge[0] <= now_ns]
    last_ns = max([now_ns, *(expires_ns for expires_ns, _ in charging)])
    try:
        state = reader(found, entries, expired, now_ns) if found else None
        later = reader(found, entries, charging, last_ns) if found else None
    except LimitError:  # numbers that no limit has
        return None
    if state is None or later is None:
        return None
    named = [(one[4], int(one[2]), int(one[1])) for one in holds if one and one[3] != b"!"]
    reservations = _live(named, now_ns)
    as_new_in = later.as_new_in_ns + last_ns - now_ns if charging else state.as_new_in_ns
    as_new_in = max([as_new_in, *(one.ends_in_ns for one in reservations)])
    return State(state.kind, state.limit, state.quota, state.in_use, as_new_in, reservations)


def read_slots(leases: Sequence[tuple[bytes, float]], parts: Sequence[bytes], now_ns: int) -> State:
    """Read the slots whose *leases* expire at some microseconds; *parts* names their owners."""
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
    """Return those of *held* (name, amount, end in microseconds) that last, soonest first."""
    ends = sorted((end * MICROSECOND - now_ns, name, amount) for name, amount, end in held)
    return tuple(
        Held(_word(name), amount, ends_in) for ends_in, name, amount in ends if ends_in > 0
    )


def _word(name: bytes) -> str:
    """Undo the escapes in the name of a reservation."""
    plain = name.replace(b"%7C", b"|").replace(b"%25", b"%")
    return plain.decode("utf-8", "backslashreplace")


def _read_paced(
    found: re.Match[bytes], _: Sequence[bytes], charges: Charges, now_ns: int
) -> State | None:
    instant, mantissa, power, whole, unit, ticks, more = found.groups()
    q, p, f = int(whole or unit or 0), int(ticks or 1), int(more or 0)
    if mantissa:
        q = _MANTISSAS.get(int(mantissa), int(mantissa)) * 10 ** int(power)
    if not q or not p:
        return None
    # In ticks of 1/p of a nanosecond, of which a unit takes 1,000 q.
    ends = int(instant) * MICROSECOND * p + f * MICROSECOND
    for time_ns, amount in charges:
        ends = max(ends, time_ns * p) + amount * q * MICROSECOND
    in_use = max(0, ends - now_ns * p)
    used = -(-in_use // (q * MICROSECOND))
    return State("paced", _rate(Fraction(p, q * MICROSECOND)), None, used, -(-in_use // p))


def _rate(per_ns: Fraction) -> str:
    """Write a rate as a person does: 100/m rather than 1.666.../s."""
    for name, period in _PERIODS:
        if (per_ns * period).denominator == 1:
            return f"{per_ns * period}/{name}"
    return f"1/{float(1 / per_ns / SECOND):.6g}s"


def _read_fixed(
    found: re.Match[bytes], _: Sequence[bytes], charges: Charges, now_ns: int
) -> State | None:
    window, quota, index, count = map(int, found.groups()[:4])
    start_ns = (int(found[5]) if found[5] else index * window) * MICROSECOND
    return _computed(FixedWindow(quota, _seconds(window)), (start_ns, count), charges, now_ns)


def _read_cells(
    found: re.Match[bytes], _: Sequence[bytes], charges: Charges, now_ns: int
) -> State | None:
    window, subwindows, quota, index = map(int, found.groups()[:4])
    counts = found[5].split(b",")
    if len(counts) != subwindows + 1 or not all(counts):
        return None
    limit = SlidingWindowCounter(quota, _seconds(window), subwindows=subwindows)
    return _computed(limit, (index, tuple(map(int, counts))), charges, now_ns)


def _read_log(
    found: re.Match[bytes], entries: Sequence[bytes], charges: Charges, now_ns: int
) -> State | None:
    window, quota, high, _, debt, offset = map(int, found.groups())
    limit = SlidingWindowLog(quota, _seconds(window))
    log = Log(high * MICROSECOND)
    for entry in map(_ENTRY.fullmatch, entries):
        if entry:
            log.add((int(entry[1]) + offset) * MICROSECOND, int(entry[2] or 1))
    if not log.total and (debt or not charges):
        # The list was deleted: what is left is debt that nothing works off.
        ends = max(0, log.high + window * MICROSECOND - now_ns)
        return State(limit.algorithm, _numbers(limit), quota, debt, ends if debt else 0)
    log.debt = debt
    return _computed(limit, log, charges, now_ns)


def _read_queue(
    found: re.Match[bytes], _: Sequence[bytes], charges: Charges, now_ns: int
) -> State | None:
    unit, ticks = int(found[1]), int(found[2])
    if not unit or not ticks:
        return None
    spec = QueueSpec(LeakyQueue(Fraction(ticks * SECOND, unit * MICROSECOND), 0))
    line = spec.line(b"%b,%b%b" % found.groups()[2:], now_ns)
    for time_ns, amount in charges:
        line = spec.algorithm.charge(line, amount, time_ns)
    used, fresh_in = spec.algorithm.used(line, now_ns), spec.algorithm.fresh_in(line, now_ns)
    rate = _rate(Fraction(ticks, unit * MICROSECOND))
    return State(LeakyQueue.algorithm, rate, None, used, fresh_in)


def _computed(limit: Limit, state: Any, charges: Charges, now_ns: int) -> State:
    algorithm = algorithm_for(limit)
    for time_ns, amount in charges:
        state = algorithm.charge(state, amount, time_ns)
    used, fresh_in = algorithm.used(state, now_ns), algorithm.fresh_in(state, now_ns)
    return State(limit.algorithm, _numbers(limit), limit.quota, used, fresh_in if used else 0)


def _numbers(limit: Limit) -> str:
    """Return the notation of *limit* without the algorithm's name."""
    return str(limit).replace(f" {limit.algorithm}", "")


def _seconds(microseconds: int) -> Fraction:
    return Fraction(microseconds, 1_000_000)


_Reader = Callable[[re.Match[bytes], Sequence[bytes], Charges, int], State | None]

_READERS: Final[dict[bytes, tuple[re.Pattern[bytes], _Reader]]] = {
    b"F": (_FIXED, _read_fixed),
    b"C": (_CELLS, _read_cells),
    b"L": (_LOG, _read_log),
    b"Q": (_QUEUE, _read_queue),
}
"""The pattern of a value and its reader, by the first character; paced ones begin with a digit."""
