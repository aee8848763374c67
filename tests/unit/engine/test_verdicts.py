"""Verdicts: slots of a peek, estimates beside exact waits, and the answer of rules that shed."""

from __future__ import annotations

from dataclasses import replace

from headgate.engine.request import Request
from headgate.engine.verdict import rule_answers
from headgate.observability import RECORDER
from headgate.policy.loader import read_policy_data
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock

ASK = Request(peer="192.0.2.1")


def engine(*rules: dict[str, object]) -> RuleEngine:
    data = {"version": 1, "rules": [{"key_by": "ip", **one} for one in rules]}
    return RuleEngine(read_policy_data(data), clock=ManualClock(1_200))


def test_a_peek_holds_no_slot() -> None:
    rules = engine({"id": "slots", "concurrency": {"limit": 1, "ttl": "1m"}})
    peeked = rules.peek(ASK)
    assert peeked.allowed
    assert peeked.slots is None
    assert peeked.slots_last_ns is None
    assert rules.check(ASK).slots is not None


def test_only_the_wait_of_a_denial_by_slots_is_an_estimate() -> None:
    rules = engine(
        {"id": "rate", "limit": "10/hour"},
        {"id": "slots", "concurrency": {"limit": 1, "ttl": "1h"}},
    )
    assert rules.check(ASK).allowed
    denied = rules.check(ASK)
    rate, slots = denied.rules
    assert rate.decision.allowed
    assert rate.decision.retry_after == 0
    assert not slots.decision.allowed
    assert slots.decision.retry_after == 1
    assert denied.is_estimate


def test_only_denials_are_for_lack_of_capacity() -> None:
    rules = engine({"id": "rate", "limit": "1/hour"})
    allowed, denied = rules.check(ASK), rules.check(ASK)
    for verdict in (allowed, denied):
        assert verdict.plan is not None
        shedding = tuple([replace(one, sheds=True) for one in verdict.plan.rules])
        verdict.plan = replace(verdict.plan, rules=shedding)
    assert [one.sheds for one in rule_answers(allowed)] == [False]
    assert [one.sheds for one in rule_answers(denied)] == [True]


def test_a_denial_is_counted_as_one() -> None:
    rules = engine({"id": "counted-denial", "limit": "1/hour"})
    for _ in range(3):
        rules.check(ASK)
    counts = dict(RECORDER.counts())
    assert counts["counted-denial", "allowed", "store"] == 1
    assert counts["counted-denial", "denied", "store"] == 2


def test_of_several_denials_one_without_end_binds_and_else_the_longest() -> None:
    rules = engine({"id": "short", "limit": "1/minute"}, {"id": "long", "limit": "1/hour"})
    rules.check(ASK)
    longest = rules.check(ASK).denied_by
    assert longest is not None
    assert longest.rule.id == "long"
    never = rules.check(ASK, cost={"short": 2}).denied_by
    assert never is not None
    assert never.rule.id == "short"
    assert never.decision.retry_after is None
