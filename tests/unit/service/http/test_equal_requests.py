"""Equal requests share a plan; each is decided as if it were the first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headgate.policy.loader import read_policy
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from tests.support.http_app import START, app_of, ask, check

RULE = "{id: per-user, match: {endpoint: /api/**}, key_by: user_id, limit: 3/minute}"
ONE = f"version: 1\nrules: [{RULE}]"


def _statuses(
    app: Any, count: int, path: str = "/api/x", user: str = "ada", **more: Any
) -> list[int]:
    asked = [
        ask(app, "GET", f"/v1/authorize{path}", [("x-user-id", user)], **more) for _ in range(count)
    ]
    return [answer.status for answer in asked]


def test_callers_paths_and_methods_are_told_apart_however_often_they_come() -> None:
    app = app_of(ONE)
    assert _statuses(app, 5) == [200, 200, 200, 429, 429]
    assert _statuses(app, 5, user="bob") == [200, 200, 200, 429, 429]
    assert _statuses(app, 5, path="/free") == [200] * 5
    assert _statuses(app, 2) == [429, 429]


def test_callers_behind_a_gateway_are_told_apart_by_their_addresses() -> None:
    app = app_of("version: 1\nrules: [{id: per-ip, key_by: ip, limit: 2/minute}]")
    for address in ("203.0.113.1", "203.0.113.2"):
        headers = [("x-forwarded-for", address)]
        told = [ask(app, "GET", "/v1/authorize/", headers).status for _ in range(4)]
        assert told == [200, 200, 429, 429]


def test_a_policy_that_is_replaced_is_obeyed_at_once() -> None:
    app = app_of(ONE)
    assert _statuses(app, 4) == [200, 200, 200, 429]
    assert [check(app, headers={"x-user-id": "eve"}).status for _ in range(4)][-1] == 429
    engine = app._checker.core.rules
    engine.replace(read_policy(ONE.replace("3/minute", "5/minute")))
    assert _statuses(app, 3) == [200, 200, 429]
    assert [check(app, headers={"x-user-id": "eve"}).status for _ in range(3)] == [200, 200, 429]
    engine.replace(replace(engine.in_force.policy, rules=()))
    assert _statuses(app, 3) == [200] * 3


@pytest.mark.parametrize("kind", ["authorize", "check"])
def test_an_override_that_ends_is_not_remembered(kind: str) -> None:
    clock = ManualClock(START)
    policy = f"{ONE}\noverrides: [{{rule: per-user, key: user_id=ada, block: true, until: UNTIL}}]"
    until = "'2023-11-14T23:13:20Z'"
    app = app_of(policy.replace("UNTIL", until), clock=clock, store=MemoryStore(clock=clock))
    engine = app._checker.core.rules
    wall = [1_700_000_000_000_000_000]
    engine.in_force = type(engine.in_force)(engine.in_force.policy, clock=lambda: wall[0])
    app._checker._in_force = engine.in_force

    def status() -> int:
        if kind == "check":
            return check(app, headers={"x-user-id": "ada"}).status
        return _statuses(app, 1)[0]

    assert [status() for _ in range(3)] == [429, 429, 429]
    wall[0] += 7_200 * 10**9
    assert status() == 200


def test_a_cost_in_a_header_and_one_in_a_body_count_each_time() -> None:
    app = app_of(
        "version: 1\nrules: [{id: a, key_by: global, limit: 10/h, cost: {header: x-cost, max: 9}}]"
    )
    told = [
        ask(app, "GET", "/v1/authorize/", [("x-cost", cost)]).headers["x-ratelimit-remaining"]
        for cost in ("1", "2", "1", "2")
    ]
    assert told == ["9", "7", "6", "4"]
    assert [check(app, cost=2).json["remaining"] for _ in range(2)] == [2, 0]


def test_a_peek_stays_one() -> None:
    app = app_of(ONE)
    told = [check(app, headers={"x-user-id": "ada"}, peek=True).json["remaining"] for _ in range(4)]
    assert told == [3] * 4


def test_only_one_of_retries_is_charged_however_often_it_comes() -> None:
    app = app_of(ONE.replace("3/minute", "3/minute, idempotency: {ttl: 60s}"))
    headers = [("x-user-id", "ada"), ("idempotency-key", '"one"')]
    told = [ask(app, "GET", "/v1/authorize/api/x", headers).status for _ in range(6)]
    assert told == [200] * 6


def test_the_words_of_a_refusal_are_those_that_the_client_accepts() -> None:
    app = app_of(ONE)
    _statuses(app, 4)
    for accept in ("application/json", "application/problem+json"):
        headers = [("x-user-id", "ada"), ("accept", accept)]
        assert ask(app, "GET", "/v1/authorize/api/x", headers).headers["content-type"] == accept
