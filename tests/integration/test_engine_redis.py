"""The engine on real servers: every rule that matches in one round trip, all or nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.engine import AsyncRuleEngine, RuleEngine
from headgate.rules.reading import read_policy
from headgate.rules.request import Request
from tests.servers import ClusterSetup, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    engine = RuleEngine(POLICY, store=f"{url}?timeout=5", namespace=f"nothing-{topology}")
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
        engine = AsyncRuleEngine(POLICY, store=f"{url}?timeout=5", namespace=f"retry-{topology}")
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
