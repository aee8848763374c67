"""What is printed after a load test."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from headgate.loadtest.limit_under_test import limit_in_notation
from headgate.loadtest.record import Record, Result
from headgate.loadtest.report import LoadTest, Report, text_report
from headgate.loadtest.target import Load, Target
from headgate.units import MILLISECOND, SECOND

LIMIT = "10/s sliding_window_log"


def record_of(*, requests: int = 40, late_ns: int = 0, latency_ns: int = MILLISECOND) -> Record:
    """The first ten allowed, the others denied, one every 25 ms."""
    record = Record()
    for place in range(requests):
        due = place * 25 * MILLISECOND
        sent = due + late_ns
        result = Result.ALLOWED if place < 10 else Result.DENIED
        record.add(0, (due, sent, sent + latency_ns), result)
        record.statuses[200 if place < 10 else 429] += 1
    return record


def report_of(record: Record, *, limit: str = LIMIT, **more: bool) -> Report:
    target = Target("http://127.0.0.1:8080/x")
    load = Load(Fraction(40), SECOND, connections=16)
    test = LoadTest(target, ("127.0.0.1",), limit_in_notation(limit), load)
    return Report(test, record, test.judge(record), **more)


def test_the_verdict_is_the_last_line_and_the_first_of_json() -> None:
    report = report_of(record_of())
    line = "holds: 10 allowed in 0.98 s; the limit allows at most 10"
    assert text_report(report).splitlines()[-1] == line
    found = json.loads(json.dumps(report.as_json()))
    assert list(found)[:2] == ["holds", "verdict"]
    assert (found["holds"], found["verdict"], found["allows_less"]) == (True, line, False)
    assert (found["sent"], found["allowed"], found["denied"]) == (40, 10, 30)
    assert found["statuses"] == {"200": 10, "429": 30}


def test_figures_are_told_in_columns() -> None:
    lines = text_report(report_of(record_of())).splitlines()
    assert lines[0] == "GET http://127.0.0.1:8080/x, 40/s for 1 s"
    assert lines[1] == f"limit: {limit_in_notation(LIMIT).text}"
    assert "allowed                  10        10.2" in lines
    assert "  allowed at most        10        10.2" in lines
    assert "all            1.00  1.00  1.00  1.00  " in [f"{line}  " for line in lines]
    rare = ("failed", "note", "denied elsewhere", "  after the burst")
    assert not any(line.startswith(rare) for line in lines)


def test_what_is_allowed_after_the_burst_is_compared_with_the_rate() -> None:
    record = Record()
    for place in range(400):
        due = place * 25 * MILLISECOND
        is_allowed = place < 10 or place % 4 == 0
        record.add(0, (due, due, due), Result.ALLOWED if is_allowed else Result.DENIED)
    lines = text_report(report_of(record, limit="10/s")).splitlines()
    assert "allowed                 107        10.7" in lines
    assert "  after the burst        97         9.7" in lines
    found = report_of(record, limit="10/s").as_json()
    assert (round(found["allowed_per_second"], 1), found["configured_per_second"]) == (10.7, 10.0)


@pytest.mark.parametrize(
    ("limit", "refill", "needed"),
    [
        ("10/15s", "15s", "use --duration 30s"),
        ("10/minute", "1m", "use --duration 2m --yes"),
        ("10/hour", "1h", "a full test would need 2h, and the longest is 10m"),
    ],
)
def test_a_test_that_is_short_for_the_limit_says_how_long_it_would_need(
    limit: str, refill: str, needed: str
) -> None:
    (note,) = report_of(record_of(), limit=limit).notes()
    assert f" takes {refill} to refill, and the test took 1.0 s: " in note
    assert note.endswith(needed)


def test_time_before_sending_counts_from_the_schedule() -> None:
    latencies = report_of(record_of(late_ns=9 * MILLISECOND)).latencies()
    assert latencies["all"].p50 == MILLISECOND
    assert latencies["from schedule"].p50 == 10 * MILLISECOND


def test_a_sender_that_is_too_slow_is_told() -> None:
    record = record_of(late_ns=60 * MILLISECOND)
    (note,) = report_of(record).notes()
    assert note.startswith("40 of 40 requests were sent more than 50 ms late: all 16 connections")
    record.busy, record.unsent = 0.95, 7
    (note,) = report_of(record).notes()
    assert note.startswith("40 of 40 requests were sent more than 50 ms late, and 7 not at all: ")
    assert "this client is too slow" in note


def test_all_else_that_was_seen_is_told() -> None:
    record = record_of()
    record.without_retry_after, record.with_bad_retry_after = 3, 2
    record.used_before[0] = 4
    record.add(0, (0, 0, 1), Result.ELSEWHERE)
    record.elsewhere["the rule other"] += 1
    record.add(0, (0, 0, 1), Result.FAILED)
    record.failures["status 500"] += 1
    text = text_report(report_of(record, is_cut_short=True))
    for part in (
        "note: stopped before the end",
        "note: denied by something else: 1 by the rule other",
        "note: 3 of 30 denials: no Retry-After",
        "note: 2 of 30 denials: a Retry-After that is not a number of at least 1",
        "note: the counter was in use at the start: 4 of 10/s sliding_window_log",
        "\n  status 500              1 ",
        "unknown: 1 of 42 requests failed",
    ):
        assert part in text, part


def test_a_test_without_any_answer_has_a_report() -> None:
    text = text_report(report_of(Record()))
    assert text.endswith("unknown: there was no response")
