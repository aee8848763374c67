"""What is printed after a load test."""

from __future__ import annotations

import json
from fractions import Fraction

from headgate.loadtest.loads import Load
from headgate.loadtest.record import Fate, Record
from headgate.loadtest.report import Report, text_report
from headgate.loadtest.rule_source import aim_in_words
from headgate.loadtest.targets import Target
from headgate.loadtest.trial import Trial
from headgate.units import MILLISECOND, SECOND


def record_of(*, requests: int = 40, late_ns: int = 0, latency_ns: int = MILLISECOND) -> Record:
    """The first ten admitted, the others refused, one every 25 ms."""
    record = Record()
    for place in range(requests):
        due = place * 25 * MILLISECOND
        sent = due + late_ns
        fate = Fate.ADMITTED if place < 10 else Fate.REFUSED
        record.add(0, (due, sent, sent + latency_ns), fate)
        record.statuses[200 if place < 10 else 429] += 1
    return record


def report_of(record: Record, *, baseline: Record | None = None, **more: bool) -> Report:
    target = Target("http://127.0.0.1:8080/x")
    load = Load(Fraction(40), SECOND, connections=16)
    trial = Trial(target, ("127.0.0.1",), aim_in_words("10/minute"), load)
    return Report(trial, record, trial.judge(record), baseline, **more)


def test_the_verdict_is_the_last_line_and_the_first_of_json() -> None:
    report = report_of(record_of())
    line = "holds: 10 admitted in 0.98 s where at most 10 could be"
    assert text_report(report).splitlines()[-1] == line
    found = json.loads(json.dumps(report.as_json()))
    assert list(found)[:2] == ["holds", "verdict"]
    assert (found["holds"], found["verdict"], found["admits_less"]) == (True, line, False)
    assert (found["sent"], found["admitted"], found["refused"]) == (40, 10, 30)
    assert found["statuses"] == {"200": 10, "429": 30}


def test_figures_are_told_in_columns() -> None:
    lines = text_report(report_of(record_of())).splitlines()
    assert lines[0] == "GET http://127.0.0.1:8080/x, 40/s for 1 s"
    assert lines[1] == "limit: 10/m"
    assert "admitted                   10        10.2" in lines
    assert "all                    1.00     1.00     1.00     1.00" in lines
    assert not any(line.startswith(("failed", "note", "refused elsewhere")) for line in lines)


def test_time_before_sending_counts_from_the_schedule() -> None:
    latencies = report_of(record_of(late_ns=9 * MILLISECOND)).latencies()
    assert latencies["all"].p50 == MILLISECOND
    assert latencies["from schedule"].p50 == 10 * MILLISECOND


def test_refusals_are_compared_with_the_baseline() -> None:
    report = report_of(record_of(latency_ns=3 * MILLISECOND), baseline=record_of(requests=10))
    row = "refused - baseline    +2.00    +2.00    +2.00    +2.00"
    assert row in text_report(report).splitlines()
    assert report.notes() == []


def test_a_baseline_that_is_refused_is_told() -> None:
    notes = report_of(record_of(), baseline=record_of()).notes()
    told = "not all of the baseline was answered well"
    assert notes == [f"{told}; expected a path that is not limited and answers 200"]


def test_a_sender_that_is_too_slow_is_told() -> None:
    record = record_of(late_ns=60 * MILLISECOND)
    (note,) = report_of(record).notes()
    assert note.startswith("40 of 40 requests were sent more than 50 ms late: all 16 connections")
    record.busy, record.unsent = 0.95, 7
    (note,) = report_of(record).notes()
    assert note.startswith("40 of 40 requests were sent more than 50 ms late, and 7 not at all: ")
    assert "this side could not keep up" in note


def test_all_else_that_was_seen_is_told() -> None:
    record = record_of()
    record.without_retry_after, record.with_bad_retry_after = 3, 2
    record.used_before[0] = 4
    record.add(0, (0, 0, 1), Fate.ELSEWHERE)
    record.elsewhere["the rule other"] += 1
    record.add(0, (0, 0, 1), Fate.FAILED)
    record.failures["status 500"] += 1
    record.decided_ns.append(250_000)
    text = text_report(report_of(record, is_cut_short=True))
    for part in (
        "note: stopped before the end",
        "note: refused by something else: 1 by the rule other",
        "note: 3 of 30 refusals: no Retry-After",
        "note: 2 of 30 refusals: a Retry-After that is not a number of at least 1",
        "note: the counter was not empty at the start: 4 of 10/m were in use",
        "  1 x status 500",
        "decision               0.25     0.25     0.25     0.25",
        "cannot tell: 1 of 42 requests failed",
    ):
        assert part in text, part


def test_a_test_without_any_answer_has_a_report() -> None:
    text = text_report(report_of(Record()))
    assert text.endswith("cannot tell: nothing was answered")
