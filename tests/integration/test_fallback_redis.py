"""A Redis server that goes and comes back: what was admitted meanwhile is charged there."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.decision import OnFailure
from headgate.stores.redis import RedisStore
from tests.support.servers import RedisServer, wait_until

LIMIT = "20/hour fixed_window"


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peek at the server, and report to it, ten times as soon."""
    monkeypatch.setattr("headgate.runtime.fallback.FIRST_PAUSE", (0.0, 0.1))
    monkeypatch.setattr("headgate.runtime.fallback.PEEK_PAUSE", (0.1, 0.2))


def test_what_was_admitted_without_the_server_is_charged_when_it_is_back() -> None:
    with RedisServer() as server:
        limiter = RateLimiter(LIMIT, store=server.url, name="api", on_store_failure=OnFailure())
        assert limiter.hit("key", 3).source == "store"
        server.kill()
        sources = [limiter.hit("key").source for _ in range(24)]
        assert sources == ["fail_open"] * 20 + ["fallback"] * 4
        server.start()
        wait_until(lambda: limiter.peek("key").source == "store", "the server decides again")
        looking = RateLimiter(LIMIT, store=RedisStore(server.url), name="api")

        def left() -> int:
            limiter.peek("key")  # somebody has to ask for the breaker to close
            return looking.peek("key").remaining

        # The first call may have met the server while it went: then it may have been charged, and
        # is not charged again. To the others nobody was there, so they are told.
        wait_until(lambda: left() <= 1, "the server was told")
        looking.close()
        limiter.close()


def test_a_process_that_nobody_asks_ends_its_outage_and_tells_the_server() -> None:
    with RedisServer() as server:
        limiter = RateLimiter(LIMIT, store=server.url, name="api")
        limiter.hit("key")
        server.kill()
        assert [limiter.hit("key").source for _ in range(10)] == ["fail_open"] * 10
        server.start()
        looking = RateLimiter(LIMIT, store=RedisStore(server.url), name="api")
        wait_until(lambda: looking.peek("key").remaining <= 11, "the server was told", within=30)
        assert not limiter._engine.fallback.is_out
        looking.close()
        limiter.close()


def test_the_same_in_an_event_loop() -> None:
    async def story(server: RedisServer) -> None:
        limiter = AsyncRateLimiter(LIMIT, store=server.url, name="api")
        await limiter.hit("key")
        server.kill()
        assert [(await limiter.hit("key")).source for _ in range(10)] == ["fail_open"] * 10
        server.start()
        looking = AsyncRateLimiter(LIMIT, store=RedisStore(server.url), name="api")
        async with asyncio.timeout(30):
            while (await looking.peek("key")).remaining > 11:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)
        assert not limiter._engine.fallback.is_out
        await looking.aclose()
        await limiter.aclose()

    with RedisServer() as server:
        asyncio.run(story(server))
