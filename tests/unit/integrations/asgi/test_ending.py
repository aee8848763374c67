"""The end of a request: what was held is settled, what was occupied is free, however it ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import CostError, OptionError, UsageError
from headgate.integrations import CompletedResponse, RequestLimiter, RouteLimit
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware, report
from headgate.integrations.route_limit import named_limits
from headgate.limits import Concurrency
from headgate.runtime.drivers import adrive
from headgate.testing import ManualClock
from tests.support.asgi_connection import (
    Answering,
    Exchange,
    drive,
    drive_all,
    exchange,
    http,
    statuses,
)
from tests.support.async_stores import Waiting

if TYPE_CHECKING:
    from headgate.stores import Store

ONE_SLOT = Concurrency(1, 600)
STORES = pytest.mark.parametrize("store", ["memory://", "waiting"])


def opened(store: str) -> str | Store:
    return Waiting() if store == "waiting" else store


def failed_logins(responded: CompletedResponse) -> bool:
    return responded.status_code == 401


def asking(limiter: RequestLimiter, allowance: RouteLimit, scope: Any) -> Any:
    request = AsgiRequest(scope)
    return limiter.plan_route(named_limits((allowance,), "", ""), request, request)


async def settled(condition: Any) -> None:
    """Let the loop run until *condition* holds."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


@STORES
def test_only_outcomes_that_count_are_charged(store: str) -> None:
    app = Answering(200)
    gated = RateLimitMiddleware(
        app, limits="3/hour", charge_when=failed_logins, store=opened(store)
    )

    assert statuses(gated, *[http()] * 5) == [200] * 5
    app.status = 401
    assert statuses(gated, *[http()] * 4) == [401, 401, 401, 429]


def test_many_logins_at_once_cannot_slip_through_before_the_first_has_failed() -> None:
    gated = RateLimitMiddleware(
        Answering(401), limits="3/hour", charge_when=failed_logins, store=Waiting()
    )

    async def herd() -> list[int]:
        shown = await asyncio.gather(*[exchange(gated, http()) for _ in range(20)])
        return sorted(one.status for one in shown)

    assert asyncio.run(herd()) == [401] * 3 + [429] * 17


def test_the_outcome_has_the_status_and_the_headers_of_the_app() -> None:
    seen: list[CompletedResponse] = []

    def counts(responded: CompletedResponse) -> bool:
        seen.append(responded)
        return True

    app = Answering(418, [(b"X-Reason", b"tea")])
    drive(RateLimitMiddleware(app, limits="3/hour", charge_when=counts))

    assert seen == [CompletedResponse(418, (("X-Reason", "tea"),))]
    assert seen[0].header("x-reason") == "tea"
    assert seen[0].header("x-ratelimit-limit") is None


@pytest.mark.parametrize(("starts", "status"), [(False, 500), (True, 200)])
def test_the_outcome_of_an_error_has_the_error(starts: bool, status: int) -> None:
    seen: list[CompletedResponse] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if starts:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    def counts(responded: CompletedResponse) -> bool:
        seen.append(responded)
        return False

    with pytest.raises(ZeroDivisionError):
        drive(RateLimitMiddleware(app, limits="3/hour", charge_when=counts))

    (shown,) = seen
    assert shown.status_code == status
    assert isinstance(shown.error, ZeroDivisionError)


def test_a_charge_when_that_raises_is_told_and_charges() -> None:
    def counts(responded: CompletedResponse) -> bool:
        raise LookupError("which status?")

    limiter = RequestLimiter(limits="3/hour", charge_when=counts)
    app = RateLimitMiddleware(Answering(), limiter=limiter)

    for _ in range(3):
        with pytest.raises(LookupError, match="which status"):
            drive(app)
    assert drive(app).status == 429


def test_a_charge_when_that_is_async_would_always_charge_and_is_refused() -> None:
    async def counts(responded: CompletedResponse) -> bool:
        return False

    with pytest.raises(OptionError, match="charge_when is an async function"):
        RateLimitMiddleware(Answering(), limits="3/hour", charge_when=counts)  # type: ignore[arg-type]


class Reporting:
    """An app with an estimate of *held* tokens for each request, which reports *used*."""

    def __init__(self, used: Any, held: int = 100) -> None:
        self.used = used
        self.limit = RouteLimit(
            limits="1000/hour fixed_window", name="tokens", cost=held, is_estimate=True
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        context = scope["headgate"]
        limiter = context.limiter
        if not await adrive(context.begin(limiter, asking(limiter, self.limit, scope))):
            denial = context.denial_response(limiter)
            await send({"type": "http.response.start", "status": denial.status, "headers": []})
            await send({"type": "http.response.body"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if self.used is not None:
            report(scope, tokens=self.used)
        await send({"type": "http.response.body", "body": b"x", "more_body": False})


@STORES
@pytest.mark.parametrize("limits", [None, "99/hour", "99/hour fixed_window"])
@pytest.mark.parametrize(("used", "left"), [(7, 893), (None, 800), (0, 900), (250, 650)])
def test_what_is_reported_is_charged_in_place_of_the_estimate(
    store: str, limits: Any, used: int | None, left: int
) -> None:
    app = Reporting(used)
    gated = RateLimitMiddleware(app, limits=limits, store=opened(store))
    drive(gated)
    app.used = None
    second = drive(gated)

    assert f'"tokens";r={left}' in second.headers["ratelimit"]


def test_amounts_can_be_reported_by_names_that_are_no_identifiers() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        report(scope, {"my-rule.1": 5}, tokens=6)
        assert scope["headgate"].used == {"my-rule.1": 5, "tokens": 6}

    drive(RateLimitMiddleware(app, limits="3/hour"))


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", None])
def test_a_wrong_report_is_a_clear_error(wrong: Any) -> None:
    with pytest.raises(CostError, match="what was used of 'tokens'"):
        drive(RateLimitMiddleware(Reporting(wrong or "7"), limits="3/hour"))


def test_a_report_without_the_middleware_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="needs RateLimitMiddleware"):
        report(http(), tokens=5)


@STORES
@pytest.mark.parametrize("how", ["ends", "raises", "is silent", "never ends its body"])
def test_a_slot_is_free_when_the_request_is_over(store: str, how: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if how == "raises":
            raise ZeroDivisionError
        if how != "is silent":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "more_body": how != "ends"})

    gated = RateLimitMiddleware(app, limits=ONE_SLOT, store=opened(store))

    async def scenario() -> None:
        for _ in range(3):
            into = Exchange()
            with suppress(ZeroDivisionError):
                await exchange(gated, http(), into=into)
            assert all(one.get("status") != 429 for one in into.sent)

    asyncio.run(scenario())


@STORES
def test_a_slot_is_held_for_the_length_of_a_stream_and_free_before_background_tasks(
    store: str,
) -> None:
    async def scenario() -> None:
        goes_on, background = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"1", "more_body": True})
            await goes_on.wait()
            await send({"type": "http.response.body", "body": b"2"})
            await background.wait()

        gated = RateLimitMiddleware(app, limits=ONE_SLOT, store=opened(store))
        first = Exchange()
        streaming = asyncio.ensure_future(exchange(gated, http(), into=first))
        await settled(lambda: len(first.sent) == 2)
        assert (await exchange(gated, http())).status == 429
        goes_on.set()
        await settled(lambda: len(first.sent) == 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not streaming.done()
        second = Exchange()
        later = asyncio.ensure_future(exchange(gated, http(), into=second))
        await settled(lambda: second.sent)
        assert second.status == 200
        background.set()
        await asyncio.gather(streaming, later)

    asyncio.run(scenario())


def test_a_slot_is_free_when_the_server_has_been_given_the_file_to_send() -> None:
    async def scenario() -> None:
        background = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.pathsend", "path": "/file"})
            await background.wait()

        gated = RateLimitMiddleware(app, limits=ONE_SLOT)
        both = Exchange(), Exchange()
        waiting = [asyncio.ensure_future(exchange(gated, http(), into=one)) for one in both]
        await settled(lambda: all(one.sent for one in both))
        assert [one.status for one in both] == [200, 200]
        background.set()
        await asyncio.gather(*waiting)

    asyncio.run(scenario())


@pytest.mark.parametrize("cancels", [1, 2, 40])
@pytest.mark.parametrize("after", range(0, 40, 3))
def test_a_cancelled_request_ends_even_if_it_is_cancelled_again_and_again(
    cancels: int, after: int
) -> None:
    """As servers do when a client disconnects, and as anyio does, in every turn of the loop."""
    store = Waiting()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    gated = RateLimitMiddleware(
        app, limits=["9/hour", ONE_SLOT], charge_when=failed_logins, store=store
    )

    async def scenario() -> None:
        request = asyncio.ensure_future(exchange(gated, http()))
        for _ in range(after):
            await asyncio.sleep(0)
        for _ in range(cancels):
            request.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await request
        await gated.limiter.aclose()  # waits for what is still to be undone
        second = Exchange()
        later = asyncio.ensure_future(exchange(gated, http(), into=second))
        await settled(lambda: second.sent)
        assert second.status == 200
        assert second.remaining in (0, 8)
        assert '"default";r=8' in second.headers["ratelimit"]
        later.cancel()
        with pytest.raises(asyncio.CancelledError):
            await later
        await gated.limiter.aclose()

    asyncio.run(scenario())


def test_a_hold_that_lapsed_during_a_long_response_is_charged_all_the_same() -> None:
    clock = ManualClock(1_000)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        clock.advance(300)
        await send({"type": "http.response.body"})

    gated = RateLimitMiddleware(
        app, limits="3/day fixed_window", charge_when=failed_logins, clock=clock
    )

    assert [one.remaining for one in drive_all(gated, http(), http())] == [2, 1]
