"""The decorator on websockets of Starlette, with the middleware and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.routing import WebSocketRoute

from headgate.integrations.starlette import limit
from headgate.limits import Concurrency
from tests.support.asgi_client import app_of, still_limiter, websocket

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from headgate.integrations import RequestLimiter

DENIAL = "websocket.http.response"


def socket_of(limiter: RequestLimiter | None) -> Any:
    @limit("1/minute", limiter=limiter)
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(await socket.receive_text())
        await socket.close()

    return echo


def test_a_websocket_is_refused_before_it_is_accepted() -> None:
    for app in (
        app_of(WebSocketRoute("/", socket_of(still_limiter()))),
        app_of(WebSocketRoute("/", socket_of(None)), limiter=still_limiter()),
    ):
        kinds = [message["type"] for message in websocket(app, "/")]
        assert kinds == ["websocket.accept", "websocket.send", "websocket.close"]
        (closed,) = websocket(app, "/")
        assert (closed["type"], closed["code"]) == ("websocket.close", 1008)
        start, body = websocket(app, "/", extensions=[DENIAL])
        assert (start["type"], start["status"]) == (f"{DENIAL}.start", 429)
        assert b"rate_limit_exceeded" in body["body"]


def test_a_websocket_that_was_accepted_by_somebody_else_is_closed() -> None:
    @limit("1/minute", limiter=still_limiter())
    async def late(socket: WebSocket) -> None:
        await socket.close()

    async def accepting(socket: WebSocket) -> None:
        await socket.accept()
        await late(socket)

    app = app_of(WebSocketRoute("/", accepting))
    assert websocket(app, "/")[-1]["code"] == 1000
    assert websocket(app, "/", extensions=[DENIAL])[-1]["code"] == 1008


def test_a_place_for_a_websocket_is_free_again_when_it_ends() -> None:
    @limit(Concurrency(1, ttl=60), limiter=still_limiter())
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        async for _ in socket.iter_text():
            pass

    app = app_of(WebSocketRoute("/", echo))
    for _ in range(3):
        assert websocket(app, "/")[0]["type"] == "websocket.accept"
