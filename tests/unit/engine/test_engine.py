"""From a request to one verdict, over the memory store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import OnFailure
from headgate.engine.request import Request
from headgate.engine.use_cases import Engine
from headgate.engine.verdict import answer_of
from headgate.errors import CostError, OptionError, StoreError
from headgate.limits import Concurrency, FixedWindow, Limit, TokenBucket
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.model import (
    Cost,
    EndpointCost,
    Idempotency,
    Identity,
    Match,
    Policy,
    Rule,
    Source,
)
from headgate.rule_engine import AsyncRuleEngine, PolicyInForce, RuleEngine
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Operation, TakeEach
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.unbroken_stores import unbroken

if TYPE_CHECKING:
    from collections.abc import Callable

TEN = FixedWindow(10, 60)
TWO = FixedWindow(2, 60)


def rule(name: str, *limits: Limit, endpoint: str = "/**", **fields: Any) -> Rule:
    match = fields.pop("match", Match(endpoints=(endpoint,)))
    by = fields.pop("key_by", ("ip",))
    return Rule(name, match, by, fields.pop("by_tier", {None: limits}), **fields)


def ask(path: str = "/", peer: str = "1.2.3.4", method: str = "GET", **headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(method, path, headers=lines, peer=peer)


def engine(*rules: Rule, **options: Any) -> RuleEngine:
    identity = options.pop("identity", Identity())
    options.setdefault("clock", ManualClock(1_200))
    return RuleEngine(Policy(rules, identity, 7), **options)


class Counting(Store):
    """A memory store that counts the operations it is asked for, and can be gone."""

    def __init__(self) -> None:
        self.inner = MemoryStore(clock=ManualClock(1_200))
        self.asked: list[Operation[Any]] = []
        self.is_gone = False

    def run(self, operation: Operation[Any]) -> Any:
        self.asked.append(operation)
        if self.is_gone:
            raise StoreError("gone")
        return self.inner.run(operation)


def test_a_request_that_no_rule_matches_is_allowed_without_asking_anybody() -> None:
    store = Counting()
    verdict = engine(rule("login", TEN, endpoint="/login"), store=store, clock=None).check(ask("/"))
    assert (verdict.allowed, verdict.rules, verdict.revision) == (True, (), 7)
    assert (verdict.decision, verdict.retry_after, verdict.source) == (None, 0.0, "store")
    assert store.asked == []


def test_every_rule_that_matches_is_checked_all_or_nothing_in_one_operation() -> None:
    store = Counting()
    one = engine(rule("wide", TEN), rule("tight", TWO, endpoint="/login"), store=store, clock=None)
    verdicts = [one.check(ask("/login")) for _ in range(4)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False, False]
    assert len(store.asked) == 4
    refusal = verdicts[-1]
    assert refusal.denied_by is not None
    assert refusal.denied_by.rule.id == "tight"
    assert [part.decision.remaining for part in refusal.rules] == [8, 0]
    assert refusal.retry_after == refusal.denied_by.decision.retry_after
    assert one.check(ask("/other")).rules[0].decision.remaining == 7


def test_stacked_limits_of_a_rule_have_counters_of_their_own() -> None:
    verdict = engine(rule("stack", TEN, TWO)).check(ask())
    assert [part.remaining for part in verdict.rules[0].decision.limits] == [9, 1]


def test_callers_are_told_apart_and_rules_too() -> None:
    one = engine(rule("a", TWO), rule("b", TEN, key_by=("global",)))
    assert one.check(ask(peer="1.1.1.1")).rules[1].decision.remaining == 9
    other = one.check(ask(peer="2.2.2.2"))
    assert [part.decision.remaining for part in other.rules] == [1, 8]


def test_limits_go_by_tier() -> None:
    tiers = {"free": (TWO,), "paid": (TEN,)}
    one = engine(rule("tiers", by_tier=tiers))
    assert one.check(ask(x_tier="free")).rules[0].decision.remaining == 1
    assert one.check(ask(peer="2.2.2.2", x_tier="paid")).rules[0].decision.remaining == 9
    assert one.check(ask(x_tier="other")).rules == ()
    default = engine(rule("tiers", by_tier={**tiers, None: (FixedWindow(5, 60),)}))
    assert default.check(ask(x_tier="other")).rules[0].decision.remaining == 4


def test_a_rule_in_shadow_counts_and_never_refuses() -> None:
    one = engine(rule("live", TEN), rule("trial", TWO, mode="shadow"))
    verdicts = [one.check(ask()) for _ in range(4)]
    assert all(verdicts)
    assert [bool(verdict.would_deny) for verdict in verdicts] == [False, False, True, True]
    assert [part.rule.id for part in verdicts[-1].enforced] == ["live"]
    assert [told.name for told in answer_of(verdicts[-1]).rules] == ["live"]


def test_shadows_alone_and_rules_that_are_off() -> None:
    one = engine(rule("trial", TWO, mode="shadow"), rule("gone", TWO, mode="off"))
    assert [one.check(ask()).allowed for _ in range(4)] == [True] * 4
    assert [part.rule.id for part in one.check(ask()).rules] == ["trial"]


def test_costs_come_from_the_rule_or_from_the_caller() -> None:
    cost = Cost(default=2, endpoints=(EndpointCost("/pdf", 5, "POST"),), header="x-cost", most=4)
    one = engine(rule("costs", FixedWindow(100, 60), cost=cost))
    used = [
        one.check(ask("/a")),
        one.check(ask("/pdf", method="POST")),
        one.check(ask("/a", x_cost="3")),
        one.check(ask("/a", x_cost="99")),
        one.check(ask("/a"), cost=7),
        one.check(ask("/a"), cost=0),
    ]
    assert [verdict.rules[0].cost for verdict in used] == [2, 5, 3, 4, 7, 0]
    with pytest.raises(CostError):
        one.check(ask(), cost=-1)


def test_peek_consumes_nothing() -> None:
    one = engine(rule("a", TWO))
    assert [one.peek(ask()).rules[0].decision.remaining for _ in range(3)] == [2, 2, 2]
    assert one.check(ask()).rules[0].decision.remaining == 1


def test_the_request_that_is_repeated_is_charged_once() -> None:
    clock = ManualClock(1_200)
    once = Idempotency(ttl_ns=30 * SECOND)
    one = engine(rule("pay", TWO, idempotency=once), clock=clock)
    first, again = one.check(ask(idempotency_key='"k1"')), one.check(ask(idempotency_key='"k1"'))
    assert (first.allowed, first.is_replay) == (True, False)
    assert (again.allowed, again.is_replay) == (True, True)
    assert one.peek(ask()).rules[0].decision.remaining == 1
    assert one.check(ask(idempotency_key='"k2"')).allowed
    refused = one.check(ask(idempotency_key='"k3"'))
    assert not refused.allowed
    assert one.check(ask(idempotency_key='"k1"')).is_replay
    assert not one.check(ask(peer="9.9.9.9", idempotency_key='"k1"')).is_replay
    clock.advance(31)
    assert not one.check(ask(idempotency_key='"k3"')).allowed
    assert not one.check(ask(idempotency_key='"k1"')).is_replay
    clock.advance(60)
    assert one.check(ask(idempotency_key='"k3"')).allowed


def test_a_refused_request_may_be_tried_again_with_the_same_key() -> None:
    clock = ManualClock(1_200)
    one = engine(
        rule("pay", FixedWindow(1, 60), idempotency=Idempotency(3_600 * SECOND)), clock=clock
    )
    assert one.check(ask())
    assert not one.check(ask(idempotency_key="k"))
    clock.advance(60)
    second = one.check(ask(idempotency_key="k"))
    assert (second.allowed, second.is_replay) == (True, False)


def test_a_retry_opens_no_other_rule() -> None:
    once = Idempotency(3_600 * SECOND)
    one = engine(
        rule("pay", FixedWindow(100, 60), idempotency=once),
        rule("signup", TWO, endpoint="/signup"),
        rule("streams", Concurrency(1, 60), endpoint="/stream"),
    )
    assert one.check(ask("/ping", idempotency_key="k"))
    assert not one.check(ask("/signup", idempotency_key="k")).is_replay, "another endpoint"
    replays = [one.check(ask("/signup", idempotency_key="k")) for _ in range(3)]
    assert [verdict.allowed for verdict in replays] == [True, False, False]
    assert all(verdict.is_replay for verdict in replays)
    assert replays[1].denied_by is not None
    assert replays[1].denied_by.rule.id == "signup"
    assert one.check(ask("/stream", idempotency_key="s"))
    again = one.check(ask("/stream", idempotency_key="s"))
    assert (again.allowed, again.is_replay) == (False, True)
    assert one.peek(ask("/ping")).rules[0].decision.remaining == 97


def test_two_callers_with_one_retry_key_are_two() -> None:
    once = Idempotency(3_600 * SECOND)
    one = engine(rule("all", TEN, key_by=("global",), idempotency=once))
    assert not one.check(ask(x_api_key="a", idempotency_key="k")).is_replay
    assert not one.check(ask(x_api_key="b", idempotency_key="k")).is_replay
    assert one.check(ask(x_api_key="a", idempotency_key="k", peer="9.9.9.9")).is_replay


def test_a_retry_is_not_counted_by_a_shadow_that_would_not_charge_it() -> None:
    once = Idempotency(3_600 * SECOND)
    one = engine(rule("trial", TWO, mode="shadow", idempotency=once))
    verdicts = [one.check(ask(idempotency_key="k")) for _ in range(4)]
    assert [len(verdict.would_deny) for verdict in verdicts] == [0, 0, 0, 0]


def test_without_the_store_local_rules_stay_all_or_nothing() -> None:
    store = Counting()
    one = engine(
        rule("hour", TEN, on_failure=OnFailure("local")),
        rule("minute", TWO, on_failure=OnFailure("local")),
        store=store,
        clock=None,
    )
    store.is_gone = True
    assert [one.peek(ask()).allowed for _ in range(5)] == [True] * 5
    assert [one.check(ask()).allowed for _ in range(5)] == [True, True, False, False, False]
    assert one.peek(ask()).rules[0].decision.remaining == 8


def test_slots_granted_without_the_store_are_given_back() -> None:
    store = Counting()
    slots = rule("s", Concurrency(1, 3_600), on_failure=OnFailure("local"))
    one = engine(slots, store=store, clock=None)
    store.is_gone = True
    for _ in range(4):
        verdict = one.check(ask())
        assert verdict.allowed
        assert not one.check(ask())
        one.release(verdict)


def test_a_caller_that_goes_away_leaves_no_slot_behind() -> None:
    class Slow(LoopStore):
        def __init__(self) -> None:
            self.inner = MemoryStore(clock=ManualClock(1_200))
            self.is_slow = True

        async def arun(self, operation: Operation[Any]) -> Any:
            reply = self.inner.run(operation)
            if self.is_slow:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return reply

    async def story() -> None:
        store = Slow()
        one = AsyncRuleEngine(Policy((rule("s", Concurrency(1, 3_600)),)), store=store)
        for _ in range(3):
            gone = asyncio.ensure_future(one.check(ask()))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        store.is_slow = False
        assert await one.check(ask())
        await one.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("policies", "allowed", "source"),
    [
        (("fail_open",), True, "fail_open"),
        (("fail_closed",), False, "fail_closed"),
        (("fail_open", "fail_closed"), False, "fail_closed"),
        (("local",), True, "local"),
    ],
)
def test_without_the_store_each_rule_does_as_it_says(
    policies: tuple[Any, ...], allowed: bool, source: str
) -> None:
    store = Counting()
    rules = [rule(f"r{n}", TWO, on_failure=OnFailure(policy)) for n, policy in enumerate(policies)]
    one = engine(*rules, store=store, clock=None)
    store.is_gone = True
    verdict = one.check(ask())
    assert (verdict.allowed, verdict.source) == (allowed, source)


def test_a_local_rule_goes_on_limiting_without_the_store() -> None:
    store = Counting()
    one = engine(rule("r", TWO, on_failure=OnFailure("local")), store=unbroken(store), clock=None)
    store.is_gone = True
    assert [one.check(ask()).allowed for _ in range(3)] == [True, True, False]
    store.is_gone = False
    assert one.check(ask()).source == "store"


def test_slots_are_held_until_they_are_released() -> None:
    one = engine(rule("streams", Concurrency(1, 60), TEN))
    held = one.check(ask())
    assert held.allowed
    assert held.slots is not None
    refused = one.check(ask())
    assert (refused.allowed, refused.slots) == (False, None)
    one.release(held)
    one.release(refused)
    assert one.check(ask())
    assert engine(rule("a", TEN)).check(ask()).slots is None


def test_slots_in_shadow_are_given_back_too_even_of_a_refused_request() -> None:
    one = engine(rule("r", FixedWindow(1, 60)), rule("s", Concurrency(2, 60), mode="shadow"))
    for n in range(4):
        verdict = one.check(ask())
        assert verdict.allowed == (n == 0)
        assert verdict.rules[1].decision.remaining == 1
        one.release(verdict)


def test_peek_takes_no_slots() -> None:
    one = engine(rule("s", Concurrency(1, 60)))
    assert one.peek(ask()).slots is None
    assert one.check(ask())


def test_a_policy_is_replaced_while_counters_stay() -> None:
    one = engine(rule("a", TEN), rule("b", TWO))
    one.check(ask())
    one.replace(Policy((rule("a", FixedWindow(20, 60)), rule("c", TWO))))
    verdict = one.check(ask())
    assert [part.decision.remaining for part in verdict.rules] == [18, 1]


def test_the_revision_is_that_of_the_source_and_is_counted_where_it_has_none() -> None:
    one = engine(rule("a", TEN))
    assert one.replace(Policy((rule("b", TWO),), revision=50)) == 50
    assert one.replace(Policy((rule("b", TWO),), revision=3)) == 3
    assert one.check(ask()).revision == 3
    assert one.replace(Policy((rule("c", TWO),))) == 4
    assert one.replace(Policy((rule("c", TWO),))) == 4
    assert one.check(ask()).revision == 4


def test_nodes_that_began_with_and_without_rules_say_the_same_revision() -> None:
    early, late = PolicyInForce(Policy()), PolicyInForce(Policy())
    assert early.replace(Policy()) == 0
    rules = Policy((rule("a", TEN),), revision=1)
    assert early.replace(rules) == late.replace(rules) == 1


def test_a_policy_that_cannot_be_put_in_force_changes_nothing() -> None:
    in_force = PolicyInForce(Policy((rule("a", TEN),), revision=4))
    before = in_force.compiled
    broken = Identity(sources={"tier": Source(lookup="nobody")})
    with pytest.raises(ValueError, match="nobody"):
        in_force.replace(Policy((), broken))
    assert in_force.compiled is before


def test_the_plan_says_what_will_be_asked_without_asking() -> None:
    plan = CompiledPolicy(Policy((rule("a", TEN, TokenBucket(5, 1)),))).plan(ask())
    operation = plan.operation()
    assert isinstance(operation, TakeEach)
    assert [check.key for check in operation.takes[0].checks] == ["ip=1.2.3.4"] * 2
    assert len({check.group for check in operation.takes[0].checks}) == 2


def test_in_an_event_loop_the_same() -> None:
    async def story() -> None:
        clock = ManualClock(1_200)
        rules = (rule("a", TWO), rule("s", Concurrency(1, 60), endpoint="/slot"))
        one = AsyncRuleEngine(Policy(rules, revision=2), clock=clock)
        assert [(await one.check(ask())).allowed for _ in range(3)] == [True, True, False]
        assert (await one.peek(ask(peer="2.2.2.2"))).rules[0].decision.remaining == 2
        held = await one.check(ask("/slot", peer="3.3.3.3"))
        assert not await one.check(ask("/slot", peer="3.3.3.3"))
        await one.release(held)
        await one.release(await one.check(ask("/slot", peer="3.3.3.3")))
        assert (await one.check(ask(), cost=0)).revision == 2
        await one.aclose()

    asyncio.run(story())


def test_a_plan_that_two_engines_share_is_decided_by_the_store_of_each() -> None:
    compiled = PolicyInForce(Policy((rule("a", TEN),))).compiled
    engines = [Engine(MemoryStore(clock=ManualClock(1_200))) for _ in range(2)]
    plan = compiled.plan(ask())
    for left in (9, 8):
        for one in engines:
            verdict = one.decide_now(plan)
            assert verdict is not None
            assert [part.decision.remaining for part in verdict.rules] == [left]


def test_namespaces_keep_policies_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(clock=ManualClock(1_200))
    make: Callable[[str], RuleEngine] = lambda name: engine(  # noqa: E731
        rule("a", TWO), store=store, clock=None, namespace=name
    )
    make("one").check(ask())
    assert make("other").check(ask()).rules[0].decision.remaining == 1


def test_a_rule_that_counts_by_what_nobody_knows_is_never_put_in_force() -> None:
    in_force = PolicyInForce(Policy((rule("a", TEN),)))
    before = in_force.compiled
    with pytest.raises(OptionError, match="no part of a key: 'nobody'"):
        in_force.replace(Policy((rule("a", TEN, key_by=("nobody",)),)))
    assert in_force.compiled is before
