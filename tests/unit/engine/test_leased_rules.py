"""A rule whose counter is leased, through the engine: refunds, holds, fork and event loops."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from headgate import RateLimiter
from headgate.engine.request import Request
from headgate.limits import EXACT, Accuracy, FixedWindow
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores.base import group_name
from headgate.stores.layers.leases import LeasedStore
from headgate.testing import ManualClock
from tests.support.lease_remote import Remote

POLICY = read_policy(
    "version: 1\n"
    "rules: [{id: leased, key_by: ip, limit: 1000/hour fixed_window, accuracy: {batch: 10}}]\n"
)
REQUEST = Request("GET", "/", peer="203.0.113.7")


def new_store() -> tuple[Remote, LeasedStore]:
    remote = Remote(ManualClock(3_600))
    return remote, LeasedStore(remote, keeps=False)


def used_in(remote: Remote) -> int:
    group = group_name("headgate", "leased")
    store = remote.store
    return sum(store.used_in(group, key) for key in store.keys_in(group, most=9))


def test_what_a_lease_paid_for_is_refunded_and_settled_in_the_store() -> None:
    remote, store = new_store()
    engine = RuleEngine(POLICY, store=store)
    verdicts = [engine.check(REQUEST) for _ in range(60)]
    leased = [one for one in verdicts if one.source == "lease"]
    assert len(leased) >= 5
    for verdict in leased[:5]:
        engine.refund(verdict)
    hold = engine.reserve(REQUEST, cost=20)
    assert hold.source == "store"
    assert engine.settle(hold, 7)
    engine.close()  # returns the units that are left of the lease
    assert used_in(remote) == 60 - 5 + 7


def test_a_policy_that_begins_to_lease_decides_at_once() -> None:
    _, store = new_store()
    (rule,) = POLICY.rules
    engine = RuleEngine(replace(POLICY, rules=(replace(rule, accuracy=EXACT),)), store=store)
    engine.check(REQUEST)
    engine.replace(POLICY)
    while engine.check(REQUEST).source != "lease":
        pass
    verdict = engine.engine.decide_now(engine.in_force.compiled.plan(REQUEST))
    assert verdict is not None
    assert verdict.source == "lease"


def test_hit_many_says_that_a_lease_decided() -> None:
    _, store = new_store()
    limit = FixedWindow(1_000, 3_600)
    limiter = RateLimiter(limit, store=store, name="many", accuracy=Accuracy(batch=10))
    while limiter.hit("hot").source != "lease":
        pass
    first, other = limiter.hit_many(["hot", "cold"])
    assert (first.source, other.source) == ("lease", "store")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_spends_no_lease_of_a_plan_that_it_inherits() -> None:
    engine = RuleEngine(POLICY, store=new_store()[1])
    while engine.check(REQUEST).source != "lease":
        pass
    child = os.fork()
    if child == 0:  # pragma: no cover (in another process)
        os._exit(0 if engine.check(REQUEST).source == "store" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.check(REQUEST).source == "lease"


def test_a_second_event_loop_goes_on_with_the_plans_and_leases_of_the_first() -> None:
    remote, store = new_store()
    engine = AsyncRuleEngine(POLICY, store=store)

    async def check(times: int) -> list[str]:
        return [(await engine.check(REQUEST)).source for _ in range(times)]

    sources = [asyncio.run(check(40)) for _ in range(3)]
    assert all("lease" in one for one in sources)
    asyncio.run(engine.aclose())
    assert used_in(remote) == 120
