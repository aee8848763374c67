"""Requests in queues: what is held beside a turn, retries, and who gives up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.limits import Concurrency, LeakyQueue, Limit, TokenBucket
from headgate.policy.model import Idempotency, Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores import MemoryStore
from headgate.stores.operations import Operation, Take, TakeEach
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict

QUEUE = LeakyQueue(1, 10)


def rule(name: str, *limits: Limit, **fields: Any) -> Rule:
    return Rule(name, Match(), ("global",), {None: limits}, **fields)


def engine(*rules: Rule) -> RuleEngine:
    return RuleEngine(Policy(rules), clock=ManualClock(1_000))


def test_a_turn_is_not_held_and_lost_where_another_limit_refuses() -> None:
    gate = engine(rule("both", QUEUE, Concurrency(1, 60)), rule("amount", TokenBucket(100, 1)))
    first = gate.reserve(Request(), cost=5)
    assert (first.allowed, first.delay) == (True, 0)
    for _ in range(3):
        assert not gate.reserve(Request(), cost=5)
    gate.release(first)
    gate.settle(first, {"amount": 2})
    assert gate.reserve(Request(), cost=1).delay == 5.0  # as long as the first one's turn


def test_what_was_reserved_beside_a_turn_is_given_back_with_it() -> None:
    gate = engine(rule("stack", QUEUE, TokenBucket(10, 1)))
    gate.check(Request())
    held = gate.reserve(Request(), cost=1)
    assert held.delay == 1.0
    gate.refund(held)
    after = gate.reserve(Request(), cost=1)
    assert after.delay == 1.0
    assert after.rules[0].decision.limits[1].remaining == 8


def test_a_retry_waits_for_its_turn_and_is_free_elsewhere() -> None:
    retried = Idempotency(header="idempotency-key", ttl_ns=3_600 * SECOND)
    gate = engine(
        rule("queue", QUEUE, idempotency=retried),
        rule("bucket", TokenBucket(10, 1), idempotency=retried),
    )
    request = Request(headers=(("idempotency-key", "once"),))
    first, second = gate.check(request), gate.check(request)
    assert (first.delay, second.delay) == (0, 1.0)
    assert second.is_replay
    assert [one.rule.id for one in second.rules] == ["queue"]


class Slow(LoopStore):
    """A store whose answers to takes may be kept back."""

    def __init__(self) -> None:
        self.inner = MemoryStore(clock=ManualClock(1_000))
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def arun(self, operation: Operation[Any]) -> Any:
        reply = self.inner.run(operation)
        if isinstance(operation, Take | TakeEach):
            await self.may_answer.wait()
        return reply


def test_who_is_cancelled_while_the_store_answers_has_no_turn() -> None:
    async def scenario() -> list[float]:
        store = Slow()
        gate = AsyncRuleEngine(Policy((rule("queue", QUEUE),)), store=store)
        verdicts: list[Verdict] = [await gate.check(Request())]
        store.may_answer.clear()
        asking = asyncio.ensure_future(gate.check(Request()))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(0)
        store.may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        verdicts.append(await gate.check(Request()))
        await gate.aclose()
        return [one.delay for one in verdicts]

    assert asyncio.run(scenario()) == [0, 1.0]
