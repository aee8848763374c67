"""Headers are on every response: of an endpoint's own, of errors, of replays."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import JSONResponse

from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware, limit
from headgate.policy.loader import read_policy
from tests.support.asgi_client import Client, still_limiter


def app_with(*, has_middleware: bool) -> FastAPI:
    app, limiter = FastAPI(), still_limiter()
    if has_middleware:
        app.add_middleware(RateLimitMiddleware, limiter=limiter)
    own: Any = {} if has_middleware else {"limiter": limiter}

    @app.get("/error", dependencies=[Depends(RateLimit("5/minute", **own))])
    async def error() -> None:
        raise HTTPException(404, headers={"x-own": "1"})

    @app.get("/decorated")
    @limit("5/minute", **own)
    async def decorated() -> None:
        raise HTTPException(404)

    @app.get("/own", dependencies=[Depends(RateLimit("5/minute", **own))])
    async def own_response() -> JSONResponse:
        return JSONResponse({})

    return app


@pytest.mark.parametrize("has_middleware", [True, False], ids=["middleware", "alone"])
@pytest.mark.parametrize("path", ["/error", "/decorated"])
def test_an_error_that_the_app_raises_has_the_headers(path: str, has_middleware: bool) -> None:
    reply = Client(app_with(has_middleware=has_middleware)).get(path)

    assert reply.status_code == 404
    assert reply.headers["x-ratelimit-remaining"] == "4"
    assert "retry-after" not in reply.headers


def test_headers_survive_a_response_that_the_endpoint_returns() -> None:
    reply = Client(app_with(has_middleware=True)).get("/own")

    assert (reply.status_code, reply.headers["x-ratelimit-remaining"]) == (200, "4")


def test_a_replay_is_exposed_to_other_origins() -> None:
    rule = "{id: once, key_by: ip, limit: 5/hour, idempotency: {header: idempotency-key, ttl: 1h}}"
    app = FastAPI()
    limiter = still_limiter(policy=read_policy(f"version: 1\nrules: [{rule}]"))
    app.add_middleware(RateLimitMiddleware, limiter=limiter)
    headers = {"origin": "https://a.example", "idempotency-key": "k"}
    replies = [Client(app).get("/", headers=headers) for _ in range(2)]

    assert "idempotency-replayed" not in replies[0].headers
    assert replies[1].headers["idempotency-replayed"] == "true"
    assert "Idempotency-Replayed" in replies[1].headers["access-control-expose-headers"]
