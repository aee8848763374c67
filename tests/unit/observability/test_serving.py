"""`/metrics` of an app."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from headgate import RateLimiter
from headgate.observability import asgi_metrics, metrics_text, wsgi_metrics
from tests.support.wsgi_caller import call


def asked(method: str) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("there is no body to be read")

    asyncio.run(asgi_metrics({"type": "http", "method": method}, receive, send))
    return sent


def test_an_asgi_app_tells_what_there_is() -> None:
    RateLimiter("1/s", name="asgi-served").hit("k")
    start, body = asked("GET")
    assert start["status"] == 200
    assert (b"content-type", b"text/plain; version=0.0.4; charset=utf-8") in start["headers"]
    assert (b"content-length", str(len(body["body"])).encode()) in start["headers"]
    told = 'headgate_decisions_total{outcome="allowed",rule="asgi-served",source="store"} 1\n'
    assert told in body["body"].decode()
    assert told in metrics_text()


def test_a_wsgi_app_tells_the_same() -> None:
    RateLimiter("1/s", name="wsgi-served").hit("k")
    answered = call(wsgi_metrics, "GET", "/metrics")
    assert answered.code == 200
    assert 'rule="wsgi-served"' in answered.body.decode()


def test_head_has_no_body_and_other_methods_are_refused() -> None:
    assert asked("HEAD")[1]["body"] == b""
    start, _ = asked("POST")
    assert start["status"] == 405
    assert (b"allow", b"GET, HEAD") in start["headers"]
    assert call(wsgi_metrics, "POST", "/metrics").code == 405
    assert call(wsgi_metrics, "HEAD", "/metrics").body == b""


def test_whoever_wants_to_talk_is_turned_away() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    asyncio.run(asgi_metrics({"type": "websocket"}, receive, send))
    assert sent == [{"type": "websocket.close"}]


@pytest.mark.parametrize("kind", [Starlette, FastAPI])
def test_frameworks_can_route_to_it(kind: type[Starlette]) -> None:
    app = kind()
    app.add_route("/metrics", asgi_metrics)  # type: ignore[arg-type] # an app is as good
    app.mount("/mounted", asgi_metrics)

    async def main() -> list[str]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            return [(await client.get(path)).text for path in ("/metrics", "/mounted/")]

    assert all("headgate_requests_total" in text for text in asyncio.run(main()))


def test_it_lives_as_long_as_its_server() -> None:
    heard = iter(["lifespan.startup", "lifespan.shutdown"])
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        return {"type": next(heard)}

    asyncio.run(asgi_metrics({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
