"""A Redis server that goes and comes back: what was admitted meanwhile is charged there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import RateLimiter
from headgate.decisions import OnFailure
from headgate.stores.redis import RedisStore
from tests.servers import RedisServer, wait_until

if TYPE_CHECKING:
    import pytest

LIMIT = "20/hour fixed_window"


def test_what_was_admitted_without_the_server_is_charged_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.fallback.merging.LONGEST_START", 0.1)
    with RedisServer() as server:
        limiter = RateLimiter(LIMIT, store=server.url, on_store_failure=OnFailure())
        assert limiter.hit("key", 3).source == "store"
        server.kill()
        sources = [limiter.hit("key").source for _ in range(24)]
        assert sources == ["fail_open"] * 20 + ["fallback"] * 4
        server.start()
        wait_until(lambda: limiter.peek("key").source == "store", "the server decides again")
        looking = RateLimiter(LIMIT, store=RedisStore(server.url))

        def left() -> int:
            limiter.peek("key")  # somebody has to ask for the breaker to close
            return looking.peek("key").remaining

        # The first calls met the server while it went: they may have been charged, so they are not
        # charged again. The others are told.
        wait_until(lambda: left() <= 6, "the server was told")
        looking.close()
        limiter.close()
