"""A counter as bytes: the limit it is kept under, its state, its open reservations.

    length of the limit's text | kind of the state | text, padded with blanks | state

Kinds: integers of a fixed number (paced limits, fixed windows, sliding counters), a log, and JSON
for what does not fit these or has reservations. The text of a limit is exact, so a process that
does not know the limit can read, convert or drop a counter. Damaged records raise `ValueError`.
"""

from __future__ import annotations

import json
import struct
from array import array
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import Algorithm, LeakyQueueAlgorithm, algorithm_for
from headgate.algorithms.concurrency import Claim, Lease, Slots
from headgate.algorithms.leaky_queue import Line, Vacancy
from headgate.algorithms.reservations import Expiry, Hold, Holds
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
from headgate.stores.shm.table import MAX_WORD, WORD
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

State = Any
"""The state of a counter, as its algorithm defines it."""

FIXED, LOG, JSON = range(3)
_BEFORE_TEXT: Final = 2
_LOG: Final = struct.Struct("=qqI")
_MAX_LIMITS: Final = 4096
"""Limits that a process remembers: policies change."""
_NO_HOLDS: Final[Holds] = {}


class Entry(NamedTuple):
    """A counter: its state, None if untouched, and its open reservations."""

    state: State
    holds: Holds
    kept_until: int = 0
    """The cell of a counter that was reset is kept until then, in nanoseconds."""


UNTOUCHED: Final = Entry(None, _NO_HOLDS)


class Form(NamedTuple):
    """A state as a fixed number of words."""

    struct: struct.Struct
    state: Callable[[tuple[int, ...]], State]
    """Make a state of its words."""
    words: Callable[[State], tuple[int, ...]]
    """Make the words of a state."""
    fixed: int
    """The word that is the same before and after most takes."""
    counted: int
    """The only word that differs then."""


_NUMBER: Final = Form(
    struct.Struct("=Qq"),  # low word first
    lambda words: words[0] | words[1] << 64 if words[1] else words[0],
    lambda state: (state & MAX_WORD, state >> 64),
    fixed=1,
    counted=0,
)
_WINDOW: Final = Form(struct.Struct("=qq"), lambda words: words, lambda state: state, 0, 1)


def form_of(limit: Limit) -> Form | None:
    """Return the form of a state under *limit*, if its size is fixed."""
    match limit:
        case PacedLimit():
            return _NUMBER
        case FixedWindow():
            return _WINDOW
        case SlidingWindowCounter():
            return Form(
                struct.Struct(f"={limit.subwindows + 2}q"),
                lambda words: (words[0], words[1:]),
                lambda state: (state[0], *state[1]),
                fixed=0,
                counted=limit.subwindows + 1,
            )
    return None


@lru_cache(maxsize=_MAX_LIMITS)
def limit_text(limit: Limit) -> bytes:
    """Return *limit* as an exact text, padded so that the state behind it is aligned to words."""
    numbers = limit.quota, limit.period_ns, getattr(limit, "subwindows", 1)
    if isinstance(limit, PacedLimit | LeakyQueue):
        quota = limit.queue if isinstance(limit, LeakyQueue) else limit.quota
        numbers = quota, limit.per_second.numerator, limit.per_second.denominator
    text = " ".join([limit.algorithm, *map(str, numbers)]).encode("ascii")
    return text + b" " * (-(_BEFORE_TEXT + len(text)) % WORD)


def limit_of(text: bytes) -> Limit:
    """Return the limit that `limit_text` made *text* of."""
    try:
        algorithm, *rest = text.decode("ascii").split()
        quota, number, more = map(int, rest)
        return _MAKERS[algorithm](quota, number, more)
    except (ValueError, KeyError, ZeroDivisionError, LimitError) as error:
        raise ValueError(f"{text!r} is not a limit") from error


_MAKERS: Final[dict[str, Callable[[int, int, int], Limit]]] = {
    "token_bucket": lambda quota, rate, per: TokenBucket(quota, Fraction(rate, per)),
    "gcra": lambda quota, rate, per: GCRA(Fraction(rate, per), quota),
    "leaky_bucket": lambda quota, rate, per: LeakyBucket(quota, Fraction(rate, per)),
    "leaky_queue": lambda quota, rate, per: LeakyQueue(Fraction(rate, per), quota),
    "fixed_window": lambda quota, ns, _: FixedWindow(quota, Fraction(ns, SECOND)),
    "sliding_window_log": lambda quota, ns, _: SlidingWindowLog(quota, Fraction(ns, SECOND)),
    "sliding_window_counter": lambda quota, ns, subwindows: SlidingWindowCounter(
        quota, Fraction(ns, SECOND), subwindows
    ),
    "concurrency": lambda quota, ns, _: Concurrency(quota, Fraction(ns, SECOND)),
}


class Kept(NamedTuple):
    """A limit, its arithmetic, and the form of its states."""

    limit: Limit
    algorithm: Algorithm[State]
    form: Form | None


class Records:
    """Reader and writer of records whose times count from *origin*."""

    __slots__ = ("_by_identity", "_by_text", "_origin")

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._by_text: dict[bytes, Kept] = {}
        # By identity, as hashing a limit takes longer than the rest. It keeps the limit alive.
        self._by_identity: dict[int, tuple[Limit, Kept]] = {}

    def kept(self, limit: Limit) -> Kept:
        """Return what belongs to *limit*: the same object for equal limits."""
        known = self._by_identity.get(id(limit))
        if known is None:
            if len(self._by_identity) >= _MAX_LIMITS:
                self._by_identity.clear()
            known = self._by_identity[id(limit)] = limit, self._made(limit)
        return known[1]

    def write(self, limit: Limit, entry: Entry) -> bytes:
        """Return the record of a counter that is not untouched."""
        kind, data = _packed(self.kept(limit).form, entry)
        return prefix(limit, kind) + data

    def read(self, record: bytes) -> tuple[Algorithm[State], Entry]:
        """Return the arithmetic that a counter is kept under, and the counter."""
        if len(record) < _BEFORE_TEXT or len(record) < _BEFORE_TEXT + record[0]:
            raise ValueError("a record is cut short")
        end = _BEFORE_TEXT + record[0]
        kept = self._by_its_text(record[_BEFORE_TEXT:end])
        return kept.algorithm, _unpacked(kept, record[1], record[end:])

    def _made(self, limit: Limit) -> Kept:
        kept = self._by_its_text(limit_text(limit))
        # The text has neither shares nor the longest wait.
        if isinstance(limit, Concurrency) and limit.shares:
            return Kept(limit, algorithm_for(limit, self._origin), kept.form)
        if isinstance(limit, LeakyQueue) and isinstance(kept.algorithm, LeakyQueueAlgorithm):
            return Kept(limit, kept.algorithm.asked_under(limit), kept.form)
        return kept

    def _by_its_text(self, text: bytes) -> Kept:
        kept = self._by_text.get(text)
        if kept is None:
            if len(self._by_text) >= _MAX_LIMITS:
                self._by_text.clear()
                self._by_identity.clear()
            limit = limit_of(text)
            algorithm = algorithm_for(limit, self._origin)
            kept = self._by_text[text] = Kept(limit, algorithm, form_of(limit))
        return kept


def prefix(limit: Limit, kind: int) -> bytes:
    """Return the start of a record under *limit* with a state of *kind*."""
    text = limit_text(limit)
    return bytes((len(text), kind)) + text


def _packed(form: Form | None, entry: Entry) -> tuple[int, bytes]:
    state, holds, kept_until = entry
    if not holds and not kept_until:
        try:
            if form is not None:
                return FIXED, form.struct.pack(*form.words(state))
            if isinstance(state, Log):
                return LOG, _packed_log(state)
        except (TypeError, OverflowError, struct.error):
            pass  # a counter in debt has two numbers, or one of more than 64 bits
    if isinstance(state, Log):
        state = [state.high, state.debt, state.times[state.head :], state.units[state.head :]]
    elif isinstance(state, Slots):
        state = [state.leases, state.claims, state.kept]
    return JSON, json.dumps([state, holds, kept_until], separators=(",", ":")).encode("ascii")


def _packed_log(log: Log) -> bytes:
    times, units = array("q", log.times[log.head :]), array("q", log.units[log.head :])
    return _LOG.pack(log.high, log.debt, len(times)) + times.tobytes() + units.tobytes()


def _unpacked(kept: Kept, kind: int, data: bytes) -> Entry:
    try:
        if kind == FIXED and kept.form is not None and len(data) == kept.form.struct.size:
            words = kept.form.struct.unpack(data)
            return Entry(_checked(kept.limit, kept.form.state(words)), _NO_HOLDS)
        if kind == LOG and isinstance(kept.limit, SlidingWindowLog):
            high, debt, count = _LOG.unpack_from(data)
            numbers = array("q", data[_LOG.size :])
            return Entry(_log(high, debt, list(numbers[:count]), list(numbers[count:])), _NO_HOLDS)
        if kind == JSON:
            state, holds, kept_until = json.loads(data)
            held = {str(name): _hold(hold) for name, hold in holds.items()}
            checked = None if state is None else _checked(kept.limit, state)
            return Entry(checked, held, int(kept_until))
    except (struct.error, ArithmeticError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("a record is damaged") from error
    raise ValueError(f"a record has the kind {kind}")


def _checked(limit: Limit, state: State) -> State:
    """Return *state*, as it was read or parsed from JSON, as its algorithm defines it."""
    match limit:
        case PacedLimit():
            return int(state) if isinstance(state, int) else (int(state[0]), int(state[1]))
        case FixedWindow():
            index, count = state
            return int(index), _counted(count)
        case SlidingWindowCounter():
            index, counts = state
            if len(counts) != limit.subwindows + 1:
                raise ValueError("a count for each subwindow is missing")
            return int(index), tuple(map(_counted, counts))
        case LeakyQueue():
            ends, vacancies, since = state
            places = tuple([Vacancy(int(start), _counted(n)) for start, n in vacancies])
            return Line(int(ends), places, None if since is None else int(since))
        case SlidingWindowLog():
            high, debt, times, units = state
            return _log(int(high), int(debt), list(map(int, times)), list(map(int, units)))
        case _:
            return _slots(state)


def _hold(numbers: Any) -> Hold:
    amount, expires_ns, lasts_ns, expiry = map(_counted, numbers)
    return Hold(amount, expires_ns, lasts_ns, Expiry(expiry))


def _counted(count: Any) -> int:
    number = int(count)
    if number < 0:
        raise ValueError("a count is negative")
    return number


def _log(high: int, debt: int, times: list[int], units: list[int]) -> Log:
    if len(times) != len(units) or debt < 0 or (debt and not units):
        raise ValueError("a log is damaged")
    if units and (min(units) < 1 or times != sorted(times) or times[-1] > high):
        raise ValueError("a log is out of order")
    log = Log(high)
    log.times, log.units, log.total, log.debt = times, units, sum(units), debt
    return log


def _slots(state: Any) -> Slots:
    """Return leases and claims from what JSON has of them."""
    leases, claims, kept = state
    held = {
        str(name): Lease(int(end), None if part is None else str(part), int(lasts))
        for name, (end, part, lasts) in leases.items()
    }

    def claim(numbers: Any) -> Claim:
        return Claim(*map(_counted, numbers))

    return Slots(
        held,
        {str(part): claim(one) for part, one in claims.items()},
        {str(part): tuple([claim(one) for one in many]) for part, many in kept.items()},
    )
