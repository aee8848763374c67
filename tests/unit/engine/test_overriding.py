"""Counters that are blocked, or have more, for a while."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from headgate.engine.request import Request
from headgate.engine.use_cases import Engine
from headgate.engine.verdict import answer_of
from headgate.errors import LimitError, OptionError, StoreError
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.model import Idempotency, Match, Override, Policy, Rule
from headgate.responses import headers_for, response_for
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.runtime.drivers import adrive
from headgate.stores import MemoryStore, Store
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.unbroken_stores import unbroken, unbroken_async

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from headgate.stores.operations import Operation

TWO = FixedWindow(2, 600)
TEN = FixedWindow(10, 600)
START = 1_200
ENDS = 1_260
"""When overrides end, in seconds; a minute after the start."""

KEY = "ip=1.2.3.4"
ASK = Request("POST", "/", peer="1.2.3.4")
OTHER = Request("POST", "/", peer="4.3.2.1")


def rule(name: str, *limits: Limit, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: limits or (TWO,)}, **fields)


def block(name: str = "a", key: str = KEY) -> Override:
    return Override(name, key, ENDS * SECOND, block=True)


def more(extra: int, name: str = "a") -> Override:
    return Override(name, KEY, ENDS * SECOND, extra=extra)


class Ledger(Store):
    """A memory store that keeps a list of what it was asked, and can be gone."""

    def __init__(self, clock: ManualClock) -> None:
        self.inner = MemoryStore(clock=clock)
        self.asked: list[Operation[Any]] = []
        self.is_gone = False

    def run(self, operation: Operation[Any]) -> Any:
        self.asked.append(operation)
        if self.is_gone:
            raise StoreError("gone")
        return self.inner.run(operation)


class Awaited(LoopStore):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self._ledger.run(operation)


class Desk:
    """An engine of either kind with its clock and its store."""

    def __init__(
        self, runner: asyncio.Runner | None, rules: tuple[Rule, ...], *overrides: Override
    ) -> None:
        self.clock = ManualClock(START)
        self.ledger = Ledger(self.clock)
        self._runner = runner
        policy = Policy(rules, overrides=overrides)
        self.engine: Any
        if runner is None:
            self.engine = RuleEngine(policy, store=unbroken(self.ledger))
        else:
            self.engine = AsyncRuleEngine(policy, store=unbroken_async(Awaited(self.ledger)))
        # A store that is given has its own clock; overrides go by that of the engine.
        self.engine.in_force.compiled = CompiledPolicy(policy, clock=self.clock)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        asked = getattr(self.engine, verb)
        if self._runner is None:
            return cast("Callable[..., Any]", asked)
        runner, coroutine = self._runner, cast("Callable[..., Coroutine[Any, Any, Any]]", asked)
        return lambda *given, **named: runner.run(coroutine(*given, **named))

    def left(self, request: Request = ASK) -> dict[str, int]:
        """What each rule has left, whatever the overrides say."""
        policy = Policy(self.engine.in_force.policy.rules)
        seen = RuleEngine(policy, store=self.ledger.inner).peek(request, cost=0)
        return {one.rule.id: one.decision.remaining for one in seen.rules}


Desks = Callable[..., Desk]


@pytest.fixture(params=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Iterator[Desks]:
    """Make a desk for rules and overrides: a blocking engine, then an async one."""
    with asyncio.Runner() as runner:
        chosen = None if request.param == "sync" else runner
        yield lambda rules, *overrides: Desk(chosen, rules, *overrides)


def test_a_blocked_counter_refuses_until_the_time_and_not_a_nanosecond_longer(make: Desks) -> None:
    desk = make((rule("a"),), block())
    verdict = desk.check(ASK)
    assert (verdict.allowed, verdict.source, verdict.retry_after) == (False, "override", 60.0)
    assert verdict.denied_by.rule.id == "a"
    decision = verdict.denied_by.decision
    assert (decision.key, decision.limit) == (KEY, TWO)
    assert (decision.remaining, decision.reset_after) == (0, 60.0)
    desk.clock.advance_ns(60 * SECOND - 1)
    assert desk.check(ASK).retry_after_ns == 1
    desk.clock.advance_ns(1)
    assert desk.check(ASK).allowed


@pytest.mark.parametrize("cost", [0, 1, 100])
@pytest.mark.parametrize("verb", ["check", "peek", "reserve"])
def test_whatever_is_asked_of_it_a_blocked_counter_refuses_without_asking_the_store(
    make: Desks, verb: str, cost: int
) -> None:
    rules = (rule("a"), rule("b"), rule("slots", Concurrency(1, 60)), rule("s", mode="shadow"))
    desk = make(rules, block())
    verdict = getattr(desk, verb)(ASK, cost=cost)
    assert [one.rule.id for one in verdict.rules] == ["a"]
    assert not verdict.allowed
    assert (verdict.slots, verdict.held, desk.ledger.asked) == (None, None, [])


def test_nothing_is_charged_or_given_back_where_a_counter_is_blocked(make: Desks) -> None:
    desk = make((rule("a"), rule("b"), rule("s", mode="shadow")), block())
    for _ in range(5):
        verdict = desk.check(ASK)
        desk.refund(verdict)
        desk.release(verdict)
        assert desk.settle(desk.reserve(ASK, cost=2))
    assert desk.left() == {"a": 2, "b": 2, "s": 2}


def test_other_callers_and_other_rules_are_not_blocked(make: Desks) -> None:
    desk = make((rule("a"), rule("b")), block())
    assert desk.check(OTHER).allowed
    apart = make((rule("a", mode="off"), rule("b")), block())
    assert apart.check(ASK).allowed


def test_a_block_under_several_rules_tells_the_longest_wait(make: Desks) -> None:
    longer = Override("b", KEY, (ENDS + 5) * SECOND, block=True)
    verdict = make((rule("a"), rule("b")), block(), longer).check(ASK)
    assert (verdict.denied_by.rule.id, verdict.retry_after) == ("b", 65.0)


def test_each_of_stacked_limits_is_blocked(make: Desks) -> None:
    verdict = make((rule("a", TWO, TEN),), block()).check(ASK)
    parts = verdict.denied_by.decision.limits
    assert [(part.limit, part.remaining, part.source) for part in parts] == [
        (TWO, 0, "override"),
        (TEN, 0, "override"),
    ]


@pytest.mark.parametrize("verb", ["check", "reserve"])
def test_a_blocked_shadow_says_so_and_changes_nothing(make: Desks, verb: str) -> None:
    desk = make((rule("s", mode="shadow"), rule("a")), block("s"))
    verdict = getattr(desk, verb)(ASK, cost=1)
    assert verdict.allowed
    assert [one.rule.id for one in verdict.would_deny] == ["s"]
    assert verdict.would_deny[0].decision.source == "override"
    if verb == "reserve":
        desk.settle(verdict, 1)
    assert desk.left() == {"s": 2, "a": 1}
    desk.refund(desk.check(ASK))
    assert desk.left() == {"s": 2, "a": 1}


def test_a_blocked_shadow_alone_needs_no_store(make: Desks) -> None:
    desk = make((rule("s", mode="shadow"),), block("s"))
    verdict = desk.check(ASK)
    assert verdict.allowed
    assert [one.rule.id for one in verdict.would_deny] == ["s"]
    assert desk.ledger.asked == []


def test_a_store_that_is_gone_does_not_let_a_blocked_caller_in(make: Desks) -> None:
    desk = make((rule("a"), rule("s", mode="shadow")), block(), block("s"))
    desk.ledger.is_gone = True
    assert desk.check(ASK).source == "override"
    shadow = make((rule("a"), rule("s", mode="shadow")), block("s"))
    shadow.ledger.is_gone = True
    verdict = shadow.check(ASK)
    assert (verdict.allowed, verdict.source) == (True, "fail_open")
    assert [one.decision.source for one in verdict.would_deny] == ["override"]
    held = shadow.reserve(ASK, cost=1)
    shadow.ledger.is_gone = False
    shadow.settle(held)
    assert shadow.left() == {"a": 1, "s": 2}


def test_a_repeated_request_is_blocked_too(make: Desks) -> None:
    once = rule("a", idempotency=Idempotency(600 * SECOND))
    desk = make((once,), block())
    verdict = desk.check(Request("POST", "/", peer="1.2.3.4", headers=(("Idempotency-Key", "x"),)))
    assert (verdict.allowed, verdict.is_replay) == (False, False)


LARGER: list[Limit] = [
    TokenBucket(2, 0.001),
    GCRA(0.001, 2),
    LeakyBucket(2, 0.001),
    FixedWindow(2, 600),
    SlidingWindowLog(2, 600),
    SlidingWindowCounter(2, 600),
    Concurrency(2, 600),
]


@pytest.mark.parametrize("limit", LARGER, ids=str)
def test_extra_raises_the_limit_of_one_key_until_the_time(make: Desks, limit: Limit) -> None:
    desk = make((rule("a", limit),), more(3))
    verdicts = [desk.check(ASK) for _ in range(6)]
    assert [verdict.allowed for verdict in verdicts] == [True] * 5 + [False]
    assert verdicts[0].decision.limit.quota == 5
    assert [desk.check(OTHER).allowed for _ in range(3)] == [True, True, False]
    desk.clock.advance_ns(60 * SECOND)
    assert not desk.check(ASK).allowed
    assert desk.peek(ASK).decision.limit == limit


def test_extra_comes_on_top_of_what_was_used_and_stays_used(make: Desks) -> None:
    desk = make((rule("a"),))
    assert [desk.check(ASK).allowed for _ in range(3)] == [True, True, False]
    desk.engine.in_force.compiled = CompiledPolicy(
        Policy((rule("a"),), overrides=(more(1),)), clock=desk.clock
    )
    assert [desk.check(ASK).allowed for _ in range(2)] == [True, False]
    desk.clock.advance_ns(60 * SECOND)
    assert desk.peek(ASK).decision.remaining == 0


def test_extra_is_for_every_limit_and_every_tier(make: Desks) -> None:
    tiered = Rule("a", Match(), ("ip",), {"paid": (TEN, TWO), None: (TWO,)})
    desk = make((tiered,), more(5))
    paid = Request("POST", "/", peer="1.2.3.4", headers=(("x-tier", "paid"),))
    assert [part.limit.quota for part in desk.peek(paid).decision.limits] == [15, 7]
    assert desk.peek(ASK).decision.limit.quota == 7


def test_what_is_reserved_may_use_the_extra(make: Desks) -> None:
    desk = make((rule("a"),), more(3))
    held = desk.reserve(ASK, cost=5)
    assert held.allowed
    assert not desk.check(ASK).allowed
    assert desk.settle(held, 4)
    assert desk.check(ASK).allowed


def test_the_memory_store_of_an_engine_honours_both_on_its_quick_way() -> None:
    clock = ManualClock(START)
    policy = Policy((rule("a", TokenBucket(2, 0.001)),), overrides=(more(1),))
    engine = RuleEngine(policy, clock=clock)
    assert [engine.check(ASK).allowed for _ in range(4)] == [True, True, True, False]
    assert [engine.check(OTHER).allowed for _ in range(3)] == [True, True, False]
    engine.replace(Policy(policy.rules, overrides=(block(),)))
    assert engine.check(ASK).source == "override"
    clock.advance_ns(60 * SECOND)
    assert engine.check(ASK).source == "store"


def test_a_policy_without_a_clock_goes_by_the_time_of_the_system() -> None:
    past, future = Override("a", KEY, 1, block=True), Override("a", KEY, 2**62, block=True)
    one = RuleEngine(Policy((rule("a"),), overrides=(past,)))
    assert one.in_force.compiled.plan(ASK).blocked == ()
    one.replace(Policy((rule("a"),), overrides=(future,)))
    (planned,) = one.in_force.compiled.plan(ASK).blocked
    assert planned.block is not None
    assert planned.block.until_ns == 2**62


def test_all_that_limits_a_caller_knows_of_overrides() -> None:
    clock = ManualClock(START)
    rules = (rule("a"), rule("b"), Rule("c", Match(), ("ip", "endpoint"), {None: (TWO,)}))
    other = Override("c", f"{KEY}&endpoint=/", ENDS * SECOND, block=True)
    policy = Policy(rules, overrides=(block(), more(5, "b"), other))
    found = {each.rule.id: each for each in CompiledPolicy(policy, clock=clock).concerning(ASK)}
    assert found["a"].plan is not None
    blocked = found["a"].plan.block
    assert blocked is not None
    assert blocked.until_ns == ENDS * SECOND
    assert found["b"].limits == (FixedWindow(7, 600),)
    assert found["b"].plan is not None
    assert found["b"].plan.checks[0].limit == FixedWindow(7, 600)
    assert found["c"].plan is None


def test_an_override_of_a_rule_that_is_not_there_cannot_be_put_in_force() -> None:
    with pytest.raises(OptionError, match="'b', which is unknown"):
        CompiledPolicy(Policy((rule("a"),), overrides=(block("b"),)), clock=time.time_ns)


def test_an_extra_that_makes_a_limit_too_large_cannot_be_put_in_force() -> None:
    with pytest.raises(LimitError):
        CompiledPolicy(Policy((rule("a"),), overrides=(more(LARGEST_QUOTA),)), clock=time.time_ns)


def test_a_blocked_caller_is_told_so() -> None:
    engine = RuleEngine(Policy((rule("a"),), overrides=(block(),)), clock=ManualClock(START))
    answer = answer_of(engine.check(ASK))
    told = response_for(answer, now_ns=START * SECOND)
    assert told.status == 429
    assert json.loads(told.body) == {
        "error": "blocked",
        "message": "Blocked for the time being. Try again in 60 seconds.",
        "limit": "a",
        "retry_after_ms": 60_000,
        "retry_after": 60,
    }
    assert headers_for(answer, now_ns=START * SECOND) == [
        ("X-RateLimit-Limit", "2"),
        ("X-RateLimit-Remaining", "0"),
        ("X-RateLimit-Reset", str(ENDS)),
        ("RateLimit-Policy", '"a";q=2;w=600'),
        ("RateLimit", '"a";r=0;t=60'),
        ("Retry-After", "60"),
    ]
    problem = json.loads(response_for(answer, now_ns=0, accept="application/problem+json").body)
    assert problem["type"].endswith("#abnormal-usage-detected")
    assert problem["violated-policies"] == ["a"]


def test_a_blocked_caller_under_a_rule_that_is_not_told_hears_nothing_of_it() -> None:
    hidden = Policy((rule("a", headers="redacted"),), overrides=(block(),))
    answer = answer_of(RuleEngine(hidden, clock=ManualClock(START)).check(ASK))
    assert json.loads(response_for(answer, now_ns=0).body) == {
        "error": "rate_limit_exceeded",
        "message": "Too many requests. Try again later.",
    }


def test_a_store_that_never_waits_decides_at_once() -> None:
    policy = Policy((rule("a"), rule("b", TEN)))
    engine = CompiledPolicy(policy, clock=time.time_ns)
    runner = Engine("memory://")
    verdicts = [runner.decide_now(engine.plan(ASK)) for _ in range(3)]
    assert [verdict is not None and verdict.allowed for verdict in verdicts] == [True, True, False]
    assert asyncio.run(adrive(runner.decide(engine.plan(ASK)))).denied_by is not None


def test_a_store_that_may_wait_is_not_asked_at_once() -> None:
    clock = ManualClock(START)
    ledger = Ledger(clock)
    runner = Engine(Awaited(ledger))
    rules = (rule("a"), rule("b", TEN))
    assert runner.decide_now(CompiledPolicy(Policy(rules)).plan(ASK)) is None
    assert ledger.asked == []
    blocked = CompiledPolicy(Policy(rules, overrides=(block(),)), clock=clock)
    refused = runner.decide_now(blocked.plan(ASK))
    assert refused is not None
    assert not refused.allowed
    unlimited = runner.decide_now(CompiledPolicy(Policy()).plan(ASK))
    assert unlimited is not None
    assert unlimited.allowed
