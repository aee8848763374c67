"""Lifespan messages are passed on both ways; a limiter of one's own is closed with the app."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware
from tests.support.asgi_connection import Exchange, exchange
from tests.support.async_stores import Waiting

STARTUP: list[Any] = [{"type": "lifespan.startup"}]
BOTH: list[Any] = [*STARTUP, {"type": "lifespan.shutdown"}]


class Closing(Waiting):
    """Counts how often it was closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def lifespan(ending: str = "complete") -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                scope["state"]["ready"] = True
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": f"lifespan.shutdown.{ending}"})
                return

    return app


def live(app: Any, messages: list[Any] = BOTH) -> Exchange:
    return asyncio.run(exchange(app, {"type": "lifespan", "state": {}}, messages))


def test_lifespan_is_passed_on_both_ways() -> None:
    shown = live(RateLimitMiddleware(lifespan(), limits="1/hour"))

    assert shown.types == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert shown.received == 2


@pytest.mark.parametrize("ending", ["complete", "failed"])
def test_a_limiter_of_its_own_is_closed_at_shutdown(ending: str) -> None:
    store = Closing()
    live(RateLimitMiddleware(lifespan(ending), limits="1/hour", store=store))

    assert store.closed == 1


def test_a_limiter_of_its_own_is_closed_before_the_server_hears_that_all_is_over() -> None:
    order: list[str] = []

    class Noting(Waiting):
        async def aclose(self) -> None:
            order.append("closed")

    async def send(message: Any) -> None:
        order.append(message["type"])

    messages = iter(BOTH)

    async def receive() -> Any:
        return next(messages)

    app = RateLimitMiddleware(lifespan(), limits="1/hour", store=Noting())
    asyncio.run(app({"type": "lifespan", "state": {}}, receive, send))

    assert order == ["lifespan.startup.complete", "closed", "lifespan.shutdown.complete"]


def test_a_gate_that_was_given_is_not_closed() -> None:
    store = Closing()
    live(RateLimitMiddleware(lifespan(), limiter=RequestLimiter(limits="1/hour", store=store)))

    assert store.closed == 0


def test_an_app_that_knows_no_lifespan_is_not_masked() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError(f"no {scope['type']}")

    with pytest.raises(NotImplementedError, match="no lifespan"):
        live(RateLimitMiddleware(app, limits="1/hour"))


def test_an_app_that_fails_to_start_is_passed_on() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    shown = live(RateLimitMiddleware(app, limits="1/hour"), STARTUP)

    assert shown.sent == [{"type": "lifespan.startup.failed", "message": "no database"}]
