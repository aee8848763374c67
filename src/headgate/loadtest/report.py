"""A load test and its report, as text and as JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.loadtest.answers import AnswerReader
from headgate.loadtest.judgement import CLOCK_ERROR_NS, Clocks, Judgement, judge
from headgate.loadtest.record import Result
from headgate.loadtest.target import HARD, UNASKED, Load
from headgate.terminal import duration, table
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.loadtest.client import Sender
    from headgate.loadtest.limit_under_test import LimitUnderTest
    from headgate.loadtest.record import Record
    from headgate.loadtest.target import Target


_PERCENTILES: Final = ("p50", "p90", "p99", "max")


class Latency(NamedTuple):
    """Percentiles of durations, in nanoseconds."""

    answers: int
    p50: int
    p90: int
    p99: int
    most: int

    def as_json(self) -> dict[str, float | int]:
        """Return them in seconds."""
        seconds = [value / 1e9 for value in self[1:]]
        return {"count": self.answers} | dict(zip(_PERCENTILES, seconds, strict=True))


def latency_of(waits_ns: Sequence[int]) -> Latency | None:
    """Return the percentiles of *waits_ns*, the shortest first; None without any.

    The p90 is the shortest duration that nine in ten do not exceed.
    """
    count = len(waits_ns)
    if not count:
        return None
    p50, p90, p99 = (waits_ns[-(-count * percent // 100) - 1] for percent in (50, 90, 99))
    return Latency(count, p50, p90, p99, waits_ns[-1])


LATE_NS: Final = 50 * MILLISECOND
"""The delay after which a request counts as late."""

_MANY_LATE: Final = 0.1
_BUSY: Final = 0.85
_MOST_CAUSES: Final = 5
_MEANINGS: Final = {
    "denied": "the decision and the network",
    "from schedule": "all, from their due times",
}
_ANSWERED: Final = (Result.ALLOWED, Result.DENIED, Result.ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Report:
    """The report on *test*. If *is_cut_short*, it was stopped before its end."""

    test: LoadTest
    record: Record
    judgement: Judgement
    is_cut_short: bool = False

    def latencies(self) -> dict[str, Latency]:
        """Return the latencies by kind of request."""
        record = self.record
        found = {
            "all": latency_of(record.waits_ns(*_ANSWERED)),
            "denied": latency_of(record.waits_ns(Result.DENIED, Result.ELSEWHERE)),
            "from schedule": latency_of(record.waits_ns(*_ANSWERED, from_intended=True)),
        }
        return {name: latency for name, latency in found.items() if latency is not None}

    def notes(self) -> list[str]:
        """Return remarks for the reader."""
        remark = self.test.tested.remark
        notes = [remark] if remark else []
        notes += self._notes_on_sending() + self._notes_on_answers()
        used = {caller: units for caller, units in self.record.used_before.items() if units}
        if used:
            most = max(used.values())
            notes.append(
                f"the counter was in use at the start: {most:,} of {self.test.tested.text}; the "
                "verdict considers that; {run} in a key makes new callers each time"
            )
        return notes

    def _notes_on_sending(self) -> list[str]:
        record, load = self.record, self.test.load
        notes = ["stopped before the end"] if self.is_cut_short else []
        slowest = self.test.tested.slowest
        if self.judgement.holds and slowest.period_ns > 2 * record.seconds * SECOND:
            notes.append(
                f"{slowest} takes {duration(slowest.period_ns)} to refill, and the test took "
                f"{record.seconds:.1f} s: it tested the burst, and little of the rate; "
                f"{_needed(2 * slowest.period_ns)}"
            )
        late = sum(
            sent - due > LATE_NS for sent, due in zip(record.sent, record.intended, strict=True)
        )
        if late + record.unsent > _MANY_LATE * (len(record) + record.unsent):
            missing = f", and {record.unsent:,} not at all" if record.unsent else ""
            text = f"{late:,} of {len(record):,} requests were sent more than 50 ms late{missing}"
            why = (
                "this client is too slow, and adds to latencies; lower --rate"
                if record.busy > _BUSY
                else f"all {load.connections} connections were in use, or this machine is busy; "
                "lower --rate, or raise --connections"
            )
            notes.append(f"{text}: {why}")
        return notes

    def _notes_on_answers(self) -> list[str]:
        record = self.record
        denied = record.count(Result.DENIED)
        notes = []
        if record.elsewhere:
            causes = ", ".join(
                f"{count:,} by {name}" for name, count in record.elsewhere.most_common(_MOST_CAUSES)
            )
            notes.append(f"denied by something else: {causes}")
        if record.without_retry_after:
            notes.append(f"{record.without_retry_after:,} of {denied:,} denials: no Retry-After")
        if record.with_bad_retry_after:
            notes.append(
                f"{record.with_bad_retry_after:,} of {denied:,} denials: a Retry-After that is "
                "not a number of at least 1"
            )
        return notes

    def as_json(self) -> dict[str, Any]:
        """Return the report for programs, the verdict first."""
        test, record, judgement = self.test, self.record, self.judgement
        return {
            "holds": judgement.holds,
            "verdict": judgement.line,
            "allows_less": judgement.is_short,
            "url": test.target.url,
            "limit": test.tested.text,
            "rule_id": test.tested.rule_id,
            "cost": test.tested.cost,
            "callers": test.load.callers,
            "rate": float(test.load.rate),
            "seconds": record.seconds,
            "sent": len(record),
            "unsent": record.unsent,
            "allowed": record.count(Result.ALLOWED),
            "allowed_per_second": record.count(Result.ALLOWED) / (record.seconds or 1.0),
            "configured_per_second": float(test.tested.per_second * test.load.callers),
            "at_most": judgement.at_most,
            "due": judgement.due,
            "denied": record.count(Result.DENIED),
            "denied_elsewhere": dict(record.elsewhere.most_common()),
            "failures": dict(record.failures.most_common()),
            "statuses": {str(status): count for status, count in sorted(record.statuses.items())},
            "latency": {name: one.as_json() for name, one in self.latencies().items()},
            "notes": self.notes(),
        }


def text_report(report: Report) -> str:
    """Return the report for people; the verdict is the last line."""
    test = report.test
    load, tested = test.load, test.tested
    callers = f" by {load.callers:,} callers in turn" if load.callers > 1 else ""
    rule = f" (rule {tested.rule_id})" if tested.rule_id else ""
    each = f", each of {tested.cost} units" if tested.cost > 1 else ""
    sending = f"{float(load.rate):,g}/s for {load.duration_ns / SECOND:g} s{callers}{each}"
    lines = [
        f"{test.target.method} {test.target.url}, {sending}",
        f"limit: {tested.text}{rule}{_beyond(tested.extra)}",
        "",
        _counts(report),
        *(["", _latencies(latencies)] if (latencies := report.latencies()) else []),
        *(f"note: {note}" for note in report.notes()),
        "",
        report.judgement.line,
    ]
    return "\n".join(lines)


def _needed(duration_ns: int) -> str:
    """The option for a test of *duration_ns*."""
    if duration_ns > HARD.duration_ns:
        most = duration(HARD.duration_ns)
        return f"a full test would need {duration(duration_ns)}, and the longest is {most}"
    is_long = duration_ns > UNASKED.duration_ns
    return f"use --duration {duration(duration_ns)}{' --yes' if is_long else ''}"


def _beyond(extra: tuple[int, ...]) -> str:
    return f", and up to {max(extra):,} beyond it, as its accuracy allows" if any(extra) else ""


def _counts(report: Report) -> str:
    record = report.record
    seconds, allowed = record.seconds or 1.0, record.count(Result.ALLOWED)
    rows = {
        "sent": len(record),
        "allowed": allowed,
        "  allowed at most": report.judgement.at_most,
        "  after the burst": _after_burst(report),
        "denied": record.count(Result.DENIED),
        "denied elsewhere": record.count(Result.ELSEWHERE),
        "failed": record.count(Result.FAILED),
        **{f"  {cause}": n for cause, n in record.failures.most_common(_MOST_CAUSES)},
    }
    cells = [
        (name, f"{count:,}", f"{count / seconds:,.1f}")
        for name, count in rows.items()
        if count or name in ("sent", "allowed", "denied")
    ]
    return table(("", "requests", "per second"), cells, numbers=(1, 2))


def _after_burst(report: Report) -> int:
    """Return the number of allowed requests beyond the burst; 0 if the test is too short."""
    record, tested = report.record, report.test.tested
    if tested.burst is None or record.seconds * SECOND < tested.slowest.period_ns:
        return 0
    used = sum(record.used_before.values()) // tested.cost
    at_once = tested.burst * record.caller_count - used
    return max(0, record.count(Result.ALLOWED) - at_once)


def _latencies(latencies: dict[str, Latency]) -> str:
    rows = [
        (name, *(f"{value / MILLISECOND:.2f}" for value in one[1:]), _MEANINGS.get(name, ""))
        for name, one in latencies.items()
    ]
    return table(("latency in ms", *_PERCENTILES, ""), rows, numbers=range(1, 5))


FAR_CLOCK_ERROR_NS: Final = SECOND
"""The difference to the clock of another machine, at most."""


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A load test: *load* on *target*, at *addresses*, under the limits of *tested*.

    *allowed* are statuses of allowed requests besides 200 to 299. If *is_verified*, certificates
    must be valid.
    """

    target: Target
    addresses: tuple[str, ...]
    tested: LimitUnderTest
    load: Load
    allowed: frozenset[int] = frozenset()
    clock_error_ns: int = CLOCK_ERROR_NS
    is_verified: bool = True

    def sender(self) -> Sender:
        """The sender of the load. Raises `MissingPackageError` without aiohttp."""
        from headgate.loadtest.client import Sender

        run, callers = token_hex(4), range(self.load.callers)
        targets = [self.target.of(caller, run) for caller in callers]
        reader = AnswerReader(self.tested, allowed=self.allowed)
        return Sender(targets, self.addresses, self.load, reader, is_verified=self.is_verified)

    def judge(self, record: Record) -> Judgement:
        """Return the verdict after *record*."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        return judge(record, self.tested, Clocks(offset_ns, self.clock_error_ns))
