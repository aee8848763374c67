"""The rules of a policy while the store is gone, and when it is back: both engines alike."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import OnFailure
from headgate.engine.request import Request
from headgate.errors import StoreError
from headgate.limits import Accuracy, Concurrency, FixedWindow, Limit, TokenBucket
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.model import Idempotency, Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores.base import Accuracies, group_name
from headgate.stores.factory import unwrapped
from headgate.stores.operations import TakeEach
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.failing_fallback import FailingStore, reconcile
from tests.support.unbroken_stores import unbroken, unbroken_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.operations import Operation
    from headgate.testing import ManualClock

TEN = FixedWindow(10, 3_600)
HALF = Fraction(1, 2)
BATCH = Accuracy(batch=5)


def rule(name: str, *limits: Limit, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: limits or (TEN,)}, **fields)


def ask(**headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request("POST", "/", headers=lines, peer="1.2.3.4")


class Awaited(LoopStore):
    grants_leases = True

    def __init__(self, store: FailingStore) -> None:
        self.clock: ManualClock = store.clock
        self.sync = store
        self.accuracies: Accuracies = {}

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self.sync.run(operation)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies


class Desk:
    """An engine with a failing store; its verbs are called, not awaited."""

    def __init__(self, runner: asyncio.Runner | None, rules: tuple[Rule, ...]) -> None:
        self.store = FailingStore()
        self._runner = runner
        self.engine: Any
        if runner is None:
            self.engine = RuleEngine(Policy(rules), store=unbroken(self.store))
        else:
            store = unbroken_async(Awaited(self.store))
            self.engine = AsyncRuleEngine(Policy(rules), store=store)

    def __getattr__(self, verb: str) -> Any:
        asked = getattr(self.engine, verb)
        if self._runner is None:
            return asked
        runner = self._runner
        return lambda *given, **named: runner.run(asked(*given, **named))

    def go(self) -> None:
        self.store.fault = "circuit_open"

    def come_back(self) -> None:
        self.store.fault = None
        self.store.clock.advance(2)
        self.peek(ask())
        reconcile(self.engine.engine.fallback, self.store)

    def used(self, name: str) -> int:
        group = group_name("headgate", name)
        keys = self.store.inner.keys_in(group, most=9)
        return sum(self.store.inner.used_in(group, key) for key in keys)


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Iterator[Any]:
    with asyncio.Runner() as runner:
        given = None if request.param == "sync" else runner
        yield lambda *rules: Desk(given, rules)


def sources(verdict: Any) -> list[str]:
    return [one.decision.source for one in verdict.rules]


def test_a_rule_that_fails_open_is_capped_at_its_share_and_charged_later(make: Any) -> None:
    desk = make(rule("a", on_failure=OnFailure(share=HALF)))
    desk.go()
    verdicts = [desk.check(ask()) for _ in range(7)]
    assert [one.source for one in verdicts] == ["fail_open"] * 5 + ["fallback"] * 2
    assert verdicts[-1].retry_after == 2_400
    desk.come_back()
    assert desk.used("a") == 5
    assert desk.check(ask()).source == "store"


def test_all_modes_at_once_are_all_or_nothing(make: Any) -> None:
    desk = make(
        rule("open"),
        rule("local", FixedWindow(3, 3_600), on_failure=OnFailure("local")),
        rule("late", on_failure=OnFailure(open_ns=60 * SECOND, then="local")),
        rule("shadow", FixedWindow(1, 3_600), mode="shadow"),
    )
    desk.go()
    verdicts = [desk.check(ask()) for _ in range(4)]
    assert [one.allowed for one in verdicts] == [True, True, True, False]
    assert sources(verdicts[0]) == ["fail_open", "local", "fail_open", "fail_open"]
    assert verdicts[3].source == "local"
    desk.store.clock.advance(60)
    assert sources(desk.peek(ask()))[2] == "local"
    desk.come_back()
    assert [desk.used(name) for name in ("open", "local", "late", "shadow")] == [3, 3, 3, 0]


def test_a_closed_rule_refuses_and_nothing_is_charged_here_or_there(make: Any) -> None:
    desk = make(rule("open"), rule("closed", on_failure=OnFailure("fail_closed")))
    desk.go()
    for _ in range(20):
        verdict = desk.check(ask())
        assert (verdict.allowed, verdict.source) == (False, "fail_closed")
    desk.come_back()
    assert desk.used("open") == desk.used("closed") == 0


def test_a_rule_becomes_closed_after_its_time(make: Any) -> None:
    desk = make(rule("a", on_failure=OnFailure(open_ns=60 * SECOND)))
    desk.go()
    assert desk.check(ask()).source == "fail_open"
    desk.store.clock.advance(60)
    assert desk.check(ask()).source == "fail_closed"


def test_stacked_limits_and_costs_are_capped_together(make: Any) -> None:
    desk = make(rule("a", TEN, TokenBucket(4, 1), on_failure=OnFailure(share=HALF)))
    desk.go()
    assert desk.check(ask(), cost=2).allowed
    refused = desk.check(ask(), cost=2)
    assert (refused.allowed, refused.source, refused.retry_after) == (False, "fallback", 4)
    assert desk.check(ask(), cost=0).allowed
    desk.come_back()
    assert (desk.used("a"), desk.used("a#1")) == (2, 1)


def test_slots_are_granted_within_the_share_and_given_back(make: Any) -> None:
    desk = make(rule("a", Concurrency(4, 600), on_failure=OnFailure(share=HALF)))
    desk.go()
    held = [desk.check(ask()) for _ in range(2)]
    assert all(held)
    assert not desk.check(ask())
    desk.release(held[0])
    assert desk.check(ask())
    assert not desk.check(ask())


def test_a_refund_gives_back_what_was_charged_here_and_nothing_is_told(make: Any) -> None:
    desk = make(rule("a"))
    desk.go()
    desk.refund(desk.check(ask(), cost=4))
    assert desk.peek(ask()).decision.remaining == 10
    desk.come_back()
    assert desk.used("a") == 0


def test_a_refund_when_the_store_is_back_is_made_where_it_was_charged(make: Any) -> None:
    desk = make(rule("a"))
    verdict = desk.check(ask(), cost=4)
    desk.go()
    here = desk.check(ask(), cost=3)
    desk.store.fault = None
    desk.refund(here)
    assert desk.used("a") == 4
    desk.refund(verdict)
    desk.come_back()
    assert desk.used("a") == 0


def test_what_was_reserved_and_settled_without_the_store_is_told_once(make: Any) -> None:
    desk = make(rule("a"), rule("known"))
    desk.go()
    verdict = desk.reserve(ask(), cost={"a": 6})
    assert not desk.settle(verdict, 4)
    assert desk.peek(ask()).rules[0].decision.remaining == 6
    desk.come_back()
    assert (desk.used("a"), desk.used("known")) == (4, 1)
    assert desk.settle(verdict, 4), "it may be tried again, and charges nothing more"
    desk.come_back()
    assert (desk.used("a"), desk.used("known")) == (4, 1)


def test_what_was_reserved_without_the_store_and_settled_with_it_is_told_once(make: Any) -> None:
    desk = make(rule("a"))
    desk.go()
    verdict = desk.reserve(ask(), cost=6)
    desk.come_back()
    assert desk.used("a") == 0
    desk.settle(verdict, 4)
    desk.come_back()
    assert desk.used("a") == 4


def test_what_was_reserved_and_settled_without_the_store_can_be_given_back(make: Any) -> None:
    desk = make(rule("a"))
    desk.go()
    verdict = desk.reserve(ask(), cost=2)
    desk.settle(verdict, 6)
    desk.refund(verdict)
    assert desk.peek(ask()).decision.remaining == 10
    desk.come_back()
    assert desk.used("a") == 0


def test_a_time_out_that_may_have_charged_is_not_charged_again(make: Any) -> None:
    desk = make(rule("a"))
    desk.store.loses_answers = True
    assert desk.check(ask()).source == "fail_open"
    desk.store.loses_answers = False
    desk.come_back()
    assert desk.used("a") == 1


# ---- how exactly counters are kept --------------------------------------------------------


def test_the_terms_of_a_policy_are_those_of_rules_that_say_so() -> None:
    found = CompiledPolicy(
        Policy(
            (
                rule("exact"),
                rule("batch", TEN, FixedWindow(5, 60), accuracy=BATCH),
                rule("once", accuracy=BATCH, idempotency=Idempotency(SECOND)),
                rule("slots", Concurrency(1, 60), TEN, accuracy=BATCH),
                rule("denials", accuracy=Accuracy(denials_ns=SECOND)),
            )
        )
    ).accuracies
    assert set(found) == {
        group_name("headgate", name) for name in ("batch", "batch#1", "once", "slots#1", "denials")
    }


def test_a_group_that_has_places_for_some_tiers_is_kept_exactly() -> None:
    tiers: Any = {"free": (TEN,), "paid": (Concurrency(1, 60), TEN)}
    found = CompiledPolicy(Policy((Rule("a", Match(), ("ip",), tiers, accuracy=BATCH),))).accuracies
    assert set(found) == {group_name("headgate", "a#1")}


def test_the_store_is_told_of_the_terms_whenever_a_policy_is_put_in_force() -> None:
    store = Awaited(FailingStore())
    engine = AsyncRuleEngine(Policy((rule("a", accuracy=BATCH),)), store=store)
    assert unwrapped(engine.engine.store) is store
    assert store.accuracies == {group_name("headgate", "a"): BATCH}
    engine.replace(Policy((rule("b", accuracy=BATCH), rule("c"))))
    assert store.accuracies == {group_name("headgate", "b"): BATCH}
    engine.in_force.replace(Policy())
    assert store.accuracies == {}


def test_two_policies_on_one_store_keep_their_terms() -> None:
    store = Awaited(FailingStore())
    one = AsyncRuleEngine(Policy((rule("a", accuracy=BATCH),)), store=store, namespace="1")
    AsyncRuleEngine(Policy((rule("a", accuracy=BATCH),)), store=store, namespace="2")
    one.replace(Policy((rule("b", accuracy=BATCH),)))
    assert group_name("1", "b") in store.accuracies
    assert group_name("1", "a") not in store.accuracies


@pytest.mark.parametrize("has_shadow", [False, True])
def test_a_decision_of_the_store_ends_the_outage(make: Any, *, has_shadow: bool) -> None:
    rules = [rule("open")] + ([rule("shadow", mode="shadow")] if has_shadow else [])
    desk = make(*rules)
    desk.go()
    desk.check(ask())
    assert desk.engine.engine.fallback.is_out
    desk.store.fault = None
    desk.store.clock.advance(2)
    assert desk.check(ask()).source == "store"
    assert not desk.engine.engine.fallback.is_out


def test_a_shadow_rule_that_the_store_fails_alone_changes_no_decision(make: Any) -> None:
    desk = make(rule("open"), rule("shadow", mode="shadow"))
    shadows = group_name("headgate", "shadow")

    def run(operation: Any) -> Any:
        takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
        replies = [
            StoreError("a part is gone", reason="circuit_open")
            if take.checks[0].group == shadows
            else desk.store.inner.run(take)
            for take in takes
        ]
        if isinstance(operation, TakeEach):
            return tuple(replies)
        if isinstance(replies[0], StoreError):
            raise replies[0]
        return replies[0]

    desk.store.run = run
    verdict = desk.check(ask())
    assert [(one.rule.id, one.decision.source) for one in verdict.rules] == [
        ("open", "store"),
        ("shadow", "fail_open"),
    ]
    assert verdict.allowed
    assert not desk.engine.engine.fallback.is_out
    assert (desk.used("open"), desk.used("shadow")) == (1, 0)
