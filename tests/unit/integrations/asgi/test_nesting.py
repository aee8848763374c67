"""Several parts of an app that ask about one request: middlewares, mounted apps, routes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headgate.integrations import RequestLimiter, RouteLimit
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware
from headgate.integrations.route_limit import named_limits
from headgate.limits import Concurrency
from headgate.policy.loader import read_policy
from headgate.responses import ResponseOptions
from headgate.runtime.drivers import adrive
from headgate.testing import ManualClock
from tests.support.asgi_connection import (
    Answering,
    Exchange,
    accepting,
    drive,
    drive_all,
    exchange,
    http,
    statuses,
    websocket,
)
from tests.support.async_stores import Gone, Waiting

GATES = pytest.mark.parametrize("limits", ["9/hour", "9/hour fixed_window"], ids=["quick", "long"])


class Routed:
    """An app whose route has a limit of its own, checked by *limiter* or of the middleware's."""

    def __init__(
        self, limits: Any, limiter: RequestLimiter | None = None, app: Any = None, **more: Any
    ) -> None:
        self.limit = RouteLimit(limits=limits, name="route", **more)
        self.limiter = limiter
        self.app = app or Answering()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        context, request = scope["headgate"], AsgiRequest(scope)
        limiter = self.limiter or context.limiter
        asked = named_limits((self.limit,), "", "")
        if await adrive(context.begin(limiter, limiter.plan_route(asked, request, request))):
            await self.app(scope, receive, send)
            return
        denial = context.denial_response(limiter)
        headers = [(name.encode(), value.encode()) for name, value in denial.headers]
        start = {"type": "http.response.start", "status": denial.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": denial.body})


@GATES
def test_the_response_tells_of_the_app_and_of_the_route(limits: str) -> None:
    shown = drive(RateLimitMiddleware(Routed("5/hour"), limits=limits)).headers

    assert shown["ratelimit-policy"] == '"default";q=9;w=3600, "route";q=5;w=3600'
    assert shown["x-ratelimit-limit"] == "5"
    assert shown["x-ratelimit-remaining"] == "4"


@GATES
@pytest.mark.parametrize("has_own_gate", [False, True])
def test_a_refusal_further_in_gives_back_what_was_charged_further_out(
    limits: str, has_own_gate: bool
) -> None:
    own = RequestLimiter() if has_own_gate else None
    app = Routed("1/hour", own)
    gated = RateLimitMiddleware(app, limits=limits, clock=ManualClock(1_800))
    shown = drive_all(gated, *[http()] * 5)
    app.limit = RouteLimit(limits="100/hour", name="other")

    assert [one.status for one in shown] == [200, 429, 429, 429, 429]
    assert shown[1].headers["ratelimit-policy"] == '"route";q=1;w=3600'
    assert '"default";r=7' in drive(gated).headers["ratelimit"]


def test_the_fast_path_leaves_a_context_with_its_check() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context = scope["headgate"]
        seen.append((context.is_managed, context.is_cross_origin, len(context.results)))

    drive(RateLimitMiddleware(app, limits="9/hour"), http(headers=[(b"origin", b"x")]))

    assert seen == [(True, True, 1)]


@GATES
@pytest.mark.parametrize("how", ["answers", "is silent", "raises", "asks after it has begun"])
def test_what_a_route_occupies_is_free_at_the_end_however_it_ends(limits: str, how: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if how == "raises":
            raise ZeroDivisionError
        if how == "answers":
            await Answering()(scope, receive, send)

    routed = Routed(Concurrency(1, 600), app=app)

    async def late(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await routed(scope, receive, send)
        await send({"type": "http.response.body"})

    gated = RateLimitMiddleware(late if how.startswith("asks") else routed, limits=limits)

    async def scenario() -> None:
        for _ in range(3):
            into = Exchange()
            try:
                await exchange(gated, http(), into=into)
            except ZeroDivisionError:
                assert how == "raises"
            assert all(one.get("status") != 429 for one in into.sent)

    asyncio.run(scenario())


@GATES
def test_the_same_gate_twice_counts_a_request_once(limits: str) -> None:
    limiter = RequestLimiter(limits=limits)
    app = RateLimitMiddleware(RateLimitMiddleware(Answering(), limiter=limiter), limiter=limiter)

    assert [one.remaining for one in drive_all(app, http(), http())] == [8, 7]
    assert drive(app).headers["ratelimit-policy"] == '"default";q=9;w=3600'


def test_the_same_gate_twice_counts_a_websocket_once() -> None:
    limiter = RequestLimiter(limits="9/hour")
    app = RateLimitMiddleware(RateLimitMiddleware(accepting, limiter=limiter), limiter=limiter)

    assert drive(app, websocket()).remaining == 8


@GATES
def test_a_mounted_app_with_a_limiter_of_its_own_is_asked_too(limits: str) -> None:
    inner = RateLimitMiddleware(Answering(), limits="2/hour", name="inner")
    app = RateLimitMiddleware(inner, limits=limits, clock=ManualClock(1_800))
    shown = drive_all(app, *[http()] * 4)

    assert [one.status for one in shown] == [200, 200, 429, 429]
    assert shown[0].headers["ratelimit-policy"] == '"default";q=9;w=3600, "inner";q=2;w=3600'
    assert shown[2].types == ["http.response.start", "http.response.body"]
    assert shown[2].headers["content-length"] == str(len(shown[2].body))


def test_a_refusal_of_a_mounted_app_costs_nothing_further_out() -> None:
    inner_gate = RequestLimiter(limits="2/hour", name="inner")
    inner = RateLimitMiddleware(Answering(), limiter=inner_gate)
    outer = RequestLimiter(limits="9/hour", clock=ManualClock(1_800))
    drive_all(RateLimitMiddleware(inner, limiter=outer), *[http()] * 6)

    assert drive(RateLimitMiddleware(Answering(), limiter=outer)).remaining == 6


def test_a_mounted_app_does_not_escape_the_limit_of_the_outer_one() -> None:
    async def outer(scope: Any, receive: Any, send: Any) -> None:
        child = {**scope, "root_path": "/api", "app": object()}
        await Answering()(child, receive, send)

    app = RateLimitMiddleware(outer, limits="2/hour")

    assert statuses(app, *[http(f"/api/{n}") for n in range(3)]) == [200, 200, 429]


def test_a_mounted_app_refuses_websockets_too() -> None:
    inner = RateLimitMiddleware(accepting, limits="1/hour", name="inner")
    app = RateLimitMiddleware(inner, limits="9/hour")
    accepted, refused = drive_all(app, websocket(), websocket())

    assert accepted.headers["ratelimit-policy"] == '"default";q=9;w=3600, "inner";q=1;w=3600'
    assert refused.status == 429


def test_header_and_body_of_a_refusal_tell_the_same_wait_through_all_layers() -> None:
    """Waits are spread at random; it is drawn once for a request."""
    policy = read_policy(
        "version: 1\nrules:\n  - {id: a, key_by: ip, limit: 1/hour, on_store_failure: fail_closed}"
    )
    spread = ResponseOptions(outage_spread=86_400)
    inner = RateLimitMiddleware(Answering(), policy=policy, store=Gone(), responses=spread)
    shown = drive(RateLimitMiddleware(inner, limits="9/hour", responses=spread))

    assert shown.status == 503
    assert json.loads(shown.body)["retry_after"] == int(shown.headers["retry-after"])


@pytest.mark.parametrize("after", range(0, 80, 3))
def test_a_refusal_that_is_cancelled_half_way_still_frees_all_that_was_granted(after: int) -> None:
    """Two gates further out have granted a place each; the third refuses, and the client goes."""
    outer, middle, inner = (
        RequestLimiter(limits=Concurrency(1, 600), name="outer", store=Waiting()),
        RequestLimiter(limits=Concurrency(1, 600), name="middle", store=Waiting()),
        RequestLimiter(limits="1/hour", cost=2, name="inner", store=Waiting()),
    )
    app: Any = RateLimitMiddleware(Answering(), limiter=inner)
    app = RateLimitMiddleware(RateLimitMiddleware(app, limiter=middle), limiter=outer)

    async def scenario() -> None:
        request = asyncio.ensure_future(exchange(app, http()))
        for _ in range(after):
            await asyncio.sleep(0)
        for _ in range(3):
            request.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([request])
        for limiter in (outer, middle, inner):
            await limiter.aclose()
        for limiter in (outer, middle):
            alone = RateLimitMiddleware(Answering(), limiter=limiter)
            assert (await exchange(alone, http())).status == 200

    asyncio.run(scenario())


def test_a_rule_called_as_the_limits_of_the_app_does_not_hide_them_nor_they_it() -> None:
    policy = read_policy("version: 1\nrules:\n  - {id: default, key_by: ip, limit: 2/hour}")
    tight = RateLimitMiddleware(Answering(), policy=policy, limits="9/hour")
    loose = RateLimitMiddleware(Answering(), policy=policy, limits="1/hour")

    assert statuses(tight, *[http()] * 3) == [200, 200, 429]
    assert statuses(loose, *[http()] * 2) == [200, 429]
    assert (
        '"default";q=2;w=3600, "default-2";q=9;w=3600'
        in drive(RateLimitMiddleware(Answering(), policy=policy, limits="9/hour")).headers[
            "ratelimit-policy"
        ]
    )


def test_two_gates_whose_limits_are_called_the_same_are_told_apart() -> None:
    inner = RateLimitMiddleware(Answering(), limits="5/hour")
    outer = RateLimitMiddleware(inner, limits="9/hour")
    headers = drive(outer).headers

    assert headers["ratelimit-policy"] == '"default";q=9;w=3600, "default-2";q=5;w=3600'
    assert [item.partition(";")[0] for item in headers["ratelimit"].split(", ")] == [
        '"default"',
        '"default-2"',
    ]


class Forgiving(Routed):
    """An app that answers what its route refuses all the same."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def forgiving(message: Any) -> None:
            await send({**message, "status": 200, "headers": []})

        await super().__call__(scope, receive, forgiving)


@GATES
def test_an_app_that_answers_a_refusal_with_200_tells_nobody_to_wait(limits: str) -> None:
    app = RateLimitMiddleware(Forgiving("1/hour"), limits=limits)
    shown = drive_all(app, http(), http())

    assert [one.status for one in shown] == [200, 200]
    assert [one.headers["x-ratelimit-limit"] for one in shown] == ["1", "9"]
    assert not any("retry-after" in one.headers for one in shown)


@GATES
def test_an_app_that_serves_what_was_refused_further_in_is_still_limited(limits: str) -> None:
    app = RateLimitMiddleware(
        Forgiving("1/hour"), limits=limits.replace("9", "3"), clock=ManualClock(1_800)
    )

    assert statuses(app, *[http()] * 5) == [200, 200, 200, 429, 429]


def test_a_gate_that_is_not_the_outermost_is_asked_once_too() -> None:
    inner, outer = (
        RequestLimiter(limits="4/hour fixed_window"),
        RequestLimiter(limits="100/hour", name="outer"),
    )
    app: Any = Answering()
    for limiter in (inner, inner, outer):
        app = RateLimitMiddleware(app, limiter=limiter)

    assert statuses(app, *[http()] * 5) == [200] * 4 + [429]


def test_a_subclass_may_have_a_way_of_its_own_before_ours() -> None:
    class Noting(RateLimitMiddleware):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            noted.append(scope["path"])
            await super().__call__(scope, receive, send)

    noted: list[str] = []

    assert statuses(Noting(Answering(), limits="1/hour"), http("/a"), http("/b")) == [200, 429]
    assert noted == ["/a", "/b"]


def test_a_policy_and_the_limits_of_the_app_are_one_round_trip() -> None:
    rules = "".join(f"  - {{id: r{n}, key_by: ip, limit: 5/hour}}\n" for n in range(3))
    store = Waiting()
    app = RateLimitMiddleware(
        Answering(),
        policy=read_policy(f"version: 1\nrules:\n{rules}"),
        limits="4/hour; 90/day",
        store=store,
    )

    assert statuses(app, *[http()] * 2) == [200, 200]
    assert store.verbs == ["Take"] * 2


def test_the_stacked_allowances_of_a_route_are_one_round_trip() -> None:
    store = Waiting()
    limiter = RequestLimiter(store=store)
    several: list[RouteLimit] = [RouteLimit(limits=f"{n}/hour", name=f"n{n}") for n in (5, 6, 7)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = AsgiRequest(scope)
        asked = named_limits(tuple(several), "", "")
        planning = limiter.plan_route(asked, request, request)
        assert await adrive(scope["headgate"].begin(limiter, planning))
        await Answering()(scope, receive, send)

    drive(RateLimitMiddleware(app, limiter=limiter))

    assert store.verbs == ["Take"]
