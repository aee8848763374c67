"""What a load test has found, as text for people and as JSON for programs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.loadtest.answers import AnswerReader, shown
from headgate.loadtest.judgement import CLOCK_ERROR_NS, Clocks, Judgement, judge
from headgate.loadtest.options import Load
from headgate.loadtest.record import Fate
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.loadtest.client import Sender
    from headgate.loadtest.options import Aim, Target
    from headgate.loadtest.record import Record


# How long things took: percentiles of what was measured, none of it estimated.


class Latency(NamedTuple):
    """So many took so long, in nanoseconds."""

    answers: int
    p50: int
    p90: int
    p99: int
    most: int

    def as_json(self) -> dict[str, float | int]:
        """The same in seconds."""
        return {
            "count": self.answers,
            "p50": self.p50 / 1e9,
            "p90": self.p90 / 1e9,
            "p99": self.p99 / 1e9,
            "max": self.most / 1e9,
        }


def latency_of(waits_ns: Sequence[int]) -> Latency | None:
    """The percentiles of *waits_ns*, the shortest first; None without any.

    The p90 is the shortest wait that nine in ten do not exceed.
    """
    count = len(waits_ns)
    if not count:
        return None
    p50, p90, p99 = (waits_ns[-(-count * percent // 100) - 1] for percent in (50, 90, 99))
    return Latency(count, p50, p90, p99, waits_ns[-1])


LATE_NS: Final = 50 * MILLISECOND
"""A request that is sent so much later than it was due was held up on this side."""

_MANY_LATE: Final = 0.1
_BUSY: Final = 0.85
_MOST_CAUSES: Final = 5
_USUAL_SOURCE: Final = "store"
_MEANINGS: Final = {
    "refused": "   the decision and the way to it",
    "from schedule": "   all, from when they were due",
}
_ANSWERED: Final = (Fate.ADMITTED, Fate.REFUSED, Fate.ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Report:
    """What came of *trial*. *baseline* is what was seen at the path to compare with, if any;
    *is_cut_short*: it was stopped before its end."""

    trial: Trial
    record: Record
    judgement: Judgement
    baseline: Record | None = None
    is_cut_short: bool = False

    def latencies(self) -> dict[str, Latency]:
        """By what they are of; only those there are."""
        record = self.record
        found = {
            "all": latency_of(record.waits_ns(*_ANSWERED)),
            "refused": latency_of(record.waits_ns(Fate.REFUSED, Fate.ELSEWHERE)),
            "from schedule": latency_of(record.waits_ns(*_ANSWERED, from_intended=True)),
        }
        if self.baseline is not None:
            found["baseline"] = latency_of(self.baseline.waits_ns(*_ANSWERED))
        return {name: latency for name, latency in found.items() if latency is not None}

    def notes(self) -> list[str]:
        """What else its reader should know."""
        remark = self.trial.aim.remark
        notes = [remark] if remark else []
        notes += self._notes_on_sending() + self._notes_on_answers() + self._notes_on_decisions()
        used = {caller: units for caller, units in self.record.used_before.items() if units}
        if used:
            most = max(used.values())
            notes.append(
                f"the counter was not empty at the start: {most:,} of {self.trial.aim.text} "
                "were in use, and that is allowed for; {run} in a key makes new callers each time"
            )
        return notes

    def _notes_on_sending(self) -> list[str]:
        record, load = self.record, self.trial.load
        notes = ["stopped before the end"] if self.is_cut_short else []
        slowest = self.trial.aim.slowest
        if self.judgement.holds and slowest.period_ns > 2 * record.seconds * SECOND:
            notes.append(
                f"{slowest} takes {slowest.period_ns / SECOND:,g} s to be whole again, and this "
                f"took {record.seconds:.1f} s: what is admitted at once was tested, and little of "
                "what comes after it; raise --duration"
            )
        late = sum(
            sent - due > LATE_NS for sent, due in zip(record.sent, record.intended, strict=True)
        )
        if late + record.unsent > _MANY_LATE * (len(record) + record.unsent):
            missing = f", and {record.unsent:,} not at all" if record.unsent else ""
            told = f"{late:,} of {len(record):,} requests were sent more than 50 ms late{missing}"
            why = (
                "this side could not keep up, and latencies are partly its own; lower --rate"
                if record.busy > _BUSY
                else f"all {load.connections} connections were in use, or this machine is busy; "
                "lower --rate, or raise --connections"
            )
            notes.append(f"{told}: {why}")
        return notes

    def _notes_on_answers(self) -> list[str]:
        record = self.record
        refused = record.count(Fate.REFUSED)
        notes = []
        if record.elsewhere:
            causes = ", ".join(
                f"{count:,} by {name}" for name, count in record.elsewhere.most_common(_MOST_CAUSES)
            )
            notes.append(f"refused by something else: {causes}")
        if record.without_retry_after:
            notes.append(f"{record.without_retry_after:,} of {refused:,} refusals: no Retry-After")
        if record.with_bad_retry_after:
            notes.append(
                f"{record.with_bad_retry_after:,} of {refused:,} refusals: a Retry-After that is "
                "not a number of at least 1"
            )
        if self.baseline is not None and self.baseline.count(Fate.ADMITTED) < len(self.baseline):
            told = "; expected a path that is not limited and answers 200"
            notes.append(f"not all of the baseline was answered well{told}")
        return notes

    def _notes_on_decisions(self) -> list[str]:
        """What a server told of its decisions, because the requests had a debug token."""
        sources, revisions = self.record.sources, sorted(self.record.revisions)
        notes = []
        if len(revisions) > 1:
            told = shown(", ".join(revisions[:_MOST_CAUSES]))
            notes.append(f"the rules changed while it ran: revisions {told}")
        if set(sources) - {_USUAL_SOURCE}:
            parts = (f"{count:,} by {name}" for name, count in sources.most_common(_MOST_CAUSES))
            notes.append(f"who decided: {shown(', '.join(parts))}")
        return notes

    def as_json(self) -> dict[str, Any]:
        """All of it. What comes first is the verdict."""
        trial, record, judgement = self.trial, self.record, self.judgement
        return {
            "holds": judgement.holds,
            "verdict": judgement.line,
            "admits_less": judgement.is_short,
            "url": trial.target.url,
            "limit": trial.aim.text,
            "rule_id": trial.aim.rule_id,
            "cost": trial.aim.cost,
            "callers": trial.load.callers,
            "rate": float(trial.load.rate),
            "seconds": record.seconds,
            "sent": len(record),
            "unsent": record.unsent,
            "admitted": record.count(Fate.ADMITTED),
            "admitted_per_second": record.count(Fate.ADMITTED) / (record.seconds or 1.0),
            "configured_per_second": float(trial.aim.per_second * trial.load.callers),
            "at_most": judgement.at_most,
            "due": judgement.due,
            "refused": record.count(Fate.REFUSED),
            "refused_elsewhere": dict(record.elsewhere.most_common()),
            "failures": dict(record.failures.most_common()),
            "statuses": {str(status): count for status, count in sorted(record.statuses.items())},
            "latency": {name: one.as_json() for name, one in self.latencies().items()},
            "notes": self.notes(),
        }


def text_report(report: Report) -> str:
    """The report for people; the verdict is the last line."""
    trial = report.trial
    load, aim = trial.load, trial.aim
    callers = f" by {load.callers:,} callers in turn" if load.callers > 1 else ""
    rule = f" (rule {aim.rule_id})" if aim.rule_id else ""
    each = f", each of {aim.cost} units" if aim.cost > 1 else ""
    sending = f"{float(load.rate):,g}/s for {load.duration_ns / SECOND:g} s{callers}{each}"
    lines = [
        f"{trial.target.method} {trial.target.url}, {sending}",
        f"limit: {aim.text}{rule}{_beyond(aim.extra)}",
        "",
        *_counts(report),
        *_latency_rows(report.latencies()),
        *(f"note: {note}" for note in report.notes()),
        "",
        report.judgement.line,
    ]
    return "\n".join(lines)


def _beyond(extra: tuple[int, ...]) -> str:
    return f", and up to {max(extra):,} beyond it, as its accuracy allows" if any(extra) else ""


def _counts(report: Report) -> list[str]:
    record, at_most = report.record, report.judgement.at_most
    seconds, admitted = record.seconds or 1.0, record.count(Fate.ADMITTED)
    rows = [
        ("sent", len(record)),
        ("admitted", admitted),
        ("  allowed at most", at_most),
        ("  after the burst", _after_burst(report)),
        ("refused", record.count(Fate.REFUSED)),
        ("refused elsewhere", record.count(Fate.ELSEWHERE)),
        ("failed", record.count(Fate.FAILED)),
    ]
    shown_rows = [row for row in rows if row[1] or row[0] in ("sent", "admitted", "refused")]
    lines = [f"{'':18} {'requests':>10} {'per second':>11}"]
    lines += [f"{name:18} {count:>10,} {count / seconds:>11,.1f}" for name, count in shown_rows]
    causes = record.failures.most_common(_MOST_CAUSES)
    return lines + [f"  {count:,} x {cause}" for cause, count in causes]


def _after_burst(report: Report) -> int:
    """How many were admitted beyond what may come at once after a rest; 0 if that says nothing."""
    record, aim = report.record, report.trial.aim
    if aim.burst is None or record.seconds * SECOND < aim.slowest.period_ns:
        return 0
    used = sum(record.used_before.values()) // aim.cost
    at_once = aim.burst * record.caller_count - used
    return max(0, record.count(Fate.ADMITTED) - at_once)


def _latency_rows(latencies: dict[str, Latency]) -> list[str]:
    if not latencies:
        return []
    lines = ["", f"{'latency in ms':18} {'p50':>8} {'p90':>8} {'p99':>8} {'max':>8}"]
    for name, one in latencies.items():
        figures = (one.p50, one.p90, one.p99, one.most)
        cells = " ".join(f"{value / MILLISECOND:8.2f}" for value in figures)
        lines.append(f"{name:18} {cells}{_MEANINGS.get(name, '')}")
    if {"baseline", "refused"} <= latencies.keys():
        refused, bare = latencies["refused"], latencies["baseline"]
        pairs = ((refused.p50, bare.p50), (refused.p90, bare.p90))
        cells = " ".join(f"{(one - other) / MILLISECOND:+8.2f}" for one, other in pairs)
        lines.append(f"{'refused - baseline':18} {cells}")
    return lines


# A load test as a whole: what was asked for, what was seen, what is to be said.


FAR_CLOCK_ERROR_NS: Final = SECOND
"""By how much the clock of another machine may tell another time."""

_BASELINE_NS: Final = 2 * SECOND
_BASELINE_RATE: Final = Fraction(200)


@dataclass(frozen=True, slots=True)
class Trial:
    """*load* on *target*, at *addresses*, to find out whether it is limited as *aim* says.

    *admitted* are statuses that count as admitted besides 200 to 299; *baseline* is a path of the
    same server that is not limited, to compare with; *is_verified*: certificates have to be good.
    """

    target: Target
    addresses: tuple[str, ...]
    aim: Aim
    load: Load
    admitted: frozenset[int] = frozenset()
    baseline: str | None = None
    clock_error_ns: int = CLOCK_ERROR_NS
    is_verified: bool = True

    def sender(self) -> Sender:
        """What sends the load. Raises `MissingPackageError` without aiohttp."""
        from headgate.loadtest.client import Sender

        run = token_hex(4)
        targets = [self.target.of(caller, run) for caller in range(self.load.callers)]
        reader = AnswerReader(self.aim, admitted=self.admitted)
        return Sender(targets, self.addresses, self.load, reader, is_verified=self.is_verified)

    def baseline_sender(self) -> Sender | None:
        """What asks for the baseline first, for two seconds at most; None if none is wanted."""
        from headgate.loadtest.client import Sender

        if self.baseline is None:
            return None
        rate = min(self.load.rate, _BASELINE_RATE)
        load = Load(rate, min(self.load.duration_ns, _BASELINE_NS), 1, self.load.connections)
        target = self.target.at(self.baseline).of(0, token_hex(4))
        reader = AnswerReader(self.aim, admitted=self.admitted)
        return Sender([target], self.addresses, load, reader, is_verified=self.is_verified)

    def judge(self, record: Record) -> Judgement:
        """What is to be said after *record*."""
        offset_ns = time.time_ns() - time.monotonic_ns()
        return judge(record, self.aim, Clocks(offset_ns, self.clock_error_ns))
