"""The engine on real servers: every rule that matches in one round trip, all or nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headgate.engine.request import Request
from headgate.policy.loader import read_policy, read_policy_data
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.testing import ManualClock
from tests.support.servers import ClusterSetup, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.engine.verdict import Verdict

POLICY = read_policy(
    """
version: 1
rules:
  - {id: address, match: {endpoint: /**}, key_by: ip, limit: 100/hour; 50/hour fixed_window}
  - {id: all, match: {endpoint: /**}, key_by: global, limit: 10/hour sliding_window_log}
  - {id: trial, match: {endpoint: /**}, key_by: ip, limit: 3/hour, mode: shadow}
  - id: pay
    match: {endpoint: /pay}
    key_by: ip
    limit: 2/hour
    idempotency: {ttl: 1h}
"""
)

MANY = read_policy(
    "version: 1\nrules: [{id: all, key_by: global, limit: 1000/hour sliding_window_log}]\n"
)
ONE_RULE = read_policy(
    "version: 1\nrules: [{id: all, key_by: global, limit: 10/hour sliding_window_log}]\n"
)

ESTIMATES = read_policy(
    """
version: 1
rules:
  - {id: tokens, key_by: ip, limit: 100/hour}
  - {id: budget, key_by: global, limit: 1000/hour fixed_window}
  - {id: requests, key_by: ip, limit: 10/second burst 50}
  - {id: streams, key_by: ip, algorithm: concurrency, limit: 2, ttl: 1h}
  - {id: trial, key_by: ip, limit: 80/hour sliding_window_log, mode: shadow}
"""
)
TOKENS = ("tokens", "budget", "trial")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as running:
        yield running


def ask(path: str = "/", peer: str = "203.0.113.7", **headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request("POST", path, headers=lines, peer=peer)


def test_all_rules_are_asked_in_one_call(server: RedisServer) -> None:
    engine = RuleEngine(POLICY, store=server.url, namespace="one")
    engine.check(ask())
    before = server.calls("evalsha") + server.calls("eval")
    verdict = engine.check(ask())
    assert server.calls("evalsha") + server.calls("eval") == before + 1
    assert [part.rule.id for part in verdict.rules] == ["address", "all", "trial"]
    assert [part.decision.remaining for part in verdict.rules] == [48, 8, 1]
    engine.close()


@pytest.mark.parametrize("topology", ["server", "cluster"])
def test_what_one_rule_refuses_no_other_is_charged_for(
    topology: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(topology).url
    engine = RuleEngine(POLICY, store=url, namespace=f"nothing-{topology}")
    admitted = [engine.check(ask(peer=f"198.51.100.{n % 3}")).allowed for n in range(15)]
    assert admitted == [True] * 10 + [False] * 5
    refusal = engine.check(ask(peer="198.51.100.0"))
    assert refusal.denied_by is not None
    assert refusal.denied_by.rule.id == "all"
    assert refusal.rules[0].decision.limits[1].remaining == 50 - 4
    engine.close()


@pytest.mark.parametrize("topology", ["server", "cluster"])
def test_a_retry_is_charged_once_there_too(topology: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(topology).url

    async def story() -> None:
        engine = AsyncRuleEngine(POLICY, store=url, namespace=f"retry-{topology}")
        retries = [await engine.check(ask("/pay", idempotency_key="k1")) for _ in range(4)]
        assert [verdict.is_replay for verdict in retries] == [False, True, True, True]
        assert all(retries)
        assert await engine.check(ask("/pay", idempotency_key="k2"))
        assert not await engine.check(ask("/pay", idempotency_key="k3"))
        await engine.aclose()

    asyncio.run(story())


def test_a_changed_policy_keeps_the_counters(server: RedisServer) -> None:
    engine = RuleEngine(POLICY, store=server.url, namespace="changed")
    for _ in range(4):
        engine.check(ask())
    raised = (
        "version: 1\nrules: [{id: all, match: {endpoint: /**}, key_by: global, limit: 20/hour}]"
    )
    engine.replace(read_policy(raised))
    verdict = engine.check(ask())
    assert (verdict.revision, verdict.rules[0].decision.remaining) == (1, 15)
    engine.close()


@pytest.fixture(params=["server", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """Where a server is, then where a cluster is, whose counters are on different nodes."""
    found: str = request.getfixturevalue(request.param).url
    return found


def estimate(amount: int) -> dict[str, int]:
    return dict.fromkeys(TOKENS, amount)


def left_of(verdict: Verdict) -> list[int]:
    return [one.decision.remaining for one in verdict.rules]


def left(engine: RuleEngine, peer: str = "203.0.113.7") -> list[int]:
    """What tokens, budget, requests, streams and trial have left, asked of the store."""
    seen = engine.peek(ask(peer=peer), cost=0)
    assert {one.decision.source for one in seen.rules} == {"store"}
    return left_of(seen)


def test_an_estimate_is_held_and_settled_for_what_it_cost(url: str) -> None:
    clock = ManualClock(1_700_000_000)
    engine = RuleEngine(ESTIMATES, store=url, namespace="settled", clock=clock)
    verdict = engine.reserve(ask(), cost=estimate(60))
    assert verdict.held is not None
    assert verdict.held.ids == list(TOKENS)
    assert left(engine) == [40, 940, 49, 1, 20]
    clock.advance(0.2)
    assert left(engine) == [40, 940, 50, 1, 20], "what was charged at once comes back"
    assert engine.settle(verdict, {"tokens": 10, "budget": 70})
    engine.release(verdict)
    assert left(engine) == [90, 930, 50, 2, 20]
    over = engine.reserve(ask(), cost=estimate(50))
    assert [one.rule.id for one in over.would_deny] == ["trial"]
    assert engine.settle(over, {"tokens": 126})
    refused = engine.check(ask(), cost={"tokens": 1})
    assert (refused.allowed, refused.source) == (False, "store")
    assert refused.retry_after == pytest.approx(37 * 36, abs=1), "36 of debt, and one more"
    clock.advance(37 * 36)
    assert engine.check(ask(), cost={"tokens": 1})
    engine.close()


def test_what_one_rule_refuses_none_holds(url: str) -> None:
    engine = RuleEngine(ESTIMATES, store=url, namespace="refused")
    refused = engine.reserve(ask(), cost=estimate(101))
    assert (refused.allowed, refused.held, refused.slots) == (False, None, None)
    assert refused.denied_by is not None
    assert refused.denied_by.rule.id == "tokens"
    assert left(engine) == [100, 1_000, 50, 2, 80]
    streams = [engine.reserve(ask(), cost={}) for _ in range(2)]
    assert [verdict.held for verdict in streams] == [None, None]
    crowded = engine.reserve(ask(), cost=estimate(5))
    assert crowded.denied_by is not None
    assert crowded.denied_by.rule.id == "streams"
    assert (crowded.held, crowded.slots) == (None, None)
    tokens, budget, _, slots, _ = left(engine)
    assert (tokens, budget, slots) == (98, 998, 0)
    engine.close()


def test_a_reservation_lapses_there_too_and_is_charged_if_settled_later(url: str) -> None:
    clock = ManualClock(1_700_000_000)
    engine = RuleEngine(ESTIMATES, store=url, namespace="lapsed", clock=clock)
    verdict = engine.reserve(ask(), cost=estimate(60), ttl=5)
    clock.advance(4.999)
    assert left(engine) == [40, 940, 50, 1, 20]
    clock.advance(0.001)
    assert left(engine) == [100, 1_000, 50, 1, 80]
    assert not engine.settle(verdict, 30)
    assert left(engine) == [70, 970, 50, 1, 50]
    engine.close()


def test_a_refund_gives_back_what_was_held_charged_or_marked(url: str) -> None:
    engine = RuleEngine(ESTIMATES, store=url, namespace="refunded")
    verdict = engine.reserve(ask(), cost=estimate(60))
    engine.refund(verdict)
    engine.release(verdict)
    assert left(engine) == [100, 1_000, 50, 2, 80]
    engine.replace(POLICY)
    for _ in range(5):
        paid = engine.check(ask("/pay", idempotency_key="k"))
        assert (paid.allowed, paid.is_replay) == (True, False)
        engine.refund(paid)
    assert left_of(engine.peek(ask("/pay"), cost=0))[:2] == [50, 10]
    engine.close()


def test_as_many_reservations_are_admitted_at_once_as_fit(server: RedisServer) -> None:
    engine = RuleEngine(POLICY, store=server.url, namespace="crowd")
    with ThreadPoolExecutor(20) as pool:
        verdicts = list(pool.map(lambda _: engine.reserve(ask(), cost=1), range(50)))
    assert {verdict.source for verdict in verdicts} == {"store"}
    assert sum(verdict.allowed for verdict in verdicts) == 10
    assert all((verdict.held is not None) == verdict.allowed for verdict in verdicts)
    assert left_of(engine.peek(ask(), cost=0))[:2] == [40, 0]
    for verdict in verdicts:
        engine.settle(verdict, 0)
    assert left_of(engine.peek(ask(), cost=0)) == [50, 10, 3]
    engine.close()


def test_never_more_are_admitted_than_fit_in_an_event_loop(url: str) -> None:
    """In a cluster those who ask at the same time may be in each other's way, and all lose."""

    async def story() -> None:
        engine = AsyncRuleEngine(POLICY, store=url, namespace="loop-crowd")
        verdicts = await asyncio.gather(*(engine.reserve(ask(), cost=1) for _ in range(50)))
        admitted = sum(verdict.allowed for verdict in verdicts)
        assert {verdict.source for verdict in verdicts} == {"store"}
        assert admitted == 10 if "cluster" not in url else admitted <= 10
        seen = await engine.peek(ask(), cost=0)
        assert left_of(seen)[:2] == [50 - admitted, 10 - admitted]
        for verdict in verdicts:
            await engine.settle(verdict, 0)
        assert left_of(await engine.peek(ask(), cost=0)) == [50, 10, 3]
        later = [await engine.reserve(ask(), cost=1) for _ in range(11)]
        assert [verdict.allowed for verdict in later] == [True] * 10 + [False]
        await engine.aclose()

    asyncio.run(story())


def left_after(engine: RuleEngine, checks: int) -> list[int]:
    return [left_of(engine.check(ask()))[0] for _ in range(checks)]


def test_a_cached_plan_serves_a_forked_process_too(url: str) -> None:
    """Both check at the same time: on one connection each would read replies to the other."""
    engine = RuleEngine(MANY, store=url, namespace="forked")
    assert left_of(engine.check(ask())) == [999]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover (in another process)
        try:
            os.write(writing, " ".join(map(str, left_after(engine, 200))).encode())
        finally:
            os._exit(0)
    left_here = left_after(engine, 200)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left_there = list(map(int, os.read(reading, 4_096).split()))
    os.close(reading)
    os.close(writing)
    assert sorted(left_here + left_there, reverse=True) == list(range(998, 598, -1))
    engine.close()


def test_a_cached_plan_serves_event_loops_together_and_after_each_other(url: str) -> None:
    engine = AsyncRuleEngine(ONE_RULE, store=url, namespace="loops")
    left_there: list[int] = []
    both = threading.Barrier(2)

    async def check(*, is_beside: bool = False) -> None:
        for _ in range(2):
            if is_beside:
                await asyncio.to_thread(both.wait, 30)
            verdict = await engine.check(ask())
            assert verdict.source == "store"
            left_there.extend(left_of(verdict))

    asyncio.run(check())
    beside = threading.Thread(target=lambda: asyncio.run(check(is_beside=True)))
    beside.start()
    asyncio.run(check(is_beside=True))
    beside.join()
    asyncio.run(check())
    assert sorted(left_there, reverse=True) == [9, 8, 7, 6, 5, 4, 3, 2]
    asyncio.run(engine.aclose())


def test_a_caller_that_goes_away_holds_nothing_there(url: str) -> None:
    async def story() -> None:
        engine = AsyncRuleEngine(ESTIMATES, store=url, namespace="gone")
        await engine.peek(ask())
        for steps in range(12):
            gone = asyncio.ensure_future(engine.reserve(ask(), cost=estimate(60), ttl=3_600))
            for _ in range(steps):
                await asyncio.sleep(0)
            gone.cancel()
            (came,) = await asyncio.gather(gone, return_exceptions=True)
            if not isinstance(came, BaseException):  # it was granted before it was cancelled
                await engine.refund(came)
                await engine.release(came)
        tokens, budget, _, streams, trial = left_of(await engine.peek(ask(), cost=0))
        assert (tokens, budget, streams, trial) == (100, 1_000, 2, 80)
        await engine.aclose()

    asyncio.run(story())


def test_a_caller_that_goes_away_just_before_the_store_is_closed_is_charged_nothing(
    url: str,
) -> None:
    async def story() -> None:
        for steps in range(4):
            engine = AsyncRuleEngine(ONE_RULE, store=url, namespace="closed")
            await engine.peek(ask())
            gone = asyncio.ensure_future(engine.check(ask()))
            for _ in range(steps):
                await asyncio.sleep(0)
            gone.cancel()
            await engine.aclose()
            (came,) = await asyncio.gather(gone, return_exceptions=True)
            assert isinstance(came, asyncio.CancelledError)
        engine = AsyncRuleEngine(ONE_RULE, store=url, namespace="closed")
        assert left_of(await engine.peek(ask(), cost=0)) == [10]
        await engine.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("policy", "allowed"), [("fail_open", True), ("fail_closed", False), ("local", True)]
)
def test_without_the_server_each_rule_does_as_it_says(policy: str, allowed: bool) -> None:
    text = f"{{id: r, key_by: ip, limit: 100/hour, on_store_failure: {policy}}}"
    with RedisServer() as server:
        engine = RuleEngine(read_policy(f"version: 1\nrules: [{text}]"), store=server.url)
        verdict = engine.reserve(ask(), cost=60)
        assert verdict.source == "store"
    assert not engine.settle(verdict, 10)
    engine.refund(verdict)
    without = engine.reserve(ask(), cost=60)
    assert (without.allowed, without.source) == (allowed, policy)
    assert not engine.reserve(ask(), cost=60), "each goes on limiting"
    engine.close()


KINDS = (
    "2/hour",
    "2/hour gcra",
    "2/hour leaky_bucket",
    "2/hour fixed_window",
    "2/hour sliding_window_log",
    "2/hour sliding_window_counter",
)


@pytest.mark.parametrize("topology", ["server", "cluster"])
@pytest.mark.parametrize("limit", KINDS)
def test_overrides_hold_for_counters_on_servers_too(
    topology: str, limit: str, request: pytest.FixtureRequest
) -> None:
    running = request.getfixturevalue(topology)
    clock = ManualClock(720_000)
    rules = {"version": 1, "rules": [{"id": "a", "key_by": "ip", "limit": limit}]}
    until = "1970-01-09T08:10:00Z"  # ten minutes later
    more = {"rule": "a", "key": "ip=203.0.113.7", "extra": 2, "until": until}
    blocked = {"rule": "a", "key": "ip=203.0.113.8", "block": True, "until": until}
    engine = RuleEngine(
        read_policy_data(rules), store=running.url, namespace=f"over-{limit}", clock=clock
    )
    assert [engine.check(ask()).allowed for _ in range(3)] == [True, True, False]
    engine.replace(read_policy_data(rules | {"overrides": [more, blocked]}))
    assert [engine.check(ask()).allowed for _ in range(3)] == [True, True, False]
    assert engine.check(ask(peer="203.0.113.8")).source == "override"
    clock.advance(600)
    assert not engine.check(ask()).allowed
    assert engine.check(ask(peer="203.0.113.8")).source == "store"
    engine.close()
