"""FastAPI apps that count in Redis: several processes, and a Redis that goes away."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException

from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, RequestContext, limit
from headgate.limits import Concurrency
from tests.support.servers import RedisServer, wait_until
from tests.support.uvicorn_apps import script, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


SHARED = """
import os
import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, exempt, limit

app = FastAPI()
app.add_middleware(RateLimitMiddleware, limits="100/day", store=os.environ["STORE"])

@app.get("/health")
@exempt
def health(): ...

@app.get("/search", dependencies=[Depends(RateLimit("5/day"))])
async def search(): ...

@app.post("/login")
@limit("5/day", charge_when=lambda response: response.status_code == 401)
def login():
    raise HTTPException(401)

def made(name):
    @limit("5/day")
    async def view(): ...
    return view

models = ["books", "films"]
for name in models if os.environ["ORDER"] == "0" else reversed(models):
    app.add_api_route(f"/{name}/{{number}}", made(name))

uvicorn.run(app, port=int(os.environ["PORT"]))
"""


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def statuses(urls: list[str], times: int, method: str = "GET", **options: Any) -> list[int]:
    """What so many requests come to, all at once and in turn to each of *urls*."""
    async with httpx.AsyncClient(timeout=60) as client:
        asked = [client.request(method, urls[n % len(urls)], **options) for n in range(times)]
        return sorted(reply.status_code for reply in await asyncio.gather(*asked))


def test_two_processes_let_through_exactly_what_one_would(
    redis: RedisServer, tmp_path: Path
) -> None:
    app = tmp_path / "shared.py"
    app.write_text(SHARED, encoding="utf-8")
    with ExitStack() as running:
        served = [
            running.enter_context(script(app, tmp_path / f"{n}.log", STORE=redis.url, ORDER=str(n)))
            for n in range(2)
        ]
        searches = [f"{url}/search" for url in served]
        assert asyncio.run(statuses(searches, 40)) == [200] * 5 + [429] * 35
        logins = [f"{url}/login" for url in served]
        assert asyncio.run(statuses(logins, 40, "POST")) == [401] * 5 + [429] * 35
        for name in ("books", "films"):  # whose routes were made in another order in the other
            asked = [f"{url}/{name}/{n}" for n, url in enumerate(served)]
            assert asyncio.run(statuses(asked, 20)) == [200] * 5 + [429] * 15
        # A refusal consumes nothing: twenty requests of the hundred of the app were let through.
        assert '"default";r=79' in httpx.get(f"{served[0]}/nowhere").headers["ratelimit"]


def app_on(store: str) -> FastAPI:
    app = FastAPI()
    app.add_middleware(RateLimitMiddleware, limits="1000/minute", store=store)

    @app.get("/open")
    @limit("1000/minute")
    async def opened() -> str:
        return "open"

    @app.get("/estimate")
    async def estimate(
        usage: Annotated[RequestContext, Depends(RateLimit("99/s", name="e", is_estimate=True))],
    ) -> str:
        usage.report({"e": 3})
        return "estimate"

    @app.get("/slot", dependencies=[Depends(RateLimit(Concurrency(5, ttl=60)))])
    async def slot() -> str:
        return "slot"

    @app.get("/failing")
    @limit("1000/minute", charge_when=lambda shown: shown.status_code == 418)
    def failing() -> None:
        raise HTTPException(418)

    @app.get("/closed", dependencies=[Depends(RateLimit("9/s", on_store_failure="fail_closed"))])
    async def closed() -> str:
        return "closed"

    return app


def test_a_redis_that_is_gone_is_never_a_500(redis: RedisServer) -> None:
    with serving(app_on(redis.url)) as url, httpx.Client(base_url=url, timeout=60) as client:
        paths = ("/open", "/estimate", "/slot", "/failing", "/closed")
        assert [client.get(path).status_code for path in paths] == [200, 200, 200, 418, 200]
        redis.kill()
        for _ in range(3):
            assert [client.get(path).status_code for path in paths] == [200, 200, 200, 418, 503]
        refused = client.get("/closed")
        assert refused.json()["error"] != "rate_limit_exceeded"
        redis.start()
        wait_until(lambda: client.get("/closed").status_code == 200, "Redis is asked again")
        # Others may be asked without it for a while yet: it is not given everything at once.
        wait_until(
            lambda: "x-ratelimit-remaining" in client.get("/open").headers, "all of it is counted"
        )
