"""Limits that depend on how much a request matters, on a caller's share, and on pressure."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from headgate.engine.holds import cancellation_of
from headgate.engine.request import Request
from headgate.engine.verdict import answer_of
from headgate.limits import Concurrency, LeakyQueue, Limit, TokenBucket
from headgate.policy.model import (
    Adaptive,
    Fair,
    Match,
    Policy,
    PriorityClass,
    Rule,
    ceiling,
)
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.runtime.drivers import adrive
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.engine.plan import Priority

CLASSES = (
    PriorityClass("critical", Match(endpoints=("/pay/**",))),
    PriorityClass("sheddable", Match(tiers=("free",))),
    PriorityClass("default", Match(endpoints=("/pay-not",))),
)
PAY = Request("POST", "/pay/1")
FREE = Request("GET", "/x", headers=(("x-tier", "free"),))
OTHER = Request("GET", "/x")


def rule(name: str, *limits: Limit, **fields: Any) -> Rule:
    return Rule(name, Match(), ("global",), {None: limits} if limits else {}, **fields)


def engine(*rules: Rule, **options: Any) -> RuleEngine:
    policy = Policy(rules, priorities=options.pop("priorities", CLASSES))
    return RuleEngine(policy, clock=options.pop("clock", ManualClock(1_000)), **options)


def test_the_class_of_a_request_is_the_first_that_fits() -> None:
    made = engine(rule("one", TokenBucket(1, 1)))
    kinds = [made.in_force.compiled.priority_of(one) for one in (PAY, FREE, OTHER)]
    assert kinds == ["critical", "sheddable", "default"]
    both = Request("POST", "/pay/1", headers=(("x-tier", "free"),))
    assert made.in_force.compiled.priority_of(both) == "critical"


def test_what_is_reserved_is_rounded_up_and_one_slot_is_for_everybody() -> None:
    reserve: dict[Priority, Fraction] = {"critical": Fraction(1, 5), "default": Fraction(3, 10)}
    ceilings = [
        [ceiling(slots, reserve, kind) for kind in ("critical", "default", "sheddable")]
        for slots in (1, 2, 3, 10, 11)
    ]
    assert ceilings == [[1, 1, 1], [2, 1, 1], [3, 2, 1], [10, 8, 5], [11, 8, 5]]


def test_the_last_slots_are_for_those_they_are_reserved_for() -> None:
    reserve = {"critical": Fraction(1, 4), "default": Fraction(1, 4)}
    made = engine(rule("backend", Concurrency(4, 60), reserve=reserve))
    asked = [FREE, FREE, FREE, OTHER, OTHER, PAY, PAY]
    verdicts = [made.check(one) for one in asked]
    assert [one.allowed for one in verdicts] == [True, True, False, True, False, True, False]
    refused = answer_of(verdicts[2])
    assert refused.rules[0].sheds
    made.release(verdicts[0])
    assert not made.check(FREE)
    assert made.check(PAY)


def test_a_share_goes_by_the_class_of_a_request_or_by_who_asks() -> None:
    limit = Concurrency(3, 60, shares=(("critical", 1), ("free", 1)), lends=False)
    by_class = engine(rule("one", limit, share_by="priority"))
    by_tier = engine(rule("one", limit, share_by="tier"))
    plan = by_class.in_force.compiled.plan
    assert [plan(one).rules[0].limits[0].partition for one in (PAY, FREE)] == ["critical", None]  # type: ignore[attr-defined]
    plan = by_tier.in_force.compiled.plan
    assert [plan(one).rules[0].limits[0].partition for one in (PAY, FREE)] == [None, "free"]  # type: ignore[attr-defined]


def test_pressure_lowers_rules_with_a_floor_to_that_floor_and_no_others() -> None:
    made = engine(
        rule("low", TokenBucket(100, 10), adaptive=Adaptive(Fraction(1, 10))),
        rule("high", TokenBucket(100, 10), adaptive=Adaptive(Fraction(3, 4))),
        rule("firm", TokenBucket(100, 10)),
    )
    made.in_force.scale.factor = Fraction(1, 2)
    planned = made.in_force.compiled.plan(OTHER).rules
    assert [one.limits[0].quota for one in planned] == [50, 75, 100]
    assert [one.sheds for one in planned] == [True, True, False]
    made.in_force.scale.factor = Fraction(1)
    planned = made.in_force.compiled.plan(OTHER).rules
    assert [one.limits[0].quota for one in planned] == [100, 100, 100]
    assert not any(one.sheds for one in planned)


def test_what_was_used_stays_used_when_pressure_comes_and_goes() -> None:
    made = engine(rule("one", TokenBucket(100, 10), adaptive=Adaptive(Fraction(1, 10))))
    for _ in range(40):
        assert made.check(OTHER)
    made.in_force.scale.factor = Fraction(1, 2)
    assert sum(made.check(OTHER).allowed for _ in range(100)) == 10
    made.in_force.scale.factor = Fraction(1)
    assert sum(made.check(OTHER).allowed for _ in range(100)) == 50


def test_a_policy_that_is_replaced_stays_under_the_same_pressure() -> None:
    made = engine(rule("one", TokenBucket(100, 10), adaptive=Adaptive(Fraction(1, 10))))
    made.in_force.scale.factor = Fraction(1, 2)
    made.replace(Policy((rule("one", TokenBucket(10, 10), adaptive=Adaptive(Fraction(1, 10))),)))
    assert made.in_force.compiled.plan(OTHER).rules[0].limits[0].quota == 5


def test_a_rule_with_turns_asks_the_store_nothing() -> None:
    fair = Fair(slots=3, weights={"free": 1, None: 4})
    made = engine(rule("turns", fair=fair), rule("one", TokenBucket(1, 1)))
    plan = made.in_force.compiled.plan(FREE, cost=2)
    assert [one.rule.id for one in plan.rules] == ["one"]
    (queue,) = plan.queues
    assert (queue.rule.id, queue.cost, queue.weight, queue.priority) == ("turns", 2, 1, "sheddable")
    assert made.in_force.compiled.plan(PAY).queues[0].weight == 4


def test_a_request_in_a_queue_is_told_its_delay_and_may_give_its_turn_up() -> None:
    clock = ManualClock(1_000)
    made = engine(rule("shape", LeakyQueue(1, 5)), rule("all", TokenBucket(100, 1)), clock=clock)
    first, second, third = (made.check(OTHER) for _ in range(3))
    assert [one.delay_ns for one in (first, second, third)] == [0, SECOND, 2 * SECOND]
    made.refund(third)
    assert made.check(OTHER).delay == 2.0
    made.refund(second)
    step = cancellation_of(second)
    assert step is not None
    assert step.places_ns == (1_001 * SECOND,)
    assert made.check(OTHER).delay == 1.0  # the turn that was given up
    assert made.check(OTHER).delay == 3.0


def test_an_async_engine_gives_turns_up_too() -> None:
    async def main() -> list[float]:
        policy = Policy((rule("shape", LeakyQueue(1, 5)),))
        made = AsyncRuleEngine(policy, clock=ManualClock(1_000))
        first, second = await made.check(OTHER), await made.check(OTHER)
        await adrive(made.engine.vacate(second))
        third = await made.check(OTHER)
        return [one.delay for one in (first, second, third)]

    assert asyncio.run(main()) == [0.0, 1.0, 1.0]


def test_a_caller_is_shown_its_limits_as_they_are_under_pressure() -> None:
    made = engine(rule("one", TokenBucket(100, 10), adaptive=Adaptive(Fraction(1, 10))))
    made.in_force.scale.factor = Fraction(1, 2)
    (shown,) = made.in_force.compiled.concerning(OTHER)
    assert shown.limits == (TokenBucket(50, 5),)
    assert shown.plan is not None
    assert shown.plan.checks[0].limit == TokenBucket(50, 5)


def test_a_floor_above_the_whole_is_the_whole() -> None:
    made = engine(rule("one", TokenBucket(100, 10), adaptive=Adaptive(Fraction(3))))
    made.in_force.scale.factor = Fraction(1, 2)
    (planned,) = made.in_force.compiled.plan(OTHER).rules
    assert planned.limits[0].quota == 100
    assert not planned.sheds
