"""A Litestar app with limits: for all of it, for logins that fail, for streams, for websockets.

python examples/litestar_app.py            # then: curl -i http://127.0.0.1:8000/
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import uvicorn
from litestar import Litestar, Request, WebSocket, get, post, websocket
from litestar.exceptions import NotAuthorizedException, WebSocketDisconnect
from litestar.response import Stream

from headgate import Concurrency
from headgate.integrations.litestar import RateLimitPlugin, exempt, limit, report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@get("/")
async def index() -> str:
    """Counted with everything else."""
    return "hello\n"


@get("/health")
@exempt
async def health() -> str:
    """Not counted."""
    return "well\n"


wrong_passwords = limit(
    "5/minute strict", name="logins", charge_when=lambda response: response.status_code == 401
)


@post("/login", guards=[wrong_passwords], status_code=200)
async def login(request: Request[Any, Any, Any]) -> str:
    """Five wrong passwords a minute; right ones are free."""
    if (await request.form()).get("password") != "open sesame":
        raise NotAuthorizedException
    return "welcome\n"


def user(connection: Request[Any, Any, Any]) -> str | None:
    """The user of a request; None: its client IP."""
    return connection.query_params.get("user")


words_sent = limit("1000/hour", name="words", key=user, cost=200, is_estimate=True)
streams = limit(Concurrency(2, ttl=30), name="streams", key=user)


@get("/words/{count:int}", guards=[words_sent, streams])
async def words(request: Request[Any, Any, Any]) -> Stream:
    """A stream that costs as many words as are sent, two at a time for each user."""

    async def sent() -> AsyncIterator[str]:
        for number in range(1, request.path_params["count"] + 1):
            report(request, words=number)
            yield f"word {number}\n"
            await asyncio.sleep(0.01)

    return Stream(sent(), media_type="text/plain")


@websocket("/echo", guards=[limit(Concurrency(1, ttl=30))])
async def echo(socket: WebSocket[Any, Any, Any]) -> None:
    """One websocket at a time for each client."""
    await socket.accept()
    try:
        while True:
            await socket.send_text(await socket.receive_text())
    except WebSocketDisconnect:
        return


limits = RateLimitPlugin(limits="100/minute", store=os.environ.get("HEADGATE_STORE", "memory://"))
app = Litestar([index, health, login, words, echo], plugins=[limits])

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
