"""The verdict of a load test: the limit holds, does not hold, or it is unknown.

It does not hold if a caller was allowed more than the limit can allow, whenever the decisions were
made. Clocks may differ: the server's may run faster than this one, by DRIFT_PPM at most; and where
windows are aligned, it may also be off by the given clock error. Both only increase what is
possible.

A failed request may have been allowed: the limit holds only if it would hold then too.

A limit that allows clearly less than the same algorithm allows of the same requests holds, and the
verdict says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.algorithms import algorithm_for
from headgate.loadtest.record import Record, Result, Times
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit
    from headgate.loadtest.limit_under_test import LimitUnderTest


# The mathematics of the verdict.
#
# A client knows only that a decision was made between sending the request and receiving the
# response. So the question is: are there moments, one in each of these intervals, at which the
# limit could have allowed all of them?
#
# Sort the times of sending and of receiving separately: whatever the true moments were, the k-th of
# them lies between the k-th sending and the k-th response. (At least k requests were decided by
# then, so k were sent before; the same from the other end.) Each decision is now made as early as
# the limit allows, starting with an unused counter:
#
#     moment(k)  =  the first instant from max(sent(k), moment(k - 1)) on at which it fits
#
# In every algorithm a unit weighs less the longer ago it was taken: bucket, window, log and
# estimated window alike. So earliest is best: no other choice leaves more room at any later time,
# and if `moment(k) > answered(k)` for some k, no choice would have done. The limit was exceeded,
# whatever the network and the scheduler did. This covers every interval of every length in one
# pass. If all moments are found, the responses are consistent with the limit.
#
# The arithmetic is that of `headgate.algorithms` itself, which has its own proofs and oracles.


class Excess(NamedTuple):
    """An interval in which more requests were *allowed* than *at_most* possible."""

    allowed: int
    at_most: int
    began_ns: int
    ended_ns: int


class _Counters:
    """An unused counter for each of *limits*, with times from *origin*."""

    def __init__(self, limits: Sequence[Limit], cost: int, origin: int) -> None:
        self._algorithms: list[Algorithm[Any]] = [algorithm_for(limit, origin) for limit in limits]
        self._states: list[Any] = [None] * len(limits)
        self._cost = cost

    def first_fit(self, now: int) -> int:
        """Return the first moment from *now* on at which a request fits. Later calls must not be
        before it: a log forgets what has left by then."""
        cost, pairs = self._cost, list(zip(self._algorithms, self._states, strict=True))
        while wait := max([algorithm.wait(state, cost, now) or 0 for algorithm, state in pairs]):
            now += wait
        return now

    def fits(self, now: int) -> bool:
        """Return True if a request fits at *now*."""
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
    """Return an interval in which allowed requests of *cost* units exceed *limits*, or None.

    *sent* and *answered* are equally many times, in nanoseconds, in any order. It is the whole
    time, if that is too much, else the shortest interval that ends at the first excess.
    """
    begins, ends = sorted(sent), sorted(answered)
    place = _first_late(limits, cost, begins, ends)
    if place is None:
        return None
    whole = most_between(limits, cost, begins[0], ends[-1], len(begins))
    if whole < len(begins):
        return Excess(len(begins), whole, begins[0], ends[-1])
    begins, ends = begins[: place + 1], ends[: place + 1]
    least, most = 0, place  # the shortest interval that ends here and is too much
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
    """Return the number of requests that fit between two moments, both included, up to *most*."""
    counters, now = _Counters(limits, cost, began_ns), began_ns
    for count in range(most):
        now = counters.first_fit(now)
        if now > ended_ns:
            return count
        counters.take(now)
    return most


def due_of(limits: Sequence[Limit], cost: int, moments: Iterable[int], used: int = 0) -> int:
    """Return the number of requests at *moments* that fit, if *used* units were in use at
    the first of them and there is no other traffic."""
    moments = sorted(moments)
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
    """Return the place of the first request that does not fit before its response, or None."""
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
"""The millionths by which the server's clock may run faster: the most that NTP adjusts."""

CLOCK_ERROR_NS: Final = 50 * MILLISECOND
"""The difference between the server's clock and this one, at most."""

SHORT_OF: Final = 0.1
"""The share of the expected requests that may be missing without a remark."""

_MOST_COUNTED: Final = 1_000_000
"""The possible requests of one caller that are counted, at most."""

_GRAIN_NS: Final = MICROSECOND
"""The resolution of time in stores."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict: the limit *holds*, or None if that is unknown; *line* is the verdict in words.

    *at_most* is the number of requests of all callers that could have been allowed, *due* the
    expected number. If *is_short*, the limit holds and allows clearly less than expected.
    """

    line: str
    holds: bool | None
    at_most: int = 0
    due: int = 0
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks: *offset_ns* converts recorded times to times since the epoch."""

    offset_ns: int = 0
    error_ns: int = CLOCK_ERROR_NS
    drift_ppm: int = DRIFT_PPM


def judge(record: Record, tested: LimitUnderTest, clocks: Clocks) -> Judgement:
    """Return the verdict on *tested* after *record*."""
    at_most, due = _at_most(record, tested, clocks), _due(record, tested, clocks)
    verdict = partial(Judgement, at_most=at_most, due=due)
    worst = _worst(record.by_caller(Result.ALLOWED), tested, clocks)
    if worst is not None:
        return verdict(_broken(record, *worst, tested, clocks), holds=False)
    trouble = _trouble(record, tested, clocks)
    count, callers = record.count(Result.ALLOWED), record.caller_count
    if trouble is not None:
        return verdict(f"unknown: {trouble}", holds=None)
    if count + record.count(Result.FAILED) < due * (1 - SHORT_OF) - callers:
        if not count and not any(record.used_at_most.values()):
            return verdict(_closed(record, due), holds=None)
        return verdict(_short(record, count, due), holds=True, is_short=True)
    who = f" for each of {callers:,} callers" if callers > 1 else ""
    held = f"{count:,} allowed in {record.seconds:.2f} s; the limit allows at most {at_most:,}"
    return verdict(f"holds{who}: {held}{_missing(record)}", holds=True)


def _worst(
    allowed: Mapping[int, Times], tested: LimitUnderTest, clocks: Clocks
) -> tuple[int, Excess] | None:
    """Return the caller with the largest excess, and that; None if there is none."""
    found: list[tuple[int, Excess]] = []
    for caller, times in allowed.items():
        sent, answered = _possible(times, tested, clocks)
        beyond = excess(tested.ceilings, tested.cost, sent, answered)
        if beyond is not None:
            found.append((caller, beyond))
    return max(found, key=lambda one: one[1].allowed - one[1].at_most, default=None)


def _possible(times: Times, tested: LimitUnderTest, clocks: Clocks) -> tuple[list[int], list[int]]:
    """Return the earliest and the latest times of decisions on the server's clock."""
    first = min(times.sent, default=0)
    slack = _GRAIN_NS + (clocks.error_ns if tested.is_aligned else 0)

    def read(moments: Iterable[int], shift: int) -> list[int]:
        start = first + clocks.offset_ns + shift
        faster = 1_000_000 + clocks.drift_ppm
        return [start + (one - first) * faster // 1_000_000 for one in moments]

    return read(times.sent, -slack), read(times.answered, slack)


def _at_most(record: Record, tested: LimitUnderTest, clocks: Clocks) -> int:
    """Return the number of requests that could have been allowed to all callers."""
    total = 0
    for times in record.by_caller(*Result).values():
        sent, answered = _possible(times, tested, clocks)
        bound = 2 * int(tested.due_in(max(answered) - min(sent))) + 10
        bound = min(bound + 2 * max(tested.extra, default=0), _MOST_COUNTED)
        total += most_between(tested.ceilings, tested.cost, min(sent), max(answered), bound)
    return total


def _due(record: Record, tested: LimitUnderTest, clocks: Clocks) -> int:
    """Return the number of requests that the limit should have allowed.

    It is the least number over the earliest and the latest possible decisions and, for aligned
    windows, over clocks that differ.
    """
    total = 0
    errors = (-clocks.error_ns, clocks.error_ns) if tested.is_aligned else (0,)
    for caller, times in record.by_caller(Result.ALLOWED, Result.DENIED).items():
        used = record.used_at_most.get(caller, 0)
        total += min(
            due_of(
                tested.limits,
                tested.cost,
                [one + clocks.offset_ns + error for one in moments],
                used,
            )
            for error in errors
            for moments in times
        )
    return total


def _trouble(record: Record, tested: LimitUnderTest, clocks: Clocks) -> str | None:
    """Return the reason why the verdict is unknown, if the limit was not exceeded."""
    if not len(record):
        return "there was no response"
    is_denying = record.count(Result.DENIED) > 0
    if record.count(Result.FAILED):
        maybe = record.by_caller(Result.ALLOWED, Result.FAILED)
        if not is_denying or _worst(maybe, tested, clocks) is not None:
            return _failed(record)
    if is_denying:
        return None
    if record.elsewhere:
        names = ", ".join(name for name, _ in record.elsewhere.most_common(3))
        return f"all {record.count(Result.ELSEWHERE):,} denials were by something else ({names})"
    return (
        f"nothing was denied: {record.count(Result.ALLOWED):,} requests are not more than "
        f"{tested.text} allows; send more (--rate, --duration)"
    )


def _failed(record: Record) -> str:
    found = record.failures.most_common(3)
    causes = ", ".join(f"{count:,} x {cause}" for cause, count in found)
    failed = f"{record.count(Result.FAILED):,} of {len(record):,} requests failed ({causes})"
    for cause, _ in found:
        status = cause.removeprefix("status ")
        if status.isdecimal() and 300 <= int(status) < 500:  # the status of an app may mean that
            return f"{failed}; if {status} means allowed here, give --ok {status}"
    return failed


def _broken(
    record: Record, caller: int, found: Excess, tested: LimitUnderTest, clocks: Clocks
) -> str:
    seconds = (found.ended_ns - found.began_ns) / SECOND
    who = f" to caller {caller + 1}" if record.caller_count > 1 else ""
    if_right = ""
    if tested.is_aligned:
        if_right = f" (if clocks differ by no more than {clocks.error_ns / SECOND:g} s)"
    return (
        f"does NOT hold: {found.allowed:,} allowed{who} in {seconds:.2f} s; the limit allows "
        f"at most {found.at_most:,}{if_right}"
    )


def _closed(record: Record, due: int) -> str:
    return (
        f"unknown: all of {len(record):,} requests were denied, where about {due:,} should "
        "have been allowed"
    )


def _short(record: Record, count: int, due: int) -> str:
    seconds = record.seconds or 1.0
    why = "is it a lower limit, or was the counter in use at the start?"
    if any(record.used_before.values()):
        why = "do other clients use the same counter?"
    return (
        f"holds, but allows less than configured: {count:,} of about {due:,}, "
        f"{count / seconds:.1f}/s of about {due / seconds:.1f}/s ({why}){_missing(record)}"
    )


def _missing(record: Record) -> str:
    """Return what was not tested; empty if nothing."""
    failed, parts = record.count(Result.FAILED), []
    if failed:
        parts.append(f"{failed:,} of {len(record):,} requests failed")
    if record.unsent:
        parts.append(f"{record.unsent:,} could not be sent in time")
    return f"; {', '.join(parts)}" if parts else ""
