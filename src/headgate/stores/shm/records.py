"""A counter as bytes: the limit it is kept under, its state, its open reservations.

    length of the limit's text, kind of the state, the text and some blanks, the state

Kinds: numbers of a fixed size (paced limits, fixed windows, sliding counters), a log, and JSON for
whatever does not fit these or has reservations. The text of a limit is exact, so that a counter can
be read, carried over to another limit or thrown away by a process that has never heard of the
limit. Nothing that is read is believed: what makes no sense is a `ValueError`.
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from array import array
from fractions import Fraction
from functools import lru_cache
from mmap import mmap
from typing import Any, Final, NamedTuple

from headgate.algorithms import Algorithm, LeakyQueueAlgorithm, algorithm_for
from headgate.algorithms.concurrency import Claim, Lease, Slots
from headgate.algorithms.leaky_queue import Line, Vacancy
from headgate.algorithms.reservations import Hold, Holds
from headgate.algorithms.sliding_log import Log
from headgate.errors import LimitError
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.limits.model import PacedLimit
from headgate.units import SECOND

Buffer = bytes | mmap
"""What is read from: a copy, or the memory itself."""

State = Any
"""The state of a counter: what its algorithm makes of it."""

FIXED, LOG, JSON = range(3)
WORD: Final = 8
"""Bytes that a processor writes at once: a kill comes before or after."""
LARGEST_WORD: Final = (1 << 8 * WORD) - 1
_BEFORE_TEXT: Final = 2
_LOG: Final = struct.Struct("<qqI")
MOST_LIMITS: Final = 4096
"""How many limits are remembered: policies change."""
_NO_HOLDS: Final[Holds] = {}


class Entry(NamedTuple):
    """A counter: its state, None if untouched, and its open reservations."""

    state: State
    holds: Holds


UNTOUCHED: Final = Entry(None, _NO_HOLDS)


class Form(ABC):
    """The state of a counter as bytes, as many each time."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def packed(self, state: State) -> bytes:
        """*state* as bytes; `OverflowError` or `struct.error` if they are too few for it."""

    @abstractmethod
    def read(self, data: Buffer, at: int) -> State:
        """The state that *data* says from its byte *at* on."""

    @abstractmethod
    def change(self, before: State, after: State) -> tuple[int, int] | None:
        """The only word that changes, which one it is and what it becomes; None if there are
        others."""


class Number(Form):
    """The one number of a paced limit."""

    __slots__ = ()

    def packed(self, state: State) -> bytes:
        data: bytes = state.to_bytes(self.size, "little", signed=True)
        return data

    def read(self, data: Buffer, at: int) -> State:
        return int.from_bytes(data[at : at + self.size], "little", signed=True)

    def change(self, before: State, after: State) -> tuple[int, int] | None:
        return (0, after) if before >= 0 and 0 <= after <= LARGEST_WORD >= before else None


class Window(Form):
    """The number of a window and the count in it."""

    __slots__ = ("_struct",)

    def __init__(self) -> None:
        self._struct = struct.Struct("<qq")
        super().__init__(self._struct.size)

    def packed(self, state: State) -> bytes:
        return self._struct.pack(*state)

    def read(self, data: Buffer, at: int) -> State:
        return self._struct.unpack_from(data, at)

    def change(self, before: State, after: State) -> tuple[int, int] | None:
        return (1, after[1]) if before[0] == after[0] and after[1] >= 0 else None


class Cells(Form):
    """The number of a cell, and its count and those before it."""

    __slots__ = ("_struct",)

    def __init__(self, subwindows: int) -> None:
        self._struct = struct.Struct(f"<{subwindows + 2}q")
        super().__init__(self._struct.size)

    def packed(self, state: State) -> bytes:
        return self._struct.pack(state[0], *state[1])

    def read(self, data: Buffer, at: int) -> State:
        index, *counts = self._struct.unpack_from(data, at)
        return index, tuple(counts)

    def change(self, before: State, after: State) -> tuple[int, int] | None:
        counts = after[1]
        if before[0] != after[0] or counts[-1] < 0:
            return None
        return len(counts), counts[-1]


NUMBER: Final = Number(16)
_WINDOW: Final = Window()


def form_of(limit: Limit) -> Form | None:
    """How the state under *limit* is written, if its size is fixed."""
    match limit:
        case PacedLimit():
            return NUMBER
        case FixedWindow():
            return _WINDOW
        case SlidingWindowCounter():
            return Cells(limit.subwindows)
    return None


@lru_cache(maxsize=4096)
def limit_text(limit: Limit) -> bytes:
    """*limit* as an exact text, so long that the state after it begins with a word of memory: one
    that does not could not be written at once on every machine."""
    numbers: tuple[int, ...]
    if isinstance(limit, PacedLimit):
        rate = limit.per_second
        numbers = limit.quota, rate.numerator, rate.denominator
    elif isinstance(limit, LeakyQueue):
        rate = limit.per_second
        numbers = limit.queue, rate.numerator, rate.denominator
    elif isinstance(limit, SlidingWindowCounter):
        numbers = limit.quota, limit.window_ns, limit.subwindows
    else:
        numbers = limit.quota, limit.period_ns
    text = " ".join([limit.algorithm, *map(str, numbers)]).encode("ascii")
    return text + b" " * (-(_BEFORE_TEXT + len(text)) % WORD)


def limit_of(text: bytes) -> Limit:
    """The limit that `limit_text` made *text* of."""
    try:
        algorithm, *rest = text.decode("ascii").split()
        return _limit(algorithm, *map(int, rest))
    except (ValueError, TypeError, ZeroDivisionError, LimitError) as error:
        raise ValueError(f"{text!r} is no limit") from error


def _limit(algorithm: str, quota: int, number: int, more: int = 1) -> Limit:
    seconds = Fraction(number, SECOND)
    match algorithm:
        case "token_bucket":
            return TokenBucket(quota, Fraction(number, more))
        case "gcra":
            return GCRA(Fraction(number, more), quota)
        case "leaky_bucket":
            return LeakyBucket(quota, Fraction(number, more))
        case "leaky_queue":
            return LeakyQueue(Fraction(number, more), quota)
        case "fixed_window":
            return FixedWindow(quota, seconds)
        case "sliding_window_log":
            return SlidingWindowLog(quota, seconds)
        case "sliding_window_counter":
            return SlidingWindowCounter(quota, seconds, more)
        case "concurrency":
            return Concurrency(quota, seconds)
    raise ValueError(f"no algorithm is called {algorithm!r}")


class Kept(NamedTuple):
    """What there is to know about a limit."""

    limit: Limit
    algorithm: Algorithm[State]
    form: Form | None


class Records:
    """Reads and writes counters whose numbers are counted from *origin*."""

    __slots__ = ("_by_identity", "_by_text", "_origin")

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._by_text: dict[bytes, Kept] = {}
        # By the identity of limits, which are kept with it: to hash one takes longer than the rest.
        self._by_identity: dict[int, tuple[Limit, Kept]] = {}

    def kept(self, limit: Limit) -> Kept:
        """What there is to know about *limit*: the same for equal limits."""
        known = self._by_identity.get(id(limit))
        if known is None:
            if len(self._by_identity) >= MOST_LIMITS:
                self._by_identity.clear()
            known = self._by_identity[id(limit)] = limit, self._asked(limit)
        return known[1]

    def write(self, limit: Limit, entry: Entry) -> bytes:
        """The record of a counter that is not untouched."""
        kind, data = _packed(self.kept(limit).form, entry)
        return prefix(limit, kind) + data

    def read(self, record: bytes) -> tuple[Algorithm[State], Entry]:
        """The counter that *record* says, and the arithmetic it is kept under."""
        if len(record) < _BEFORE_TEXT or len(record) < _BEFORE_TEXT + record[0]:
            raise ValueError("a record that breaks off")
        end = _BEFORE_TEXT + record[0]
        kept = self._written(record[_BEFORE_TEXT:end])
        return kept.algorithm, _unpacked(kept, record[1], record[end:])

    def _asked(self, limit: Limit) -> Kept:
        kept = self._written(limit_text(limit))
        # Of shares, and of who waits for how long, the text says nothing.
        if isinstance(limit, Concurrency) and limit.shares:
            return Kept(limit, algorithm_for(limit, self._origin), kept.form)
        if isinstance(limit, LeakyQueue) and isinstance(kept.algorithm, LeakyQueueAlgorithm):
            return Kept(limit, kept.algorithm.asked_under(limit), kept.form)
        return kept

    def _written(self, text: bytes) -> Kept:
        kept = self._by_text.get(text)
        if kept is None:
            if len(self._by_text) >= MOST_LIMITS:
                self._by_text.clear()
                self._by_identity.clear()
            limit = limit_of(text)
            algorithm = algorithm_for(limit, self._origin)
            kept = self._by_text[text] = Kept(limit, algorithm, form_of(limit))
        return kept


def prefix(limit: Limit, kind: int) -> bytes:
    """What a record under *limit* with a state of *kind* begins with."""
    text = limit_text(limit)
    return bytes((len(text), kind)) + text


def _packed(form: Form | None, entry: Entry) -> tuple[int, bytes]:
    state, holds = entry
    if not holds:
        try:
            if form is not None:
                return FIXED, form.packed(state)
            if isinstance(state, Log):
                return LOG, _packed_log(state)
        except (OverflowError, struct.error):
            pass  # a debt beyond all measure
    if isinstance(state, Log):
        state = [state.high, state.debt, state.times[state.head :], state.units[state.head :]]
    elif isinstance(state, Slots):
        state = [state.leases, state.claims, state.kept]
    return JSON, json.dumps([state, holds], separators=(",", ":")).encode("ascii")


def _packed_log(log: Log) -> bytes:
    times, units = array("q", log.times[log.head :]), array("q", log.units[log.head :])
    return _LOG.pack(log.high, log.debt, len(times)) + times.tobytes() + units.tobytes()


def _unpacked(kept: Kept, kind: int, data: bytes) -> Entry:
    try:
        if kind == FIXED and kept.form is not None and len(data) == kept.form.size:
            return Entry(_checked(kept.limit, kept.form.read(data, 0)), _NO_HOLDS)
        if kind == LOG and isinstance(kept.limit, SlidingWindowLog):
            high, debt, count = _LOG.unpack_from(data)
            numbers = array("q", data[_LOG.size :])
            return Entry(_log(high, debt, list(numbers[:count]), list(numbers[count:])), _NO_HOLDS)
        if kind == JSON:
            state, holds = json.loads(data)
            held = {str(name): Hold(_counted(n), int(end)) for name, (n, end) in holds.items()}
            return Entry(None if state is None else _checked(kept.limit, state), held)
    except (struct.error, ArithmeticError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("a record that makes no sense") from error
    raise ValueError(f"a record of kind {kind}")


def _checked(limit: Limit, state: State) -> State:
    """*state* as its algorithm has it, from what was read or what JSON makes of it."""
    match limit:
        case PacedLimit():
            return int(state)
        case FixedWindow():
            index, count = state
            return int(index), _counted(count)
        case SlidingWindowCounter():
            index, counts = state
            if len(counts) != limit.subwindows + 1:
                raise ValueError("as many counts as cells")
            return int(index), tuple(map(_counted, counts))
        case LeakyQueue():
            ends, vacancies = state
            return Line(int(ends), tuple([Vacancy(int(s), _counted(n)) for s, n in vacancies]))
        case SlidingWindowLog():
            high, debt, times, units = state
            return _log(int(high), int(debt), list(map(int, times)), list(map(int, units)))
        case _:
            return _slots(state)


def _counted(count: Any) -> int:
    number = int(count)
    if number < 0:
        raise ValueError("a count below nothing")
    return number


def _log(high: int, debt: int, times: list[int], units: list[int]) -> Log:
    if len(times) != len(units) or debt < 0 or (debt and not units):
        raise ValueError("as many times as units, and no debt of nobody's")
    if units and (min(units) < 1 or times != sorted(times) or times[-1] > high):
        raise ValueError("an entry of nothing, or one that is not in its place")
    log = Log(high)
    log.times, log.units, log.total, log.debt = times, units, sum(units), debt
    return log


def _slots(state: Any) -> Slots:
    """Leases and claims; of a process that knows of no shares, only when each lease ends."""
    if isinstance(state, dict):
        return Slots({str(name): Lease(int(end), None) for name, end in state.items()})
    leases, claims, *others = state
    kept = others[0] if others else {}
    return Slots(
        {
            str(name): Lease(int(end), None if part is None else str(part))
            for name, (end, part) in leases.items()
        },
        {str(part): _claim(claim) for part, claim in claims.items()},
        {str(part): tuple([_claim(claim) for claim in many]) for part, many in kept.items()},
    )


def _claim(claim: Any) -> Claim:
    return Claim(*map(_counted, claim))
