"""`accuracy=None` means exact, on every store and for both limiters."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.limits import Accuracy
from headgate.stores.shm.file import path_of
from tests.support.servers import RedisServer, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.decision import Decision

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

STORES = ("memory", "shm", "redis")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[str]:
    name = f"exact-{token_hex(8)}"
    yield {"memory": "memory://", "shm": f"shm://{name}?size=1MB", "redis": server.url}[
        request.param
    ]
    if request.param == "shm":
        path_of(name).unlink(missing_ok=True)


def test_a_limiter_without_an_accuracy_is_exact(url: str) -> None:
    with RateLimiter("3/hour", store=url, name=token_hex(8), accuracy=None) as limiter:
        decisions = [limiter.hit("key") for _ in range(4)]
    check(decisions)


def test_so_is_one_in_an_event_loop(url: str) -> None:
    async def main() -> list[Decision]:
        name = token_hex(8)
        async with AsyncRateLimiter("3/hour", store=url, name=name, accuracy=None) as limiter:
            return [await limiter.hit("key") for _ in range(4)]

    check(asyncio.run(main()))


def check(decisions: list[Decision]) -> None:
    assert [one.allowed for one in decisions] == [True] * 3 + [False]
    assert [one.remaining for one in decisions] == [2, 1, 0, 0]
    assert {one.source for one in decisions} == {"store"}


def test_it_ends_the_accuracy_that_a_limiter_of_that_name_had(server: RedisServer) -> None:
    name = token_hex(8)
    with RateLimiter("9/hour", store=server.url, name=name, accuracy=Accuracy(batch=3)) as one:
        assert one.hit("key").allowed
    with RateLimiter("9/hour", store=server.url, name=name, accuracy=None) as other:
        assert other.hit("key").source == "store"
