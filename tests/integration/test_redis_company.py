"""Callers that travel together: what goes wrong with one is nobody else's affair."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter, Concurrency, Hit, RateLimiter
from headgate.errors import LimitError, StoreError
from headgate.limits import FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Check, Hold, Settle, Take
from headgate.stores.redis import RedisStore
from headgate.units import SECOND
from tests.support.servers import ClusterSetup, RedisServer, SilentProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

TOO_FINE = SlidingWindowCounter(5, 0.000_1, 1_000)
"""A limit that Redis cannot hold."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as running:
        yield running


@pytest.mark.parametrize("topology", ["server", "cluster"])
def test_a_limit_that_cannot_be_held_disturbs_no_other_caller_of_the_loop(
    topology: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(topology).url

    async def story() -> None:
        limiter = AsyncRateLimiter("10/s", store=url, name="api", namespace="poison")
        for n in range(5):
            with pytest.raises(LimitError, match="subwindow"):
                await limiter.hit_all([Hit("c", TOO_FINE)])
            async with asyncio.timeout(60):
                assert (await limiter.hit(f"key{n}")).source == "store"
        await limiter.aclose()

    asyncio.run(story())


def test_a_limit_that_cannot_be_held_is_an_error_of_the_thread_that_asks(
    server: RedisServer,
) -> None:
    told: dict[str, object] = {}
    with SilentProxy(server.port) as proxy:
        store = RedisStore(f"{proxy.url}&connections=1")
        limiter = RateLimiter("10/s", store=store, name="api", on_store_failure="fail_closed")
        limiter.hit("warm")
        proxy.delay_replies(ms=200)

        def ask(name: str, hit: Hit) -> None:
            try:
                told[name] = limiter.hit_all([hit]).source
            except LimitError as error:
                told[name] = type(error)

        hits = {"bad": Hit("c", TOO_FINE), **{f"good{n}": Hit("k", "9/s") for n in range(6)}}
        threads = [threading.Thread(target=ask, args=item) for item in hits.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
    assert told.pop("bad") is LimitError
    assert set(told.values()) == {"store"}


def test_hit_many_tells_of_each_for_itself(server: RedisServer) -> None:
    server.cli("rpush", "many=api:bad", "somebody else's")

    async def story() -> list[str]:
        limiter = AsyncRateLimiter("5/h", store=server.url, name="api", namespace="many")
        found = [one.source for one in await limiter.hit_many(["a", "bad", "b"])]
        await limiter.aclose()
        return found

    with RateLimiter("5/h", store=server.url, name="api", namespace="many") as limiter:
        told = limiter.hit_many(["a", "bad", "b"])
    assert [one.source for one in told] == ["store", "fail_open", "store"]
    assert [one.remaining for one in told if one.source == "store"] == [4, 4]
    assert asyncio.run(story()) == ["store", "fail_open", "store"]


def test_hit_many_is_sent_in_calls_that_let_others_in_between(server: RedisServer) -> None:
    with RateLimiter("5/h", store=server.url, name="api", namespace="long") as limiter:
        limiter.hit_many(["warm"])
        before = server.calls("evalsha")
        assert all(limiter.hit_many([f"k{n}" for n in range(1_000)]))
        assert server.calls("evalsha") - before >= 1_000 // 16


@contextmanager
def talking_nonsense(reply: bytes) -> Iterator[str]:
    """A server that greets, and answers everything else with *reply*; its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65_536):
                    greeted = data.count(b"SETNAME")
                    connection.sendall(b"+OK\r\n" * greeted + reply * (data.count(b"EVAL") > 0))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0?timeout=2"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


@pytest.mark.parametrize(
    "reply", [b"$-1\r\n", b"*0\r\n", b"*-1\r\n", b"*2\r\n:5\r\n$-1\r\n", b"+OK\r\n"]
)
@pytest.mark.parametrize("limit", ["10/s", "10/s fixed_window"])
def test_an_answer_that_is_none_is_an_error_and_nobody_waits_for_ever(
    reply: bytes, limit: str
) -> None:
    async def story(url: str) -> str:
        limiter = AsyncRateLimiter(limit, store=url, name="api")
        async with asyncio.timeout(5):
            source = (await limiter.hit("key")).source
        await limiter.aclose()
        return source

    with talking_nonsense(reply) as url:
        with RateLimiter(limit, store=url, name="api") as limiter:
            assert limiter.hit("key").source == "fail_open"
        assert asyncio.run(story(url)) == "fail_open"


def test_a_counter_that_is_named_twice_is_held_and_settled_as_a_whole(server: RedisServer) -> None:
    for limit in (FixedWindow(10, 3_600), SlidingWindowLog(10, 3_600), TokenBucket(10, 0.001)):
        store = RedisStore(server.url)
        parts = tuple(Check(f"twice {limit}", "k", limit, cost) for cost in (4, 4))
        store.run(Hold(parts, "name", 60 * SECOND))
        (left,) = store.run(Take(parts[:1], consume=False))
        assert left.remaining == 2, limit
        assert store.run(Settle(parts, "name", charge_lapsed=False)), limit
        (left,) = store.run(Take(parts[:1], consume=False))
        assert left.remaining == 2, limit
        store.close()


def test_what_is_as_new_does_not_stay_for_a_window(server: RedisServer) -> None:
    year = 365 * 86_400
    for limit in (
        FixedWindow(5, year),
        SlidingWindowLog(5, year),
        SlidingWindowCounter(5, year),
        TokenBucket(5, 0.001),
    ):
        with RateLimiter(limit, store=server.url, name="api", namespace="short") as limiter:
            limiter.reserve("k", 3, ttl=60).cancel()
            assert 0 < int(server.cli("pttl", "short=api:k")) <= 2_000, limit
            limiter.reset("k")


def test_slots_of_different_leases_are_all_there_is(server: RedisServer) -> None:
    with RateLimiter(
        Concurrency(2, 60), store=server.url, name="api", namespace="slots"
    ) as limiter:
        slots = [limiter.slot("k") for _ in range(3)]
        assert [slot.take().allowed for slot in slots] == [True, True, False]


def test_a_store_that_is_closed_says_so(server: RedisServer) -> None:
    store = RedisStore(server.url)
    store.close()
    with pytest.raises(StoreError) as caught:
        store.run(Take((Check("g", "k", FixedWindow(1, 1)),)))
    assert caught.value.reason == "closed"

    async def story() -> str:
        store = RedisStore(server.url)
        await store.aclose()
        with pytest.raises(StoreError) as caught:
            await store.arun(Take((Check("g", "k", FixedWindow(1, 1)),)))
        return caught.value.reason

    assert asyncio.run(story()) == "closed"
