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
from typing import TYPE_CHECKING, Final

from headgate.loadtest.history import Excess, due_of, excess, most_between
from headgate.loadtest.record import Fate, Record, Stretch
from headgate.units import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.loadtest.aims import Aim

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
