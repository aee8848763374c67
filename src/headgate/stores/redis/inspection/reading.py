"""What the value of a counter means to a person: states as `lua/counters.lua` writes them, read.

A value comes in as bytes and goes out as a `State`, or as None if Headgate did not write it. The
figures of windows are those of the pure algorithms. Nothing here talks to a server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.algorithms import LeakyQueueAlgorithm, algorithm_for
from headgate.algorithms.leaky_queue import Line, Vacancy
from headgate.algorithms.sliding_window_log import Log
from headgate.errors import LimitError
from headgate.limits import FixedWindow, LeakyQueue, SlidingWindowCounter, SlidingWindowLog
from headgate.stores.redis.counters.specs import EXTRA_MANTISSAS
from headgate.units import DAY, HOUR, MICROSECOND, MINUTE, SECOND, WEEK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.limits import Limit

BEGINNING: Final = 24
"""Bytes of a value that `looks_like_state` needs to see."""
_STATE: Final = re.compile(rb"\d{16}(?:\d{3}(?:\||\Z)|/\d)|[FCL]\d{1,16},|Q\d{1,23}")
_PACED: Final = re.compile(rb"(\d{16})(?:(\d\d)(\d)|/(\d{1,24})(?:/(\d{1,16})/(\d{1,16}))?)")
_FIXED: Final = re.compile(rb"F(\d{1,16}),(\d{1,16}),(\d{1,16}),(\d{1,16})")
_CELLS: Final = re.compile(rb"C(\d{1,16}),(\d{1,16}),(\d{1,16}),(\d{1,16}),(\d[\d,]*)")
_LOG: Final = re.compile(rb"L" + rb",".join([rb"(\d{1,16})"] * 6))
_QUEUE: Final = re.compile(rb"Q(\d{1,24}),(\d{1,16}),(\d{1,16}),(\d{1,16})((?:;\d+:\d+:\d+)*)")
_ENTRY: Final = re.compile(rb"(\d{1,16})(?::(\d{1,16}))?")
_HOLD: Final = re.compile(rb"(\d{1,16}):(\d{1,16}):(.*)", re.DOTALL)
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
    instant, mantissa, power, unit, ticks, more = found.groups()
    q, p, f = int(unit or 0), int(ticks or 1), int(more or 0)
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
    window, quota, index, count = map(int, found.groups())
    return _computed(FixedWindow(quota, _seconds(window)), (index, count), now_ns)


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
        instant(whole, more), tuple([Vacancy(instant(w, f), units) for w, f, units in vacancies])
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
