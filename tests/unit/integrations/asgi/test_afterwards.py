"""Costs that are known when the response is over, charged by the ASGI middleware."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations import RequestLimiter, RouteLimit
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware, report
from headgate.integrations.route_limit import named_limits
from headgate.policy.loader import read_policy
from headgate.runtime.drivers import adrive
from headgate.runtime.drivers import drive as run_effects
from headgate.testing import ManualClock
from tests.support.asgi_connection import (
    Answering,
    Exchange,
    drive,
    drive_all,
    exchange,
    http,
    statuses,
    websocket,
)
from tests.support.async_stores import Waiting

if TYPE_CHECKING:
    from headgate.integrations.asgi import App
    from headgate.policy.model import Policy

STORES = pytest.mark.parametrize("store", ["memory://", "waiting"])
BY_TOKENS = "{after: {header: x-tokens}}"
BY_BYTES = "{after: {bytes: true}}"


def policy(cost: str = BY_TOKENS, *more: str, limit: str = "100/hour") -> Policy:
    own = f"{{id: llm, key_by: ip, limit: {limit} fixed_window, cost: {cost}}}"
    return read_policy("version: 1\nrules: [" + ", ".join([own, *more]) + "]")


def gated(app: App, cost: str = BY_TOKENS, *more: str, **options: Any) -> RateLimitMiddleware:
    options.setdefault("clock", ManualClock(1_000))
    return RateLimitMiddleware(app, policy=policy(cost, *more), **options)


def waiting() -> dict[str, Any]:
    return {"store": Waiting(ManualClock(1_000)), "clock": None}


def saying(*values: bytes, status: int = 200, chunks: Any = (b"hello",)) -> Answering:
    names = (b"X-Tokens", b"x-tokens")
    return Answering(status, list(zip(names, values, strict=False)), chunks)


async def sending(seen: Exchange) -> None:
    """Let the loop run until a part of the body is out."""
    for _ in range(1000):
        if len(seen.sent) > 1:
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def left(limiter: RequestLimiter) -> list[int]:
    """What the rules of *limiter* have left for the caller; nothing is consumed."""
    assert limiter.rules is not None
    plan = limiter.rules.compiled.plan(AsgiRequest(http()))
    return [one.decision.remaining for one in run_effects(limiter.engine.peek(plan)).rules]


def remaining(app: App, count: int = 2, scope: Any = None) -> list[int]:
    return [one.remaining for one in drive_all(app, *[scope or http()] * count)]


@STORES
def test_the_number_in_the_header_is_charged_beyond_what_it_took_to_enter(store: str) -> None:
    options = waiting() if store == "waiting" else {}
    app = gated(saying(b"30"), **options)
    assert remaining(app, 4) == [99, 69, 39, 9]
    assert drive(app).remaining == 0
    assert drive(app).status == 429


@pytest.mark.parametrize(
    ("cost", "said", "left"),
    [
        ("{after: {header: x-tokens}}", b"1", 98),
        ("{after: {header: x-tokens}}", b"0", 98),
        ("{default: 10, after: {header: x-tokens}}", b"10", 80),
        ("{default: 10, after: {header: x-tokens}}", b"3", 80),
        ("{default: 10, after: {header: x-tokens}}", b"11", 79),
        ("{after: {header: x-tokens, per: 10}}", b"31", 95),
        ("{after: {header: x-tokens, per: 10, max: 2}}", b"31", 97),
        ("{after: {header: x-tokens, max: 5}}", b"9" * 40, 94),
    ],
)
def test_what_was_taken_at_the_door_is_taken_off_and_the_rest_is_bounded(
    cost: str, said: bytes, left: int
) -> None:
    assert remaining(gated(saying(said), cost))[-1] == left


@STORES
def test_debt_is_recorded_in_full_and_worked_off(store: str) -> None:
    clock = ManualClock(0)
    inner: Any = {"store": Waiting(clock), "clock": None}
    app = gated(saying(b"250"), **(inner if store == "waiting" else {"clock": clock}))
    assert statuses(app, http(), http()) == [200, 429]
    clock.advance(3_600)
    assert drive(app).status == 429
    clock.advance(2 * 3_600)
    assert drive(app).status == 200


@pytest.mark.parametrize(
    "said", [(), (b"",), (b"many",), (b"-5",), (b"1.5",), (b"5", b"5"), (b"5, 5",)]
)
def test_what_is_no_number_charges_nothing_and_is_told_once_for_the_rule(
    said: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    app = gated(saying(*said))
    assert remaining(app, 3) == [99, 98, 97]
    (shown,) = caplog.records
    assert (shown.name, shown.levelno) == ("headgate.integrations", logging.WARNING)
    assert "rule llm: a response has" in shown.getMessage()
    assert "in the header x-tokens, so nothing was charged" in shown.getMessage()


def test_an_error_need_not_say_what_it_cost(caplog: pytest.LogCaptureFixture) -> None:
    app = gated(saying(status=502))
    assert remaining(app) == [99, 98]
    assert caplog.records == []


@STORES
def test_the_bytes_of_the_body_are_charged(store: str) -> None:
    options = waiting() if store == "waiting" else {}
    app = gated(Answering(chunks=(b"12345", b"", b"6789012")), BY_BYTES, **options)
    assert remaining(app, 3) == [99, 87, 75]


def test_nothing_is_held_back_and_the_response_begins_once() -> None:
    async def scenario() -> None:
        goes_on = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"1", "more_body": True})
            await goes_on.wait()
            await send({"type": "http.response.body", "body": b"2"})

        seen = Exchange()
        one = asyncio.ensure_future(exchange(gated(app, BY_BYTES), http(), into=seen))
        await sending(seen)
        assert seen.body == b"1"
        goes_on.set()
        await one
        assert seen.types == ["http.response.start", *["http.response.body"] * 2]

    asyncio.run(scenario())


def test_the_body_of_a_head_is_not_sent_and_not_charged() -> None:
    assert remaining(gated(Answering(), BY_BYTES), 2, http(method="HEAD")) == [99, 98]


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ({"type": "http.response.pathsend", "path": "/file"}, 79),
        ({"type": "http.response.zerocopysend", "file": 3}, 79),
        ({"type": "http.response.zerocopysend", "file": 3, "count": 7}, 92),
    ],
)
def test_a_file_that_the_server_sends_is_as_long_as_announced(message: Any, left: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Content-Length", b"20")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(message)

    assert remaining(gated(app, BY_BYTES)) == [99, left]


@STORES
@pytest.mark.parametrize("how", ["cancelled", "raises"])
def test_who_goes_away_midway_is_charged_the_bytes_so_far(store: str, how: str) -> None:
    clock = ManualClock(1_000)
    counting = Waiting(clock)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 30, "more_body": True})
        if how == "raises":
            raise ConnectionResetError
        await asyncio.Event().wait()

    async def scenario() -> int:
        options: Any = {"store": counting, "clock": None} if store == "waiting" else {}
        limiter = RequestLimiter(policy=policy(BY_BYTES), **({"clock": clock} | options))
        into = Exchange()
        going = asyncio.ensure_future(
            exchange(RateLimitMiddleware(app, limiter=limiter), http(), into=into)
        )
        await sending(into)
        going.cancel()
        with suppress(asyncio.CancelledError, ConnectionResetError):
            await going
        shown = await exchange(RateLimitMiddleware(Answering(), limiter=limiter), http())
        await limiter.aclose()
        return shown.remaining

    assert asyncio.run(scenario()) == 69


def test_an_app_that_fails_before_it_answers_has_cost_what_it_took_to_enter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    limiter = RequestLimiter(policy=policy(), clock=ManualClock(1_000))
    with pytest.raises(ZeroDivisionError):
        drive(RateLimitMiddleware(app, limiter=limiter))
    assert drive(RateLimitMiddleware(saying(b"1"), limiter=limiter)).remaining == 98
    assert caplog.records == []


def test_what_is_refused_is_not_charged_afterwards() -> None:
    tight = "{id: tight, key_by: ip, limit: 1/hour fixed_window}"
    app = gated(saying(b"30"), BY_TOKENS, tight)
    assert statuses(app, http(), http(), http()) == [200, 429, 429]
    assert left(app.limiter) == [70, 0]


def test_what_a_part_of_the_app_refuses_is_not_charged_at_all() -> None:
    none = RouteLimit(limits="1/hour", name="none", cost=2)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context, request = scope["headgate"], AsgiRequest(scope)
        asked = context.limiter.plan_route(named_limits((none,), "", ""), request, request)
        assert not await adrive(context.begin(context.limiter, asked))
        headers = [(b"x-tokens", b"30")]
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body"})

    limiter = RequestLimiter(policy=policy(), clock=ManualClock(1_000))
    drive(RateLimitMiddleware(app, limiter=limiter))
    assert drive(RateLimitMiddleware(saying(b"1"), limiter=limiter)).remaining == 99


def shadowed(*, limit: str) -> str:
    return (
        f"{{id: trial, mode: shadow, key_by: ip, limit: {limit} fixed_window,"
        " cost: {after: {header: x-tokens}}}"
    )


def test_a_shadow_that_would_admit_is_charged_and_one_that_would_not_is_not() -> None:
    clock = ManualClock(1_000)
    rules = policy("{after: {header: x-tokens}}", shadowed(limit="40/hour"), limit="900/hour")
    limiter = RequestLimiter(policy=rules, clock=clock)
    app = RateLimitMiddleware(saying(b"30"), limiter=limiter)
    drive_all(app, *[http()] * 4)
    assert left(limiter) == [780, 0]  # of the four the shadow admitted two, and owes 20
    clock.advance(3_600)
    assert left(limiter)[1] == 20


def test_a_repeated_request_pays_again_for_what_it_has_cost_but_not_to_enter() -> None:
    again = "{id: llm, key_by: ip, limit: 100/hour fixed_window, idempotency: true, cost: "
    rules = read_policy(f"version: 1\nrules: [{again} {{default: 5, {BY_TOKENS[1:]}}}]")
    limiter = RequestLimiter(policy=rules, clock=ManualClock(1_000))
    app = RateLimitMiddleware(saying(b"30"), limiter=limiter)
    retry = http(headers=[(b"idempotency-key", b"a")])
    first, second = drive_all(app, retry, retry)
    assert first.remaining == 95
    assert second.status == 200
    assert drive(app).remaining == 100 - 30 - 25 - 5


def test_the_app_may_say_the_amount_itself() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-tokens", b"9")]})
        await send({"type": "http.response.body", "body": b"...", "more_body": True})
        report(scope, llm=312)  # known when all is said
        await send({"type": "http.response.body"})

    assert remaining(gated(app, "{after: {header: x-tokens, per: 10}}")) == [99, 67]
    assert remaining(gated(app, "{after: {bytes: true, per: 10, max: 20}}")) == [99, 79]


def test_several_rules_are_charged_each_in_its_own_way() -> None:
    more = "{id: traffic, key_by: ip, limit: 1000/hour fixed_window, cost: {after: {bytes: true}}}"
    plain = "{id: plain, key_by: ip, limit: 500/hour fixed_window}"
    app = gated(saying(b"30", chunks=(b"x" * 200,)), BY_TOKENS, more, plain)
    shown = drive_all(app, http(), http())[-1].headers["ratelimit"]
    assert '"llm";r=69' in shown
    assert '"traffic";r=799' in shown
    assert '"plain";r=498' in shown


def test_rules_are_charged_beside_limits_that_are_settled_by_the_outcome() -> None:
    app = RateLimitMiddleware(
        saying(b"30"),
        policy=policy(),
        limits="9/hour fixed_window",
        charge_when=lambda responded: responded.status_code == 401,
        clock=ManualClock(1_000),
    )
    shown = drive_all(app, http(), http())[-1].headers["ratelimit"]
    assert '"llm";r=69' in shown
    assert '"default";r=8' in shown


def test_a_gate_further_in_is_charged_too() -> None:
    clock = ManualClock(1_000)
    inner = gated(Answering(chunks=(b"12345",)), BY_BYTES, clock=clock)
    outer = RateLimitMiddleware(inner, limits="50/hour fixed_window", clock=clock)
    quick = RateLimitMiddleware(inner, limits="50/hour", clock=clock)
    assert '"llm";r=99' in drive(outer).headers["ratelimit"]
    assert '"llm";r=94' in drive(quick).headers["ratelimit"]
    assert '"llm";r=89' in drive(quick).headers["ratelimit"]


def test_a_websocket_is_charged_the_bytes_that_it_was_sent() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "grüße"})
        await send({"type": "websocket.send", "bytes": b"12345"})
        await send({"type": "websocket.close"})

    assert remaining(gated(app, BY_BYTES), 2, websocket()) == [99, 87]


def test_a_store_that_is_gone_by_then_fails_no_response_and_what_is_lost_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Waiting()

    class Leaving(Answering):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            store.is_gone = True
            await super().__call__(scope, receive, send)

    leaving = Leaving(headers=[(b"x-tokens", b"30")])
    closed = f"{BY_TOKENS}, on_store_failure: fail_closed"
    app = RateLimitMiddleware(leaving, policy=policy(closed), store=store)
    for _ in range(3):
        store.is_gone = False
        assert drive(app).body == b"hello"
    assert app.limiter.late_charges.lost == 3
    (shown,) = [record for record in caplog.records if record.name == "headgate.integrations"]
    assert "the store is gone" in shown.getMessage()


def test_nothing_is_asked_at_the_end_where_no_rule_is_charged_afterwards() -> None:
    store = Waiting(ManualClock(1_000))
    plain = read_policy("version: 1\nrules: [{id: a, key_by: ip, limit: 9/hour fixed_window}]")
    app = RateLimitMiddleware(saying(b"30"), policy=plain, store=store)
    assert remaining(app) == [8, 7]
    assert store.verbs == ["Take", "Take"]


def test_preflights_are_charged_apart() -> None:
    headers = [(b"origin", b"https://a.example"), (b"access-control-request-method", b"GET")]
    app = gated(Answering(), BY_BYTES)
    drive(app, http(method="OPTIONS", headers=headers))
    assert drive(app).remaining == 99
