"""A request that began under one policy ends by it, whatever is in force then."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.engine.request import Request
from headgate.policy.loader import read_policy
from headgate.policy.model import Policy
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from tests.support.interruption import Recorder

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict
    from headgate.stores.base import Store

OLD = replace(
    read_policy(
        """
version: 1
rules:
  - {id: rate, key_by: ip, limit: 10/hour fixed_window}
  - {id: slots, key_by: ip, concurrency: {limit: 2, ttl: 1h}}
"""
    ),
    revision=7,
)
NEW = replace(
    read_policy("version: 1\nrules: [{id: rate, key_by: ip, limit: 5/hour fixed_window}]"),
    revision=8,
)
REQUEST = Request(peer="192.0.2.1")


def left(store: Store, policy: Policy) -> list[int]:
    """What remains of each rule of *policy*."""
    engine = RuleEngine(policy, store=store)
    return [one.decision.remaining for one in engine.peek(REQUEST, cost=0).rules]


def test_what_an_old_policy_charged_and_held_is_given_back_and_settled_by_it() -> None:
    store = MemoryStore(clock=ManualClock())
    engine = RuleEngine(OLD, store=store)
    held = engine.reserve(REQUEST, cost={"rate": 4})
    charged = engine.check(REQUEST)
    assert left(store, OLD) == [5, 0]
    for policy in (NEW, Policy()):
        engine.replace(policy)
    assert engine.settle(held, 1)
    engine.release(held)
    assert left(store, OLD) == [8, 1]
    engine.refund(charged)
    engine.release(charged)
    assert left(store, OLD) == [9, 2]


def test_a_request_in_flight_is_decided_by_the_policy_that_it_began_under() -> None:
    async def main() -> None:
        recorder = Recorder(has_futures=False)
        engine = AsyncRuleEngine(OLD, store=recorder)
        assert (await engine.check(REQUEST)).revision == 7  # its plan is known now
        asked = [asyncio.ensure_future(engine.check(REQUEST)) for _ in range(2)]
        await asyncio.sleep(0)
        engine.replace(NEW)
        old: list[Verdict] = await asyncio.gather(*asked)
        assert [(one.revision, one.allowed) for one in old] == [(7, True), (7, False)]
        new = await engine.check(REQUEST)
        assert (new.revision, [one.rule.id for one in new.rules]) == (8, ["rate"])
        assert new.rules[0].decision.limit == NEW.rules[0].limits[None][0]
        assert new.rules[0].decision.remaining == 2, "of 5: two were charged before"
        for one in old:
            await engine.release(one)
        assert left(recorder.inner, OLD) == [7, 1]
        await engine.aclose()

    asyncio.run(main())
