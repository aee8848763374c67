"""What requests have cost beyond what they took to enter: who is charged, and where."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import OnFailure
from headgate.engine.holds import allowing, charge_of, charged_after
from headgate.engine.request import Request
from headgate.engine.use_cases import Engine
from headgate.errors import StoreError
from headgate.limits import Concurrency, FixedWindow
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.model import After, Cost, Idempotency, Match, Override, Policy, Rule
from headgate.runtime.drivers import adrive, drive
from headgate.stores import MemoryStore, Store
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.unbroken_stores import unbroken, unbroken_async

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict
    from headgate.stores.operations import Operation

TEN = FixedWindow(10, 60)
AFTER = Cost(2, after=After("x-tokens"))
HERE = Request("POST", peer="1.2.3.4", headers=(("idempotency-key", "a"),))


def rule(name: str, *limits: Any, cost: Cost = AFTER, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: limits or (TEN,)}, cost=cost, **fields)


def engine(*rules: Rule, overrides: tuple[Override, ...] = ()) -> CompiledPolicy:
    return CompiledPolicy(Policy(rules, overrides=overrides), clock=ManualClock(1_000))


class Shaky(Store):
    """A memory store that can be gone."""

    def __init__(self) -> None:
        self.inner = MemoryStore(clock=ManualClock(1_000))
        self.is_gone = False

    def run(self, operation: Operation[Any]) -> Any:
        if self.is_gone:
            raise StoreError("gone")
        return self.inner.run(operation)


class AsyncShaky(LoopStore):
    """The same for an event loop."""

    def __init__(self) -> None:
        self.inner = Shaky()

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self.inner.run(operation)


class Blocking:
    """A runner that blocks, and its store."""

    def __init__(self) -> None:
        self.store = Shaky()
        self.engine = Engine(unbroken(self.store))

    def decide(self, plan: Any) -> Verdict:
        return drive(self.engine.decide(plan))

    def charge(self, owed: Any) -> Any:
        return drive(self.engine.charge(owed))


class Looping:
    """The same for an event loop."""

    def __init__(self) -> None:
        outer = AsyncShaky()
        self.store = outer.inner
        self.engine = Engine(unbroken_async(outer))

    def decide(self, plan: Any) -> Verdict:
        return asyncio.run(adrive(self.engine.decide(plan)))

    def charge(self, owed: Any) -> Any:
        return asyncio.run(adrive(self.engine.charge(owed)))


BOTH = pytest.mark.parametrize("make", [Blocking, Looping])


def ids(rules: Any) -> list[str]:
    return [one.rule.id for one in rules]


def left(verdict: Verdict) -> list[int]:
    return [one.decision.remaining for one in verdict.rules]


def test_it_is_known_of_a_policy_whether_anything_is_charged_afterwards() -> None:
    assert not engine(rule("a", cost=Cost(2))).charges_after
    assert engine(rule("a", cost=Cost(2)), rule("b")).charges_after
    plan = engine(rule("a", cost=Cost(2)), rule("b")).plan(HERE)
    assert ids(charged_after(plan.rules)) == ["b"]


@BOTH
def test_more_is_recorded_in_full_and_worked_off(make: Any) -> None:
    trial = make()
    own = engine(rule("a"), rule("b", FixedWindow(100, 60)))
    plan = own.plan(HERE)
    assert left(trial.decide(plan)) == [8, 98]
    assert trial.charge([(plan.rules[0], 20), (plan.rules[1], 5)]) == ()
    refused = trial.decide(own.plan(HERE))
    assert (refused.allowed, left(refused)) == (False, [0, 93])
    assert refused.retry_after is not None
    assert refused.retry_after > 60  # the debt is worked off too


@BOTH
def test_where_nothing_is_owed_the_store_is_not_asked(make: Any) -> None:
    trial = make()
    trial.store.is_gone = True
    plan = engine(rule("a")).plan(HERE)
    assert charge_of([(plan.rules[0], 0)]) is None
    assert trial.charge([(plan.rules[0], 0)]) == ()
    assert trial.charge(()) == ()


def test_slots_are_not_charged() -> None:
    plan = engine(rule("a", TEN, Concurrency(5, 60))).plan(HERE, lease="x")
    charge = charge_of([(plan.rules[0], 3)])
    assert charge is not None
    assert [(check.limit, check.cost) for check in charge.checks] == [(TEN, 3)]


@BOTH
def test_while_the_store_is_gone_rules_are_charged_here_and_those_that_are_closed_are_left(
    make: Any,
) -> None:
    trial = make()
    year = FixedWindow(10, 31_536_000)  # this process goes by the clock on the wall
    own = engine(rule("here", year, on_failure=OnFailure("local")), rule("open", year))
    closed = engine(rule("there", on_failure=OnFailure("fail_closed")))
    trial.store.is_gone = True
    plan = own.plan(HERE)
    assert trial.decide(plan).allowed
    owed = [(one, 5) for one in (*plan.rules, *closed.plan(HERE).rules)]
    assert [(one.rule.id, more) for one, more in trial.charge(owed)] == [("there", 5)]
    assert left(trial.decide(own.plan(HERE))) == [1, 1]


@BOTH
def test_rules_that_decide_have_admitted_what_is_allowed_and_shadows_what_they_would(
    make: Any,
) -> None:
    trial = make()
    tight = FixedWindow(3, 60)
    own = engine(rule("live"), rule("trial", tight, mode="shadow"))
    plan = own.plan(HERE)
    assert ids(allowing(plan.rules, trial.decide(plan))) == ["live", "trial"]
    again = own.plan(HERE)
    assert ids(allowing(again.rules, trial.decide(again))) == ["live"]
    for _ in range(3):
        trial.decide(own.plan(HERE))
    refused = trial.decide(own.plan(HERE))
    assert not refused.allowed
    assert ids(allowing(again.rules, refused)) == []


@BOTH
def test_a_repeated_request_has_been_admitted_too(make: Any) -> None:
    trial = make()
    known = Idempotency(60 * SECOND)
    own = engine(rule("live", idempotency=known), rule("trial", mode="shadow", idempotency=known))
    trial.decide(own.plan(HERE))
    plan = own.plan(HERE)
    verdict = trial.decide(plan)
    assert verdict.is_replay
    assert verdict.rules == ()
    assert ids(allowing(plan.rules, verdict)) == ["live", "trial"]


def test_a_shadow_that_is_blocked_has_not_admitted_anything() -> None:
    block = Override("trial", "ip=1.2.3.4", 2_000 * SECOND, block=True)
    own = engine(rule("live"), rule("trial", mode="shadow"), overrides=(block,))
    plan = own.plan(HERE)
    assert ids(allowing(plan.rules, Blocking().decide(plan))) == ["live"]
