"""Refusals in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headgate import RateLimiter
from headgate.errors import OptionError
from headgate.observability import (
    RECORDER,
    DecisionRecord,
    DecisionRecorder,
    RuleRecord,
    log_denials,
)
from headgate.observability.denials import MOST_RULES, Denials
from headgate.testing import ManualClock
from headgate.units import SECOND


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headgate.decisions")


def decided(rule: str = "r", outcome: Any = "denied", **more: Any) -> DecisionRecord:
    said = {
        "source": "store", "key": "user:42", "cost": 2, "remaining": 0, "retry_after_ns": SECOND
    } | more  # fmt: skip
    is_denied = outcome == "denied"
    return DecisionRecord(not is_denied, "store", 7, 1000, (RuleRecord(rule, outcome, **said),))  # type: ignore[arg-type] # as given


def test_a_refusal_is_told_with_a_pseudonym_for_its_key(caplog: pytest.LogCaptureFixture) -> None:
    Denials(salt=b"s")(decided())
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("headgate.decisions", logging.INFO)
    assert "user:42" not in str(vars(record))
    fields = record.headgate_fields  # type: ignore[attr-defined]
    assert fields == {
        "rule": "r",
        "key": fields["key"],
        "source": "store",
        "outcome": "denied",
        "retry_after": 1.0,
        "cost": 2,
        "revision": 7,
        "left_out": 0,
    }
    assert record.rule == "r"  # type: ignore[attr-defined]
    assert record.getMessage() == (
        f"denied by r: key {fields['key']}, cost 2, retry after 1 s, source store"
    )


@pytest.mark.parametrize(
    ("wait_ns", "words"),
    [(SECOND // 3, "0.333 s"), (12 * SECOND, "12 s"), (3_599_977_832_561, "3600 s")],
)
def test_how_long_to_wait_is_told_in_plain_numbers(
    wait_ns: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    Denials()(decided(retry_after_ns=wait_ns))
    assert f"retry after {words}," in caplog.records[0].getMessage()


def test_what_has_no_key_is_told_without_one(caplog: pytest.LogCaptureFixture) -> None:
    Denials()(decided("load-shedding", key=""))
    (record,) = caplog.records
    assert record.getMessage().startswith("denied by load-shedding: key -, cost 2")
    assert record.key == ""  # type: ignore[attr-defined]


def test_at_most_so_many_of_a_rule_are_told_a_second_and_the_next_says_how_many_were_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(1_000 * SECOND)
    denials = Denials(per_second=2, clock=clock)
    for _ in range(10):
        denials(decided("busy"))
    denials(decided("calm"))
    assert len(caplog.records) == 3
    clock.advance(1)
    denials(decided("busy"))
    assert caplog.records[-1].getMessage().endswith("(8 more left out)")
    denials(decided("busy"))
    assert caplog.records[-1].left_out == 0  # type: ignore[attr-defined]


def test_what_a_shadow_would_have_refused_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    Denials()(decided(outcome="shadow_denied", retry_after_ns=None))
    (record,) = caplog.records
    assert record.outcome == "shadow_denied"  # type: ignore[attr-defined]
    assert record.retry_after is None  # type: ignore[attr-defined]
    assert "shadow denied by r" in record.getMessage()
    assert "never fits" in record.getMessage()


def test_what_is_admitted_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    for outcome in ("allowed", "shadow_allowed"):
        Denials()(decided(outcome=outcome))
    assert not caplog.records


def test_many_rules_take_no_more_memory_than_some(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials(clock=ManualClock(0))
    for number in range(MOST_RULES + 50):
        denials(decided(f"rule-{number}"))
    assert len(caplog.records) == MOST_RULES + 1, "those beyond share one"
    assert caplog.records[-1].rule == f"rule-{MOST_RULES}"  # type: ignore[attr-defined]


def test_rules_that_are_gone_make_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    denials = Denials(clock=clock)
    for number in range(MOST_RULES):
        denials(decided(f"old-{number}"))
    clock.advance(5)
    caplog.clear()
    for number in range(9):
        denials(decided(f"new-{number}"))
    assert len(caplog.records) == 9
    assert len(denials._entries) == 9


def test_a_log_that_nobody_reads_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "headgate.decisions")
    denials = Denials()
    denials(decided())
    assert not caplog.records
    assert not denials._entries


def test_apps_switch_it_on_and_off(caplog: pytest.LogCaptureFixture) -> None:
    limiter = RateLimiter("1/day", name="in-the-log")
    end = log_denials()
    try:
        limiter.hit("k")
        limiter.hit("k")
    finally:
        end()
    limiter.hit("k")
    (record,) = caplog.records
    assert record.rule == "in-the-log"  # type: ignore[attr-defined]
    assert not [one for one in RECORDER.denial_listeners if isinstance(one, Denials)]
    recorder = DecisionRecorder()
    log_denials(recorder=recorder)
    assert len(recorder.denial_listeners) == 1


def test_none_a_second_is_not_a_number_of_lines() -> None:
    with pytest.raises(OptionError, match="expected at least 1"):
        Denials(per_second=0)
