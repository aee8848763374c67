"""A server far away: connecting has a time of its own, and errors say what has failed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from headgate.errors import StoreError
from headgate.limits import FixedWindow, TokenBucket
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.stores.redis.url import parse_redis_url
from tests.support.faults.proxy import FaultyProxy
from tests.support.servers import RedisServer, is_installed, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.operations import Outcomes

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

TIMEOUT = 1.0
DELAY_MS = 600
"""A greeting and a call take longer than the timeout, each for itself does not."""
LIMITS = (("a", TokenBucket(100, 1)), ("b", FixedWindow(100, 60)))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def store(proxy: FaultyProxy) -> Iterator[RedisStore]:
    proxy.delay_replies(ms=DELAY_MS)
    store = RedisStore(with_options(proxy.url, timeout=TIMEOUT))
    yield store
    store.close()


def test_the_default_timeout_leaves_time_for_several_round_trips_of_45_ms() -> None:
    url = parse_redis_url("redis://far")
    assert url.timeout == 0.05
    assert url.connect_timeout == 0.25
    assert parse_redis_url("redis://far?timeout=1").connect_timeout == 4


@pytest.mark.parametrize("ms", [26, 45])
def test_a_server_26_to_45_ms_away_works_with_the_default_timeout(
    proxy: FaultyProxy, ms: int
) -> None:
    proxy.delay_replies(ms=ms)
    check = Check("c", "far", LIMITS[0][1])

    def is_served(number: int) -> bool:
        """Make the first call of a new store, in a thread or in an event loop."""
        store = RedisStore(proxy.url)
        try:
            run = store.run if number % 2 else lambda take: asyncio.run(store.arun(take))
            return run(Take((check,)))[0].allowed
        except StoreError:
            return False
        finally:
            store.close()

    # A greeting and a call take longer than the timeout. A busy machine may add a few ms to some.
    for kind in range(2):
        assert any(is_served(2 * number + kind) for number in range(20))


def test_the_first_call_of_a_thread_has_its_full_timeout_after_connecting(
    store: RedisStore,
) -> None:
    assert store.prepare(LIMITS[:1]).take(["key"], [1])[0].allowed
    assert [one.allowed for one in store.prepare(LIMITS).take(["key"] * 2, [1, 1])] == [True] * 2


def test_threads_that_wait_for_others_to_connect_are_served_too(store: RedisStore) -> None:
    prepared = store.prepare(LIMITS)
    outcomes: list[Outcomes] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(prepared.take(["key"] * 2, [1, 1])))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert all(one.allowed for outcome in outcomes for one in outcome)


def test_the_first_calls_of_a_loop_have_their_full_timeout_after_connecting(
    store: RedisStore,
) -> None:
    async def main() -> None:
        check = Check("c", "key", LIMITS[0][1])
        taken = await asyncio.gather(*[store.arun(Take((check,))) for _ in range(20)])
        assert all(one.allowed for (one,) in taken)
        await store.aclose()

    asyncio.run(main())


def test_a_server_that_does_not_greet_fails_after_the_connect_timeout(proxy: FaultyProxy) -> None:
    proxy.swallow_replies()
    store = RedisStore(with_options(proxy.url, timeout=0.01))
    take = Take((Check("c", "key", LIMITS[0][1]),))
    with pytest.raises(StoreError, match="greeting not done after 2") as blocking:
        store.run(take)
    with pytest.raises(StoreError, match="greeting not done after 2") as in_loop:
        asyncio.run(store.arun(take))
    store.close()
    assert blocking.value.reason == in_loop.value.reason == "timeout"
    assert blocking.value.is_undone
    assert in_loop.value.is_undone


def test_a_port_where_no_server_listens_is_a_failed_tcp_connect(proxy: FaultyProxy) -> None:
    proxy.refuse_connections()
    store = RedisStore(proxy.url)
    take = Take((Check("c", "key", LIMITS[0][1]),))
    with pytest.raises(StoreError, match=f"{proxy.address}: TCP connect failed: .*refused"):
        store.run(take)
    with pytest.raises(StoreError, match=f"{proxy.address}: TCP connect failed: .*failed"):
        asyncio.run(store.arun(take))
    store.close()
