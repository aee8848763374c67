"""Callers that are cancelled at random instants, on real stores: they are charged nothing."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter, RateLimiter, TokenBucket
from headgate.limits import EXACT, Accuracy
from tests.support.servers import ClusterSetup, RedisServer, is_installed
from tests.support.shm_stores import fresh_url

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMIT = TokenBucket(10_000, 0.001)
CALLERS = 400
AT_ONCE = 20


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    with ExitStack() as ends:
        server = ends.enter_context(RedisServer())
        yield {
            "redis": server.url,
            "leased": server.url,
            "cluster": ends.enter_context(ClusterSetup()).url,
            "shm": ends.enter_context(fresh_url()),
        }


@pytest.mark.parametrize("policy", ["fail_open", "fail_closed"])
@pytest.mark.parametrize("kind", ["redis", "leased", "cluster", "shm"])
def test_cancelled_callers_are_charged_nothing(
    urls: dict[str, str], kind: str, policy: str
) -> None:
    chance, namespace = random.Random(kind + policy), token_hex(4)

    async def flood() -> tuple[int, int]:
        limiter = AsyncRateLimiter(
            LIMIT,
            store=urls[kind],
            name="api",
            namespace=namespace,
            accuracy=Accuracy(batch=5) if kind == "leased" else EXACT,
            on_store_failure=policy,  # type: ignore[arg-type]  # one of two
        )
        allowed = cancelled = 0
        for _ in range(CALLERS // AT_ONCE):
            tasks = [asyncio.ensure_future(limiter.hit("key")) for _ in range(AT_ONCE)]
            await asyncio.sleep(chance.choice([0, 0, 0.0003, 0.001]))
            for task in chance.sample(tasks, AT_ONCE // 2):
                task.cancel()
            for reply in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(reply, asyncio.CancelledError):
                    cancelled += 1
                else:
                    assert not isinstance(reply, BaseException)
                    assert (reply.allowed, reply.source in ("store", "lease")) == (True, True)
                    allowed += 1
        await limiter.aclose()  # which returns leases
        return allowed, cancelled

    allowed, cancelled = asyncio.run(flood())
    witness = RateLimiter(LIMIT, store=urls[kind], name="api", namespace=namespace)
    used = LIMIT.capacity - witness.peek("key", 0).remaining
    witness.close()
    assert used == allowed
    assert kind == "shm" or cancelled > 0  # in shared memory most hits never wait
