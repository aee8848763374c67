"""An aiohttp server with limits: for all of it, for logins that fail, for streams, for websockets.

python examples/aiohttp_app.py             # then: curl -i http://127.0.0.1:8000/
"""

from __future__ import annotations

import asyncio
import os

from aiohttp import WSMsgType, web

from headgate import Concurrency
from headgate.integrations.aiohttp_server import exempt, limit, report, setup, status

routes = web.RouteTableDef()


@routes.get("/")
async def index(_request: web.Request) -> web.Response:
    """Counted with everything else."""
    return web.Response(text="hello\n")


@routes.get("/health")
@exempt
async def health(_request: web.Request) -> web.Response:
    """Not counted."""
    return web.Response(text="well\n")


@routes.post("/login")
@limit("5/minute strict", charge_when=lambda response: response.status_code == 401)
async def login(request: web.Request) -> web.Response:
    """Five wrong passwords a minute; right ones are free."""
    data = await request.post()
    if data.get("password") != "open sesame":
        raise web.HTTPUnauthorized(text="no\n")
    return web.Response(text="welcome\n")


@routes.get("/words/{count}")
@limit("1000/hour", cost=200, is_estimate=True, name="words", key=lambda r: r.query.get("user"))
@limit(Concurrency(2, ttl=30), name="streams", key=lambda request: request.query.get("user"))
async def words(request: web.Request) -> web.StreamResponse:
    """A stream that costs as many words as are sent, two at a time for each user."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    for number in range(1, int(request.match_info["count"]) + 1):
        report(request, words=number)
        await response.write(f"word {number}\n".encode())
        await asyncio.sleep(0.01)
    return response


@routes.get("/echo")
@limit(Concurrency(1, ttl=30))
async def echo(request: web.Request) -> web.WebSocketResponse:
    """One websocket at a time for each client."""
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
    return socket


def make_app() -> web.Application:
    """The app."""
    app = web.Application()
    app.add_routes(routes)
    app.router.add_get("/rate_limit", status)
    setup(app, limits="100/minute", store=os.environ.get("HEADGATE_STORE", "memory://"))
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
