"""Workers of one server that share their counters in memory, with no other server at all."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from secrets import token_hex
from typing import TYPE_CHECKING

import httpx
import pytest

from headgate.stores.shm.file import path_of
from tests.support.servers import free_port, release_port, wait_until
from tests.support.wsgi_servers import Serving, answers, gunicorn, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKERS = 3

WSGI = """
import os
from headgate.integrations.wsgi import RateLimitMiddleware

def inner(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-Pid", str(os.getpid()))])
    return [b"hello"]

app = RateLimitMiddleware(inner, limits="20/hour", store={store!r}, exempt=["/health"])
"""

ASGI = """
import os
from headgate.integrations.asgi import RateLimitMiddleware

async def inner(scope, receive, send):
    headers = [(b"x-pid", str(os.getpid()).encode())]
    await send({{"type": "http.response.start", "status": 200, "headers": headers}})
    await send({{"type": "http.response.body", "body": b"hello"}})

app = RateLimitMiddleware(inner, limits="20/hour", store={store!r}, exempt=["/health"])
"""


@pytest.fixture
def store() -> Iterator[str]:
    name = f"workers-{token_hex(8)}"
    yield f"shm://{name}?size=2MB&timeout=10"
    path_of(name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Every request on a connection of its own: any worker may get it."""
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(limits=limits, trust_env=False, timeout=30) as made:
        yield made


def all_pids(client: httpx.Client, serving: Serving) -> set[str]:
    """The workers, once all have answered."""
    seen: set[str] = set()

    def is_complete() -> bool:
        try:
            with ThreadPoolExecutor(WORKERS) as pool:
                urls = [f"{serving.url}/health"] * WORKERS
                seen.update(answer.headers["X-Pid"] for answer in pool.map(client.get, urls))
        except httpx.TransportError:  # one of them was killed
            return False
        return len(seen) >= WORKERS

    wait_until(is_complete, f"{WORKERS} workers have answered")
    return seen


def statuses(client: httpx.Client, serving: Serving, requests: int) -> list[int]:
    with ThreadPoolExecutor(6) as pool:
        return sorted(one.status_code for one in pool.map(client.get, [serving.url] * requests))


def test_gunicorn_admits_exactly_as_many_as_the_limit_says(
    store: str, client: httpx.Client
) -> None:
    with gunicorn(WSGI.format(store=store), "--preload", workers=WORKERS) as serving:
        all_pids(client, serving)
        assert statuses(client, serving, 60) == [200] * 20 + [429] * 40


def test_a_worker_that_is_killed_takes_nothing_with_it(store: str, client: httpx.Client) -> None:
    with gunicorn(WSGI.format(store=store), workers=WORKERS) as serving:
        killed = all_pids(client, serving).pop()
        assert statuses(client, serving, 10) == [200] * 10
        os.kill(int(killed), signal.SIGKILL)
        all_pids(client, serving)
        assert statuses(client, serving, 30) == [200] * 10 + [429] * 20


def test_uvicorn_admits_exactly_as_many_as_the_limit_says(
    store: str, client: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "served.py").write_text(ASGI.format(store=store), encoding="utf-8")
    port = free_port()
    call = [sys.executable, "-m", "uvicorn", "served:app", "--app-dir", str(tmp_path)]
    call += ["--port", str(port), "--workers", str(WORKERS), "--log-level", "warning"]
    serving = Serving(f"http://127.0.0.1:{port}", tmp_path)
    try:
        with running(call, tmp_path / "log"):
            wait_until(lambda: answers(serving.url), "uvicorn answers")
            all_pids(client, serving)
            assert statuses(client, serving, 60) == [200] * 20 + [429] * 40
    finally:
        release_port(port)
