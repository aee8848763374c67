"""What gets lost when costs are charged afterwards, and how often it is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.request import Request
from headgate.integrations.check_result import EVERY_NS, LateCharges
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import read_policy
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    import pytest

RULES = """
version: 1
rules:
  - {id: a, key_by: ip, limit: 9/s, cost: {after: {header: x-tokens}}}
  - {id: b, key_by: ip, limit: 9/s, cost: {after: {bytes: true}}}
"""
ENGINE = CompiledPolicy(read_policy(RULES))
OWED = [(one, 5) for one in ENGINE.plan(Request(peer="1.2.3.4")).rules]


def test_what_is_lost_is_counted_and_told_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(1_000)
    found = LateCharges(clock)
    found.record_lost(OWED)
    found.record_lost(OWED[:1])
    clock.advance(EVERY_NS / SECOND - 1)
    found.record_lost(OWED[:1])
    assert found.lost == 4
    assert [one.getMessage() for one in caplog.records] == [
        "the store is gone: what requests had cost was not charged (a, b); 2 so far"
    ]
    clock.advance(1)
    found.record_lost(OWED[1:])
    assert caplog.records[-1].getMessage().endswith("(b); 5 so far")
    assert len(caplog.records) == 2


def test_nothing_is_told_of_what_was_charged(caplog: pytest.LogCaptureFixture) -> None:
    found = LateCharges(ManualClock(1_000))
    found.record_lost(())
    assert (found.lost, caplog.records) == (0, [])


def test_each_rule_that_hears_no_number_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    found = LateCharges(ManualClock(1_000))
    for one, _ in OWED * 2:
        found.warn_missing(one.rule, "x-tokens", ["lots"])
    assert [one.getMessage()[:32] for one in caplog.records] == [
        "rule a: a response has 'lots' in",
        "rule b: a response has 'lots' in",
    ]
