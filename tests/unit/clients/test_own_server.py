"""Clients against an app with our own middleware, on a clock that does not really sleep."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from random import Random
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.clients.httpx import AsyncPacedTransport
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS, IDEAL = 30, 6.0
"""Calls, and the seconds that they take at 5 per second."""

URL = "http://api.example.com/things"
DATES: dict[str, Callable[[float], float]] = {
    "of this second": lambda now: now,
    "of the second before": lambda now: now - 1,
}


def limited(clock: ManualClock, limit: str, date: Callable[[float], float]) -> Any:
    """An app under *limit* that sends its date as servers do."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    inner = RateLimitMiddleware(app, limits=limit, clock=clock)

    async def dated(scope: Any, receive: Any, send: Any) -> None:
        async def send_with_date(message: Any) -> None:
            if message["type"] == "http.response.start":
                text = formatdate(date(clock.now), usegmt=True)
                message["headers"] = [*message["headers"], (b"date", text.encode())]
            await send(message)

        await inner(scope, receive, send_with_date)

    return dated


@pytest.mark.parametrize("start", [0.0, 0.37, 0.93])
@pytest.mark.parametrize("pace", [None, "5/s", "10/s"])
@pytest.mark.parametrize("date", DATES.values(), ids=DATES)
def test_calls_against_our_own_server_take_little_longer_than_they_must(
    start: float, pace: str | None, date: Callable[[float], float]
) -> None:
    clock, statuses = ManualClock(1_000_000_000 + start), []
    app = limited(clock, "5/s fixed_window", date)
    began = clock.now

    async def call() -> None:
        inner = httpx.ASGITransport(app)
        transport = AsyncPacedTransport(inner, pace=pace, clock=clock, random=Random(7).random)
        async with httpx.AsyncClient(transport=transport) as client:
            for _ in range(CALLS):
                statuses.append((await client.get(URL)).status_code)
                clock.advance(0.001)

    asyncio.run(call())
    assert statuses == [200] * CALLS
    assert clock.now - began <= 1.2 * IDEAL


def test_a_clock_ahead_of_the_server_is_denied_once_and_then_not_trusted() -> None:
    server = ManualClock(1_000_000_000)
    app = limited(server, "5/s fixed_window", lambda now: now)
    statuses: list[int] = []

    class Clock(ManualClock):
        """The clock of the client: 0.1 s ahead of that of the server."""

        def advance(self, seconds: float) -> None:
            super().advance(seconds)
            server.advance(seconds)

    clock = Clock(server.now + 0.1)

    class Counting(httpx.ASGITransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            statuses.append(response.status_code)
            return response

    async def call() -> None:
        transport = AsyncPacedTransport(Counting(app), clock=clock, random=lambda: 1)
        async with httpx.AsyncClient(transport=transport) as client:
            for _ in range(CALLS):
                assert (await client.get(URL)).status_code == 200

    asyncio.run(call())
    assert statuses.count(429) == 1
