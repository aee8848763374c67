"""Rules whose holds are charged when they expire: a request that is never settled counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headgate.engine.plan import CompiledRule, Plan, plan_rule
from headgate.engine.use_cases import Engine
from headgate.errors import StoreError
from headgate.limits import FixedWindow, TokenBucket
from headgate.runtime.drivers import adrive, drive
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Hold, Take
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.engine.verdict import Verdict
    from headgate.limits import Limit
    from headgate.runtime.effects import Effects
    from headgate.stores.operations import Operation

R = TypeVar("R")

TTL = 5
HUNDRED = FixedWindow(100, 3_600)
TOKENS = CompiledRule("tokens", charges_expired=True)
SPEND = CompiledRule("spend")


class Ledger(Store):
    """A memory store that keeps a list of what it was asked, and can be gone."""

    def __init__(self) -> None:
        self.clock: ManualClock = ManualClock(1_200)
        self.inner = MemoryStore(clock=self.clock)
        self.asked: list[Operation[Any]] = []
        self.is_gone = False

    def run(self, operation: Operation[Any]) -> Any:
        self.asked.append(operation)
        if self.is_gone:
            raise StoreError("gone")
        return self.inner.run(operation)

    async def arun(self, operation: Operation[Any]) -> Any:
        return self.run(operation)


class Desk:
    """An engine on a ledger, driven in a thread or in a loop."""

    def __init__(self, runner: asyncio.Runner | None) -> None:
        self.ledger = Ledger()
        self.engine = Engine(self.ledger)
        self._runner = runner

    def reserve(self, cost: int, **limits: Limit) -> Verdict:
        """Reserve *cost* under the rules that have *limits*."""
        return self.drive(self.engine.reserve(plan(cost, limits), "name", TTL * SECOND))

    def settle(self, verdict: Verdict, **amounts: int) -> bool:
        return self.drive(self.engine.settle(verdict, amounts))

    def left(self, **limits: Limit) -> dict[str, int]:
        """What each rule has left."""
        decisions = self.drive(self.engine.peek(plan(0, limits))).decisions
        return {
            one.rule.id: decision.remaining
            for one, decision in zip(plan(0, limits).rules, decisions, strict=True)
            if decision is not None
        }

    def drive(self, effects: Effects[R]) -> R:
        return drive(effects) if self._runner is None else self._runner.run(adrive(effects))


@pytest.fixture(params=["sync", "async"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    with asyncio.Runner() as runner:
        yield Desk(runner if request.param == "async" else None)


def plan(cost: int, limits: dict[str, Limit]) -> Plan:
    rules = [one for one in (TOKENS, SPEND) if one.id in limits]
    planned = [plan_rule(one, (limits[one.id],), "key", cost, "shop") for one in rules]
    return Plan(0, tuple(planned), open=frozenset(limits))


def test_a_request_that_is_never_settled_counts_in_full_under_such_rules(desk: Desk) -> None:
    both = {"tokens": HUNDRED, "spend": HUNDRED}
    assert desk.reserve(30, **both).allowed
    assert [one.charges_expired for one in desk.ledger.asked if isinstance(one, Hold)] == [
        False,
        True,
    ]
    assert desk.left(**both) == {"tokens": 70, "spend": 70}
    desk.ledger.clock.advance(TTL)
    assert desk.left(**both) == {"tokens": 70, "spend": 100}
    assert desk.reserve(40, tokens=HUNDRED).allowed
    desk.ledger.clock.advance(TTL)
    assert desk.left(**both) == {"tokens": 30, "spend": 100}


def test_rules_that_expire_alike_are_held_by_one_operation(desk: Desk) -> None:
    desk.reserve(30, tokens=HUNDRED)
    assert [type(one) for one in desk.ledger.asked] == [Hold]


def test_what_is_settled_in_time_is_not_charged_again(desk: Desk) -> None:
    both = {"tokens": HUNDRED, "spend": HUNDRED}
    verdict = desk.reserve(30, **both)
    assert desk.settle(verdict, tokens=12, spend=3)
    desk.ledger.clock.advance(TTL)
    assert desk.left(**both) == {"tokens": 88, "spend": 97}


@pytest.mark.parametrize("actual", [0, 12, 30, 50])
def test_what_is_settled_late_counts_once(desk: Desk, actual: int) -> None:
    both = {"tokens": HUNDRED, "spend": HUNDRED}
    verdict = desk.reserve(30, **both)
    desk.ledger.clock.advance(TTL + 1)
    desk.reserve(0, **both)
    assert not desk.settle(verdict, tokens=actual, spend=actual)
    assert desk.left(**both) == {"tokens": 100 - actual, "spend": 100 - actual}


def test_a_request_that_is_refunded_late_leaves_nothing(desk: Desk) -> None:
    verdict = desk.reserve(30, tokens=HUNDRED)
    desk.ledger.clock.advance(TTL + 1)
    desk.drive(desk.engine.refund(verdict))
    assert desk.left(tokens=HUNDRED) == {"tokens": 100}


@pytest.mark.parametrize("denying", ["tokens", "spend"])
def test_a_denial_by_either_kind_of_rule_holds_nothing(desk: Desk, denying: str) -> None:
    tight = FixedWindow(10, 3_600)
    both: dict[str, Limit] = {"tokens": HUNDRED, "spend": HUNDRED, denying: tight}
    verdict = desk.reserve(30, **both)
    assert (verdict.allowed, verdict.held) == (False, None)
    denied = {
        one.rule.id: (decision.allowed, decision.remaining)
        for one, decision in zip(verdict.plan.rules, verdict.decisions, strict=True)
        if decision is not None
    }
    other = "spend" if denying == "tokens" else "tokens"
    assert denied == {denying: (False, 10), other: (True, 100)}
    desk.ledger.clock.advance(TTL)
    assert desk.left(**both) == {denying: 10, other: 100}


def test_a_reservation_made_without_the_store_is_charged_when_it_is_settled(desk: Desk) -> None:
    desk.ledger.is_gone = True
    verdict = desk.reserve(30, tokens=TokenBucket(100, 0.001))
    assert verdict.allowed
    desk.ledger.is_gone = False
    desk.ledger.clock.advance(TTL + 1)
    desk.settle(verdict, tokens=12)
    assert desk.left(tokens=TokenBucket(100, 0.001)) == {"tokens": 88}


def test_a_hold_after_a_denial_is_a_peek(desk: Desk) -> None:
    desk.reserve(30, tokens=HUNDRED, spend=FixedWindow(10, 3_600))
    assert [type(one) for one in desk.ledger.asked] == [Hold, Take]
