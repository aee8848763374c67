"""The ASGI middleware with Redis: several processes share a limit, and Redis may go away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from headgate.limits import Concurrency
from tests.support.servers import RedisServer, wait_until
from tests.support.uvicorn_apps import script, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKERS = """
import os
import uvicorn
from headgate.integrations.asgi import RateLimitMiddleware

async def hello(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    headers = [(b"x-process", b"%d" % os.getpid())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"hello"})

app = RateLimitMiddleware(
    hello, limits="50/day; 1000/day fixed_window", exempt=["/health"], store=os.environ["STORE"]
)

if __name__ == "__main__":
    folder, name = os.path.split(os.path.splitext(__file__)[0])
    port = int(os.environ["PORT"])
    uvicorn.run(f"{name}:app", app_dir=folder, port=port, workers=3, lifespan="on")
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def to_two_workers(url: str) -> list[httpx.Client]:
    """A client for each of two workers: each keeps the connection on which it found its own."""
    clients: dict[str, httpx.Client] = {}

    def has_found_two() -> bool:
        client = httpx.Client(base_url=url, timeout=60)
        process = client.get("/health").headers["x-process"]
        if process in clients:
            client.close()
        clients.setdefault(process, client)
        return len(clients) > 1

    wait_until(has_found_two, "two workers answer")
    return list(clients.values())


def test_several_workers_admit_exactly_as_many_as_the_limit_says(
    redis: RedisServer, tmp_path: Path
) -> None:
    path = tmp_path / "workers.py"
    path.write_text(WORKERS)
    with script(path, tmp_path / "log", STORE=redis.url) as url:
        clients = to_two_workers(url)
        shown = [client.get("/") for _ in range(50) for client in clients]
        for client in clients:
            client.close()
    admitted = [one for one in shown if one.status_code == 200]

    assert len({one.headers["x-process"] for one in admitted}) == 2
    assert sorted({one.status_code for one in shown}) == [200, 429]
    assert len(admitted) == 50
    assert {one.headers["x-ratelimit-remaining"] for one in admitted} == {str(n) for n in range(50)}


def test_a_killed_redis_is_never_a_500_and_is_used_again_when_it_is_back(
    redis: RedisServer,
) -> None:
    app = RateLimitMiddleware(hello, limits="1000/day", store=redis.url)
    with serving(app, lifespan="off") as url, httpx.Client(base_url=url, timeout=30) as client:
        assert client.get("/").headers["x-ratelimit-remaining"] == "999"
        redis.kill()
        gone = [client.get("/") for _ in range(5)]
        redis.restart()
        wait_until(lambda: "ratelimit" in client.get("/").headers, "Redis is used again")

    assert [one.status_code for one in gone] == [200] * 5
    assert all("ratelimit" not in one.headers for one in gone)
    assert all(one.headers["ratelimit-policy"] == '"default";q=1000;w=86400' for one in gone)


def test_a_redis_that_stands_still_does_not_stop_the_event_loop(redis: RedisServer) -> None:
    """While one request waits for the store, an exempt one is answered."""

    async def scenario(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            assert (await client.get("/")).status_code == 200
            redis.pause()
            stuck = asyncio.ensure_future(client.get("/"))
            try:
                for _ in range(5):
                    assert (await client.get("/health")).status_code == 200
                began = stuck.done()
            finally:
                redis.resume()
            assert (await stuck).status_code == 200
            assert not began

    app = RateLimitMiddleware(hello, limits="1000/day", exempt=["/health"], store=redis.url)
    with serving(app, lifespan="off") as url:
        asyncio.run(scenario(url))


def test_a_stream_whose_client_goes_gives_its_slot_back_in_redis(redis: RedisServer) -> None:
    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(_gone(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": b"tick ", "more_body": True})
            await asyncio.wait([gone], timeout=0.02)

    app = RateLimitMiddleware(
        endless,
        limits=["1000/day", Concurrency(1, 3600)],
        charge_when=lambda responded: responded.status_code == 200,
        store=redis.url,
    )
    with serving(app, lifespan="off") as url, httpx.Client(timeout=30) as client:
        with client.stream("GET", url) as first:
            assert first.status_code == 200
            assert client.get(url).status_code == 429

        def is_free() -> bool:
            with client.stream("GET", url) as reply:
                return reply.status_code == 200

        wait_until(is_free, "the slot is free")


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def test_an_app_that_is_started_again_in_the_same_process_counts_on(redis: RedisServer) -> None:
    """Test clients do so: the limiter is closed at shutdown, and asked again after a startup."""

    async def living(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await hello(scope, receive, send)
            return
        for ending in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{ending}.complete"})

    app = RateLimitMiddleware(living, limits="1000/day", store=redis.url)
    left = []
    for _ in range(2):
        with serving(app, lifespan="on") as url:
            left.append(httpx.get(url).headers.get("x-ratelimit-remaining"))

    assert left == ["999", "998"]
