"""A store that is gone is never a 500, and no figures are made up."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations import RequestLimiter, RouteLimit
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware, StatusApp
from headgate.integrations.route_limit import named_limits
from headgate.limits import Concurrency
from headgate.policy.loader import read_policy
from headgate.runtime.drivers import adrive
from headgate.stores import MemoryStore, Store
from tests.support.asgi_connection import (
    Answering,
    accepting,
    drive,
    drive_all,
    exchange,
    http,
    websocket,
)
from tests.support.async_stores import Gone, Waiting

if TYPE_CHECKING:
    from headgate.policy.model import Policy


def policy(failure: str, limit: str = "limit: 2/hour") -> Policy:
    return read_policy(
        f"version: 1\nrules:\n  - {{id: a, key_by: ip, {limit}, on_store_failure: {failure}}}"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"limits": "4/hour"},
        {"limits": "20/hour", "cost": 5},
        {"limits": "4/hour", "charge_when": lambda responded: responded.status_code == 200},
        {"limits": Concurrency(1, 60)},
        {"policy": policy("fail_open", "limit: 4/hour")},
        {"policy": policy("fail_open", "limit: 4/hour"), "limits": "4/hour"},
    ],
)
def test_an_outage_lets_requests_pass_and_tells_the_limits_without_figures(
    options: dict[str, Any],
) -> None:
    shown = drive_all(RateLimitMiddleware(Answering(), store=Gone(), **options), *[http()] * 4)

    assert [one.status for one in shown] == [200] * 4
    for one in shown:
        assert "ratelimit-policy" in one.headers
        assert "ratelimit" not in one.headers
        assert not any(name.startswith("x-ratelimit") for name in one.headers)
        assert "retry-after" not in one.headers


def test_an_outage_lets_no_more_pass_than_the_limit_and_then_says_when_to_come_back() -> None:
    app = RateLimitMiddleware(Answering(), policy=policy("fail_open"), store=Gone())
    shown = drive_all(app, *[http()] * 4)

    assert [one.status for one in shown] == [200, 200, 429, 429]
    assert 1_700 <= int(shown[-1].headers["retry-after"]) <= 1_800
    assert shown[-1].headers["x-ratelimit-remaining"] == "0"


def test_an_outage_is_a_503_where_the_rule_says_closed() -> None:
    app = RateLimitMiddleware(Answering(), policy=policy("fail_closed"), store=Gone())
    shown = drive_all(app, *[http()] * 60)
    waits = {int(one.headers["retry-after"]) for one in shown}

    assert {one.status for one in shown} == {503}
    assert waits == {2, 3, 4, 5}
    assert json.loads(shown[0].body)["error"] == "temporarily_unavailable"
    assert all("ratelimit" not in one.headers for one in shown)
    assert all(
        json.loads(one.body)["retry_after"] == int(one.headers["retry-after"]) for one in shown
    )


def test_a_websocket_passes_an_outage_or_is_answered_503() -> None:
    opened = RateLimitMiddleware(accepting, policy=policy("fail_open"), store=Gone())
    closed = RateLimitMiddleware(accepting, policy=policy("fail_closed"), store=Gone())

    assert drive(opened, websocket()).types == ["websocket.accept"]
    assert drive(closed, websocket()).status == 503


def test_a_route_that_fails_closed_is_a_503_and_gives_back_the_rest() -> None:
    outer, broken = RequestLimiter(limits="9/hour"), RequestLimiter(store=Gone())
    allowance = RouteLimit(limits="1/hour", name="route", on_store_failure="fail_closed")
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context, request = scope["headgate"], AsgiRequest(scope)
        asked = broken.plan_route(named_limits((allowance,), "", ""), request, request)
        assert not await adrive(context.begin(broken, asked))
        seen.append(context.denial_response(broken).status)
        await send({"type": "http.response.start", "status": seen[0], "headers": []})
        await send({"type": "http.response.body", "body": b""})

    drive(RateLimitMiddleware(app, limiter=outer))

    assert seen == [503]
    assert drive(RateLimitMiddleware(Answering(), limiter=outer)).remaining == 8


@pytest.mark.parametrize("charge_when", [None, lambda responded: responded.status_code == 200])
def test_a_store_that_goes_while_the_request_is_on_its_way_does_not_break_it(
    charge_when: Any,
) -> None:
    store = Waiting()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        store.is_gone = True
        await Answering()(scope, receive, send)

    limits: list[Any] = ["9/hour", Concurrency(1, 60)]
    gated = RateLimitMiddleware(app, limits=limits, store=store, charge_when=charge_when)

    assert drive(gated).status == 200


def test_the_status_page_tells_the_limits_without_figures() -> None:
    limiter = RequestLimiter(limits="9/hour", policy=policy("fail_closed"), store=Gone())
    shown = drive(StatusApp(limiter))
    entries = json.loads(shown.body)["limits"]

    assert shown.status == 200
    assert [entry["name"] for entry in entries] == ["a", "default"]
    assert all("remaining" not in entry for entry in entries)


def test_an_error_that_is_not_the_stores_is_not_taken_for_an_outage() -> None:
    class Broken(Waiting):
        async def arun(self, operation: Any) -> Any:
            raise ZeroDivisionError("a bug")

    async def scenario() -> None:
        app = RateLimitMiddleware(Answering(), limits="1/hour", store=Broken())
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await exchange(app, http())

    asyncio.run(scenario())


def test_a_store_that_blocks_does_not_block_the_event_loop() -> None:
    class Blocking(Store):
        def run(self, operation: Any) -> Any:
            asked_by.append(threading.get_ident())
            return memory.run(operation)

    async def scenario() -> list[int]:
        app = RateLimitMiddleware(Answering(), limits="1/hour", store=Blocking())
        return [(await exchange(app, http())).status for _ in range(2)]

    memory, asked_by = MemoryStore(), list[int]()
    assert asyncio.run(scenario()) == [200, 429]
    assert threading.get_ident() not in asked_by
