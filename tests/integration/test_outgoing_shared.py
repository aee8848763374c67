"""A pace that several clients and processes keep together, over a real Redis; and the example."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from headgate.clients import NotSentError
from headgate.clients.httpx import AsyncPacedTransport, PacedTransport
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.limited_server import CLIENTS, LimitedServer, client_of
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

PROCESS = """
import sys, httpx
from headgate import TokenBucket
from headgate.clients import RetryPolicy, NotSentError
from headgate.clients.httpx import PacedTransport

url, store = sys.argv[1:]
paced = PacedTransport(pace=TokenBucket(5, 0.001), store=store, retry=RetryPolicy(max_wait=0))
with httpx.Client(transport=paced) as client:
    for _ in range(5):
        try:
            client.get(url)
        except NotSentError:
            pass
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


def test_two_processes_keep_one_limit(redis: RedisServer) -> None:
    with LimitedServer() as server:
        command = [sys.executable, "-c", PROCESS, server.url, redis.url]
        running = [subprocess.Popen(command) for _ in range(2)]  # noqa: S603 (our own)
        assert [process.wait(60) for process in running] == [0, 0]
    assert len(server.arrivals) == 5


def test_two_clients_keep_one_pace(redis: RedisServer) -> None:
    clock = ManualClock(1_000_000)
    times: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        times.append(clock.now - 1_000_000)
        return httpx.Response(200)

    def client() -> httpx.Client:
        store = RedisStore(redis.url, clock=clock)
        inner = httpx.MockTransport(answer)
        paced = PacedTransport(inner, pace="2/s", store=store, namespace="two", clock=clock)
        return httpx.Client(transport=paced)

    with client() as one, client() as other:
        for _ in range(3):
            one.get("https://api.example.com/a")
            other.get("https://api.example.com/b")
    assert times == [0, 0.5, 1, 1.5, 2, 2.5]


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_client_can_keep_its_pace_in_redis(kind: str, redis: RedisServer) -> None:
    store = redis.url
    with (
        LimitedServer() as server,
        client_of(kind, pace="200/s", store=store, namespace=kind) as client,
    ):
        assert client.together(10, "GET", server.url) == [200] * 10
    assert redis.cli("--scan", "--pattern", f"*{kind}*")


def test_a_secret_key_is_not_in_the_store(redis: RedisServer) -> None:
    def token(request: httpx.Request) -> str:
        return str(request.headers["Authorization"])

    paced = PacedTransport(
        httpx.MockTransport(lambda _: httpx.Response(200)),
        pace="1/h",
        store=redis.url,
        namespace="secrets",
        key=token,
    )
    with httpx.Client(transport=paced) as client:
        client.get("https://api.example.com", headers={"Authorization": "Bearer s3cret"})
    names = redis.cli("--scan", "--pattern", "*secrets*")
    assert "~" in names
    assert "s3cret" not in names


def test_an_async_store_serves_async_clients(redis: RedisServer) -> None:
    calls: list[httpx.Request] = []

    def served(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(200)

    async def story() -> None:
        store = RedisStore(redis.url)
        paced = AsyncPacedTransport(
            httpx.MockTransport(served), pace="5/hour burst 5", store=store, namespace="given"
        )
        async with httpx.AsyncClient(transport=paced) as client:
            for _ in range(5):
                await client.get("https://api.example.com")
            with pytest.raises(NotSentError):
                await client.get("https://api.example.com")
        await store.aclose()

    asyncio.run(story())

    assert len(calls) == 5
    assert "given" in redis.cli("--scan", "--pattern", "*given*")


def test_the_example_is_served_and_with_a_pace_never_denied() -> None:
    done = subprocess.run(  # noqa: S603 (our own)
        [sys.executable, str(ROOT / "examples" / "outgoing_httpx.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    _, obeying, paced = done.stdout.splitlines()
    assert "20 of 20 calls served" in obeying
    assert "20 of 20 calls served;  0 denied" in paced
    assert done.stderr == ""
