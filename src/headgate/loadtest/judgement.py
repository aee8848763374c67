"""The verdict: does the limit hold, as far as what was recorded can tell?

It does not hold if some caller was admitted more than the limit can admit at all (`history`), be
the moments of decision where they may. Clocks may differ: the server's may run faster than this
one, by DRIFT_PPM at most; and where windows begin at the same moment for everybody, it may also
tell another time, by the clock error that is given. Both make more possible, never less.

A request that failed may have been admitted: only if it would still hold then is it said to.

To hold is not to refuse everything: a limit that admits clearly less than the same algorithm admits
of the same requests is told as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import algorithm_for
from headgate.loadtest.record import Fate, Record, Stretch
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit
    from headgate.loadtest.options import Aim


# Could a limit have admitted this? The mathematics of the verdict.
#
# All that a client knows of a decision is that it was made between the moment at which the request
# was sent and the moment at which the answer came. So the question is: are there moments, one in
# each of these stretches of time, at which the limit could have admitted all of them?
#
# Sort what was sent and what was answered, each by itself: whatever the true moments were, the k-th
# of them lies between the k-th sending and the k-th answer. (At least k requests were decided by
# then, so k were sent before; the same from the other end.) Each decision is now made as early as
# the limit lets it, counted from a counter that nobody has used:
#
#     moment(k)  =  the first instant from max(sent(k), moment(k - 1)) on at which it fits
#
# In every algorithm a unit weighs less the longer ago it was taken: bucket, window, log and
# estimated window alike. So earliest is best: no other choice leaves more room at any later time,
# and if `moment(k) > answered(k)` for some k, no choice would have done. The limit was exceeded,
# whatever the network and the scheduler did. This covers every interval of every length in one
# pass. If all moments are found, the limit may well have been kept: nothing in the answers says
# otherwise.
#
# The arithmetic is that of `headgate.algorithms` itself, which has its own proofs and oracles.


class Excess(NamedTuple):
    """So many were *admitted* in a stretch of time in which *at_most* so many could have been."""

    admitted: int
    at_most: int
    began_ns: int
    ended_ns: int


class _Counters:
    """A counter for each of *limits*, none of them used, counted from *origin*."""

    def __init__(self, limits: Sequence[Limit], cost: int, origin: int) -> None:
        self._algorithms: list[Algorithm[Any]] = [algorithm_for(limit, origin) for limit in limits]
        self._states: list[Any] = [None] * len(limits)
        self._cost = cost

    def first_fit(self, now: int) -> int:
        """The first moment from *now* on at which a request fits; there is no way back from it: a
        log forgets what has left by then."""
        cost, pairs = self._cost, list(zip(self._algorithms, self._states, strict=True))
        while wait := max([algorithm.wait(state, cost, now) or 0 for algorithm, state in pairs]):
            now += wait
        return now

    def fits(self, now: int) -> bool:
        """Whether a request fits at *now*."""
        pairs = zip(self._algorithms, self._states, strict=True)
        return all(algorithm.wait(state, self._cost, now) == 0 for algorithm, state in pairs)

    def take(self, now: int, amount: int | None = None) -> None:
        """Charge a request, or *amount*, at *now*."""
        cost = self._cost if amount is None else amount
        for place, algorithm in enumerate(self._algorithms):
            self._states[place] = algorithm.charge(self._states[place], cost, now)


def excess(
    limits: Sequence[Limit], cost: int, sent: Iterable[int], answered: Iterable[int]
) -> Excess | None:
    """Where requests of *cost* units, all admitted, are more than *limits* allow; None: nowhere.

    *sent* and *answered* are as many moments, in nanoseconds, in any order. What is found is the
    whole, if the whole is too much, else the shortest stretch that ends where it first becomes so.
    """
    begins, ends = sorted(sent), sorted(answered)
    place = _first_late(limits, cost, begins, ends)
    if place is None:
        return None
    whole = most_between(limits, cost, begins[0], ends[-1], len(begins))
    if whole < len(begins):
        return Excess(len(begins), whole, begins[0], ends[-1])
    begins, ends = begins[: place + 1], ends[: place + 1]
    least, most = 0, place  # of the stretches that end here, the shortest that is too much
    while least < most:
        middle = (least + most + 1) // 2
        if _first_late(limits, cost, begins[middle:], ends[middle:]) is None:
            most = middle - 1
        else:
            least = middle
    count = place + 1 - least
    could = most_between(limits, cost, begins[least], ends[-1], count - 1)
    return Excess(count, could, begins[least], ends[-1])


def most_between(
    limits: Sequence[Limit], cost: int, began_ns: int, ended_ns: int, most: int
) -> int:
    """How many requests fit between two moments, both included; *most* if it is as many or more."""
    counters, now = _Counters(limits, cost, began_ns), began_ns
    for count in range(most):
        now = counters.first_fit(now)
        if now > ended_ns:
            return count
        counters.take(now)
    return most


def due_of(limits: Sequence[Limit], cost: int, asked: Iterable[int], used: int = 0) -> int:
    """How many of the requests that were decided at the moments *asked* fit, if *used* units were
    in use at the first of them and nobody else has asked."""
    moments = sorted(asked)
    if not moments:
        return 0
    counters, count = _Counters(limits, cost, moments[0]), 0
    if used:
        counters.take(moments[0], used)
    for now in moments:
        if counters.fits(now):
            counters.take(now)
            count += 1
    return count


def _first_late(
    limits: Sequence[Limit], cost: int, begins: Sequence[int], ends: Sequence[int]
) -> int | None:
    """The place of the first request that no longer fits before its answer; None: all fit."""
    if not begins:
        return None
    counters, now = _Counters(limits, cost, begins[0]), begins[0]
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        now = counters.first_fit(max(begin, now))
        if now > end:
            return place
        counters.take(now)
    return None


DRIFT_PPM: Final = 500
"""By how many millionths the server's clock may run faster: what a clock that is being set right
does at most."""

CLOCK_ERROR_NS: Final = 50 * MILLISECOND
"""By how much the server's clock may tell another time than ours."""

SHORT_OF: Final = 0.1
"""What share of what is due a limit may fall short of before that is said."""

_MOST_COUNTED: Final = 1_000_000
"""How many requests of one caller are counted that could have been admitted."""

_GRAIN_NS: Final = MICROSECOND
"""Stores cut the time to it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the limit *holds*; None: there is no telling. *line* says it in one line.

    *at_most* is how many requests could have been admitted in all, to all callers together, *due*
    how many were to be expected. *is_short*: it holds, and admits clearly less than that.
    """

    line: str
    holds: bool | None
    at_most: int = 0
    due: int = 0
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the times on record are read: *offset_ns* makes them time since the epoch."""

    offset_ns: int = 0
    error_ns: int = CLOCK_ERROR_NS
    drift_ppm: int = DRIFT_PPM


def judge(record: Record, aim: Aim, clocks: Clocks) -> Judgement:
    """What is to be said of *aim* after *record*."""
    at_most, due = _at_most(record, aim, clocks), _due(record, aim, clocks)
    told = partial(Judgement, at_most=at_most, due=due)
    worst = _worst(record.by_caller(Fate.ADMITTED), aim, clocks)
    if worst is not None:
        return told(_broken(record, *worst, aim, clocks), holds=False)
    trouble = _trouble(record, aim, clocks)
    count, callers = record.count(Fate.ADMITTED), record.caller_count
    if trouble is not None:
        return told(f"cannot tell: {trouble}", holds=None)
    if count + record.count(Fate.FAILED) < due * (1 - SHORT_OF) - callers:
        if not count and not any(record.used_at_most.values()):
            return told(_closed(record, due), holds=None)
        return told(_short(record, count, due), holds=True, is_short=True)
    who = f" for each of {callers:,} callers" if callers > 1 else ""
    held = f"{count:,} admitted in {record.seconds:.2f} s; the limit allows at most {at_most:,}"
    return told(f"holds{who}: {held}{_missing(record)}", holds=True)


def _worst(admitted: Mapping[int, Stretch], aim: Aim, clocks: Clocks) -> tuple[int, Excess] | None:
    """The caller who got most beyond what is possible, and what; None if nobody did."""
    found: list[tuple[int, Excess]] = []
    for caller, stretch in admitted.items():
        sent, answered = _possible(stretch, aim, clocks)
        beyond = excess(aim.ceilings, aim.cost, sent, answered)
        if beyond is not None:
            found.append((caller, beyond))
    return max(found, key=lambda one: one[1].admitted - one[1].at_most, default=None)


def _possible(stretch: Stretch, aim: Aim, clocks: Clocks) -> tuple[list[int], list[int]]:
    """The moments between which decisions were made on the server's clock, at the widest."""
    first = min(stretch.sent, default=0)
    slack = _GRAIN_NS + (clocks.error_ns if aim.is_aligned else 0)

    def read(moments: Iterable[int], shift: int) -> list[int]:
        start = first + clocks.offset_ns + shift
        faster = 1_000_000 + clocks.drift_ppm
        return [start + (one - first) * faster // 1_000_000 for one in moments]

    return read(stretch.sent, -slack), read(stretch.answered, slack)


def _at_most(record: Record, aim: Aim, clocks: Clocks) -> int:
    """How many could have been admitted in all, from each caller's first request to the last."""
    total = 0
    for stretch in record.by_caller(*Fate).values():
        sent, answered = _possible(stretch, aim, clocks)
        bound = 2 * int(aim.due_in(max(answered) - min(sent))) + 10
        bound = min(bound + 2 * max(aim.extra, default=0), _MOST_COUNTED)
        total += most_between(aim.ceilings, aim.cost, min(sent), max(answered), bound)
    return total


def _due(record: Record, aim: Aim, clocks: Clocks) -> int:
    """How many of the requests that came as far as the limit it should have admitted.

    It is the fewest of what they are if all were decided as early, and as late, as they may have
    been; where it matters what time it is, on clocks that differ.
    """
    total = 0
    errors = (-clocks.error_ns, clocks.error_ns) if aim.is_aligned else (0,)
    for caller, stretch in record.by_caller(Fate.ADMITTED, Fate.REFUSED).items():
        used = record.used_at_most.get(caller, 0)
        total += min(
            due_of(aim.limits, aim.cost, [one + clocks.offset_ns + error for one in moments], used)
            for error in errors
            for moments in stretch
        )
    return total


def _trouble(record: Record, aim: Aim, clocks: Clocks) -> str | None:
    """Why nothing can be said of a limit that was not seen to be exceeded."""
    if not len(record):
        return "nothing was answered"
    is_refusing = record.count(Fate.REFUSED) > 0
    if record.count(Fate.FAILED):
        maybe = record.by_caller(Fate.ADMITTED, Fate.FAILED)
        if not is_refusing or _worst(maybe, aim, clocks) is not None:
            return _failed(record)
    if is_refusing:
        return None
    if record.elsewhere:
        names = ", ".join(name for name, _ in record.elsewhere.most_common(3))
        return f"all {record.count(Fate.ELSEWHERE):,} refusals were by something else ({names})"
    return (
        f"nothing was refused: {record.count(Fate.ADMITTED):,} requests are not more than "
        f"{aim.text} admits; send more (--rate, --duration)"
    )


def _failed(record: Record) -> str:
    found = record.failures.most_common(3)
    causes = ", ".join(f"{count:,} x {cause}" for cause, count in found)
    told = f"{record.count(Fate.FAILED):,} of {len(record):,} requests failed ({causes})"
    for cause, _ in found:
        status = cause.removeprefix("status ")
        if status.isdecimal() and 300 <= int(status) < 500:  # an app may well mean that
            return f"{told}; if {status} means admitted here, give --ok {status}"
    return told


def _broken(record: Record, caller: int, found: Excess, aim: Aim, clocks: Clocks) -> str:
    seconds = (found.ended_ns - found.began_ns) / SECOND
    who = f" to caller {caller + 1}" if record.caller_count > 1 else ""
    if_right = ""
    if aim.is_aligned:
        if_right = f" (if clocks differ by no more than {clocks.error_ns / SECOND:g} s)"
    return (
        f"does NOT hold: {found.admitted:,} admitted{who} in {seconds:.2f} s; the limit allows "
        f"at most {found.at_most:,}{if_right}"
    )


def _closed(record: Record, due: int) -> str:
    return (
        f"cannot tell: all of {len(record):,} requests were refused, where about {due:,} should "
        "have been admitted"
    )


def _short(record: Record, count: int, due: int) -> str:
    seconds = record.seconds or 1.0
    why = "is it a lower limit, or was the counter not empty at the start?"
    if any(record.used_before.values()):
        why = "does somebody else use the same counter?"
    return (
        f"holds, but admits less than configured: {count:,} of about {due:,}, "
        f"{count / seconds:.1f}/s of about {due / seconds:.1f}/s ({why}){_missing(record)}"
    )


def _missing(record: Record) -> str:
    """What was to be tested and was not; empty if nothing."""
    failed, told = record.count(Fate.FAILED), []
    if failed:
        told.append(f"{failed:,} of {len(record):,} requests failed")
    if record.unsent:
        told.append(f"{record.unsent:,} could not be sent in time")
    return f"; {', '.join(told)}" if told else ""
