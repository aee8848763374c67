"""Turns, queues and shedding on a real uvicorn, whose clients may hang up."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.integrations import RequestLimiter
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from tests.support.servers import RedisServer, wait_until
from tests.support.uvicorn_apps import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES = """
version: 1
priority:
  - {class: critical, match: {endpoint: /pay}}
  - {class: sheddable, match: {endpoint: /report}}
rules:
  - id: turns
    match: {endpoint: /work}
    key_by: tenant
    fair: {slots: 1, queue: 10, max_wait: 60s}
  - id: exports
    match: {endpoint: /export}
    key_by: global
    shape: {rate: 1 per hour, queue: 2}
  - id: backend
    match: {endpoint: [/pay, /report]}
    key_by: global
    concurrency: {limit: 2, ttl: 60s, reserve: {critical: 50%}}
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Slow:
    """An app whose requests take until they are told to end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.began = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        self.began += 1
        await asyncio.to_thread(self.may_end.wait, 60)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def hanging_up(url: str, path: str) -> socket.socket:
    """A client that asks and will not wait for the answer."""
    host, port = url.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return client


def has_room(url: str) -> bool:
    """Whether a request is delayed, not refused at once. It leaves before its turn comes."""
    with hanging_up(url, "/export") as client:
        client.settimeout(0.5)
        try:
            return not client.recv(1)
        except TimeoutError:
            return True


def made(store: str = "memory://") -> tuple[Slow, RequestLimiter, RateLimitMiddleware]:
    app, limiter = Slow(), RequestLimiter(policy=read_policy(RULES), store=store)
    return app, limiter, RateLimitMiddleware(app, limiter)


def test_whoever_hangs_up_while_it_waits_for_its_turn_lets_the_next_go() -> None:
    app, limiter, limited = made()
    with serving(limited, lifespan="off") as url, ThreadPoolExecutor() as pool:
        first = pool.submit(httpx.get, f"{url}/work", timeout=60)
        wait_until(lambda: app.began == 1, "the first is in")
        leaving = hanging_up(url, "/work")
        wait_until(lambda: limiter.queues.waiting == 1, "the second waits")
        third = pool.submit(httpx.get, f"{url}/work", timeout=60)
        wait_until(lambda: limiter.queues.waiting == 2, "the third waits")
        leaving.close()
        wait_until(lambda: limiter.queues.waiting == 1, "the second has gone")
        app.may_end.set()
        assert [first.result().status_code, third.result().status_code] == [200, 200]
        assert app.began == 2
        assert "slots=1" in third.result().headers["headgate-queue"]


def test_whoever_hangs_up_while_it_is_delayed_gives_its_turn_up(redis: RedisServer) -> None:
    app, _, limited = made(redis.url)
    app.may_end.set()
    with serving(limited, lifespan="off") as url:
        assert httpx.get(f"{url}/export", timeout=60).status_code == 200
        waiting = [hanging_up(url, "/export") for _ in range(2)]
        wait_until(lambda: not has_room(url), "two are waiting")
        for client in waiting:
            client.close()
        wait_until(lambda: has_room(url), "their turns were given up")


def test_processes_that_share_a_store_shed_together(redis: RedisServer) -> None:
    (one, _, first), (other, _, second) = made(redis.url), made(redis.url)
    with (
        serving(first, lifespan="off") as url,
        serving(second, lifespan="off") as elsewhere,
        ThreadPoolExecutor() as pool,
    ):
        report = pool.submit(httpx.get, f"{url}/report", timeout=60)
        wait_until(lambda: one.began == 1, "a report is being made")
        shed = httpx.get(f"{elsewhere}/report")
        assert shed.status_code == 503
        assert shed.json()["limit"] == "backend"
        assert int(shed.headers["retry-after"]) >= 1
        pay = pool.submit(httpx.get, f"{elsewhere}/pay", timeout=60)
        wait_until(lambda: other.began == 1, "a payment is being made")
        assert httpx.get(f"{url}/pay").status_code == 503
        one.may_end.set()
        other.may_end.set()
        assert [report.result().status_code, pay.result().status_code] == [200, 200]
