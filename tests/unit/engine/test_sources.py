"""Who decided, by rule, where some rules are exact and others go by what the store lends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.engine.request import Request
from headgate.limits import Accuracy, TokenBucket
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores.layers.leases import LeasedStore
from headgate.testing import ManualClock
from tests.support.async_stores import LoopStore
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict
    from headgate.stores.operations import Operation

LIMIT = TokenBucket(1_000, 1)
BATCH = Accuracy(batch=10)
REQUEST = Request("GET", "/", peer="203.0.113.7")
MANY = 60
"""Requests after which something has been lent."""


def rule(name: str, **fields: Any) -> Rule:
    return Rule(name, Match(), ("ip",), {None: (LIMIT,)}, **fields)


MIXED = (rule("exact"), rule("lent", accuracy=BATCH))
TRIED = rule("tried", accuracy=BATCH, mode="shadow")


class Lending(LeaseGrantingStore):
    """A store that lends, as those do which others share."""

    grants_leases = True


class Awaited(LoopStore):
    """The same for an event loop, that has to be waited for."""

    grants_leases = True

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._store = Lending(clock=clock)

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self._store.run(operation)


def sources(verdict: Verdict) -> dict[str, str]:
    return {one.rule.id: one.decision.source for one in verdict.rules}


def told(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    store = LeasedStore(Lending(clock=ManualClock(1_000.0)), keeps=False)
    engine = RuleEngine(Policy(rules), store=store)
    found = []
    for _ in range(MANY):
        found.append(sources(engine.check(REQUEST)))
        store.keep()  # which else a thread does
    return found


def told_in_a_loop(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    async def main() -> list[dict[str, str]]:
        store = LeasedStore(Awaited(ManualClock(1_000.0)), keeps=False)
        engine = AsyncRuleEngine(Policy(rules), store=store)
        found = []
        for _ in range(MANY):
            found.append(sources(await engine.check(REQUEST)))
            await store.akeep()  # which else a timer does
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("ask", [told, told_in_a_loop])
def test_beside_an_exact_rule_one_that_is_lent_units_says_so(ask: Any) -> None:
    assert {"exact": "store", "lent": "lease"} in ask(MIXED)


@pytest.mark.parametrize("ask", [told, told_in_a_loop])
def test_a_rule_in_shadow_beside_them_does_not_change_who_decided(ask: Any) -> None:
    assert {"exact": "store", "lent": "lease", "tried": "lease"} in ask((*MIXED, TRIED))
