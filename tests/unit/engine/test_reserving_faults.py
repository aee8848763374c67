"""Reservations on a bad day: a store that fails half-way, and callers that settle twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import OnFailure
from headgate.engine.request import Request
from headgate.errors import CostError, SettledError, StoreError
from headgate.limits import Concurrency, FixedWindow, TokenBucket
from headgate.policy.model import Idempotency, Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores import MemoryStore, Store
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from headgate.stores.operations import Operation

HUNDRED = FixedWindow(100, 3_600)


class Ledger(Store):
    """Fails at the calls whose numbers are in *failing*; always, if it is gone."""

    def __init__(self, *failing: int) -> None:
        self.inner, self.failing, self.calls = MemoryStore(clock=ManualClock(1_200)), failing, 0
        self.is_gone = False

    def run(self, operation: Operation[Any]) -> Any:
        self.calls += 1
        if self.is_gone or self.calls in self.failing:
            raise StoreError("gone")
        return self.inner.run(operation)


def rule(name: str, *limits: Any, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: limits or (HUNDRED,)}, **fields)


def ask(**headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request("POST", "/", headers=lines, peer="1.2.3.4")


def left(engine: RuleEngine) -> dict[str, int]:
    return {r.rule.id: r.decision.remaining for r in engine.peek(ask(), cost=0).rules}


def test_a_failing_shadow_never_decides() -> None:
    engine = RuleEngine(
        Policy((rule("live", on_failure=OnFailure("fail_closed")), rule("trial", mode="shadow"))),
        store=Ledger(2),  # Hold of live is granted, Hold of trial fails
    )
    assert engine.reserve(ask(), cost=10).allowed


def test_a_slot_granted_before_the_store_failed_is_given_back() -> None:
    engine = RuleEngine(
        Policy((rule("slots", Concurrency(1, 600)), rule("trial", mode="shadow"))), store=Ledger(2)
    )
    verdict = engine.reserve(ask(), cost=10)
    engine.release(verdict)
    assert left(engine)["slots"] == 1


def test_a_refused_reservation_holds_nothing_though_the_store_failed_once() -> None:
    engine = RuleEngine(
        Policy(
            (rule("a", on_failure=OnFailure("fail_closed")), rule("slots", Concurrency(1, 600)))
        ),
        store=Ledger(2),  # Hold is granted, Take of the slot fails
    )
    assert not engine.reserve(ask(), cost=10)
    assert left(engine)["a"] == 100


def test_a_reservation_settles_once() -> None:
    engine = RuleEngine(Policy((rule("a"),)), clock=ManualClock(1_200))
    verdict = engine.reserve(ask(), cost=10)
    engine.settle(verdict, 5)
    with pytest.raises(SettledError, match="settled already"):
        engine.settle(verdict, 5)
    assert left(engine) == {"a": 95}


def test_what_was_refunded_is_not_charged_by_a_late_settle() -> None:
    engine = RuleEngine(Policy((rule("a"),)), clock=ManualClock(1_200))
    verdict = engine.reserve(ask(), cost=10)
    engine.refund(verdict)
    with pytest.raises(SettledError, match="settled already"):
        engine.settle(verdict, 7)
    assert left(engine) == {"a": 100}


def test_a_refund_twice_gives_back_once() -> None:
    engine = RuleEngine(Policy((rule("a"),)), clock=ManualClock(1_200))
    verdict = engine.check(ask(), cost=10)
    engine.check(ask(), cost=10)
    engine.refund(verdict)
    with pytest.raises(SettledError, match="given back already"):
        engine.refund(verdict)
    assert left(engine) == {"a": 90}


def test_a_refund_gives_back_what_was_settled() -> None:
    engine = RuleEngine(Policy((rule("a"),)), clock=ManualClock(1_200))
    verdict = engine.reserve(ask(), cost=10)
    engine.settle(verdict, 5)
    engine.refund(verdict)
    assert left(engine) == {"a": 100}


def test_a_refund_gives_back_what_a_local_rule_charged_for_a_reservation() -> None:
    store = Ledger()
    engine = RuleEngine(Policy((rule("a", on_failure=OnFailure("local")),)), store=store)
    store.is_gone = True
    engine.refund(engine.reserve(ask(), cost=10))
    assert left(engine) == {"a": 100}


def test_a_local_reservation_is_settled_locally() -> None:
    store = Ledger()
    engine = RuleEngine(Policy((rule("a", on_failure=OnFailure("local")),)), store=store)
    store.is_gone = True
    engine.settle(engine.reserve(ask(), cost=10), 3)
    assert left(engine) == {"a": 97}


def test_a_refund_of_a_check_includes_shadows_and_their_marks() -> None:
    once = Idempotency(600 * SECOND)
    rules = (rule("a"), rule("trial", mode="shadow", idempotency=once))
    engine = RuleEngine(Policy(rules), clock=ManualClock(1_200))
    engine.refund(engine.check(ask(idempotency_key="k"), cost=10))
    assert left(engine) == {"a": 100, "trial": 100}


@pytest.mark.parametrize("amount", [1.5, "3"])
def test_an_actual_amount_that_is_none_is_a_cost_error(amount: Any) -> None:
    engine = RuleEngine(Policy((rule("a"),)), clock=ManualClock(1_200))
    verdict = engine.reserve(ask(), cost=10)
    with pytest.raises(CostError):
        engine.settle(verdict, amount)


def test_a_bad_amount_is_one_even_where_nothing_is_held() -> None:
    engine = RuleEngine(Policy(()), clock=ManualClock(1_200))
    with pytest.raises(CostError):
        engine.settle(engine.reserve(ask(), cost=10), -1)


def test_a_reservation_of_nothing_is_settled() -> None:
    engine = RuleEngine(Policy((rule("a"),)), clock=ManualClock(1_200))
    assert engine.settle(engine.reserve(ask(), cost=0), 0)


def test_a_refusal_for_want_of_a_slot_tells_what_is_really_left() -> None:
    engine = RuleEngine(
        Policy((rule("a"), rule("slots", Concurrency(1, 600)))), clock=ManualClock(1_200)
    )
    engine.check(ask(), cost=0)
    refused = engine.reserve(ask(), cost=10)
    assert refused.rules[0].decision.remaining == left(engine)["a"] == 100


def test_what_is_charged_at_once_tells_when_it_is_really_back() -> None:
    rules = (rule("a"), rule("known", TokenBucket(10, 10)))
    engine = RuleEngine(Policy(rules), clock=ManualClock(1_200))
    verdict = engine.reserve(ask(), cost={"a": 10})
    assert verdict.rules[1].decision.reset_after == 0.1


def test_a_retry_is_free_under_a_rule_that_says_so_though_another_is_held() -> None:
    once = Idempotency(60 * SECOND)
    engine = RuleEngine(
        Policy((rule("paid", FixedWindow(2, 3_600), idempotency=once), rule("tokens"))),
        clock=ManualClock(1_200),
    )
    verdicts = [engine.reserve(ask(idempotency_key='"a"'), cost={"tokens": 10}) for _ in range(4)]

    assert [bool(one) for one in verdicts] == [True] * 4
    assert [one.is_replay for one in verdicts] == [False, True, True, True]
    assert left(engine) == {"paid": 1, "tokens": 60}
    other = [engine.reserve(ask(idempotency_key=key), cost={"tokens": 10}) for key in "bc"]
    assert [bool(one) for one in other] == [True, False]


def test_a_retry_under_rules_that_have_all_seen_it_passes() -> None:
    once = Idempotency(60 * SECOND)
    engine = RuleEngine(
        Policy((rule("paid", idempotency=once), rule("trial", mode="shadow"))),
        clock=ManualClock(1_200),
    )
    asked = [engine.reserve(ask(idempotency_key="a"), cost={"trial": 10}) for _ in range(2)]

    assert [(bool(one), one.is_replay) for one in asked] == [(True, False), (True, True)]
    assert left(engine) == {"paid": 99, "trial": 80}


class LaterLost(LoopStore):
    """Loses the answer to its first call, and does not answer the others until it is let."""

    def __init__(self) -> None:
        self.inner = MemoryStore(clock=ManualClock(1_200))
        self.may_answer = asyncio.Event()
        self.calls = 0

    async def arun(self, operation: Operation[Any]) -> Any:
        self.calls += 1
        if self.calls == 1:
            self.inner.run(operation)
            raise StoreError("no answer", reason="timeout")
        await self.may_answer.wait()
        return self.inner.run(operation)


def test_who_reserves_does_not_wait_until_what_may_be_held_is_given_back() -> None:
    async def story() -> tuple[bool, dict[str, int]]:
        store = LaterLost()
        engine = AsyncRuleEngine(Policy((rule("tokens"),)), store=store)
        async with asyncio.timeout(10):
            verdict = await engine.reserve(ask(), cost=30)
        store.may_answer.set()
        for _ in range(5):
            await asyncio.sleep(0)
        looked = await engine.peek(ask(), cost=0)
        return verdict.allowed, {one.rule.id: one.decision.remaining for one in looked.rules}

    assert asyncio.run(story()) == (True, {"tokens": 100})


def test_where_nothing_was_done_there_is_nothing_to_give_back() -> None:
    class Unreachable(Ledger):
        def run(self, operation: Operation[Any]) -> Any:
            self.calls += 1
            raise StoreError("nobody there", reason="unreachable", is_undone=True)

    store = Unreachable()
    engine = RuleEngine(Policy((rule("tokens"),)), store=store)
    assert engine.reserve(ask(), cost=10).allowed
    assert store.calls == 1
