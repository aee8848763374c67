"""Runs an ASGI app on one connection, and keeps what it sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.integrations.asgi import App, Message, Receive, Scope, Send

CLIENT = ("203.0.113.7", 4711)


def http(
    path: str = "/",
    *,
    method: str = "GET",
    headers: Iterable[tuple[bytes, bytes]] = (),
    client: object = CLIENT,
    **more: Any,
) -> Scope:
    """The scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": list(headers),
        "client": client,
        "server": ("127.0.0.1", 80),
        **more,
    }


def websocket(path: str = "/", *, can_deny: bool = True, **more: Any) -> Scope:
    """The scope of a websocket, on a server that can answer it with a response or cannot."""
    scope = http(path, **more)
    del scope["method"]
    extensions: dict[str, Any] = {"websocket.http.response": {}} if can_deny else {}
    return {**scope, "type": "websocket", "scheme": "ws", "extensions": extensions}


@dataclass
class Exchange:
    """What was sent, in its order, and how many messages were received."""

    sent: list[Message] = field(default_factory=list)
    received: int = 0

    @property
    def start(self) -> Message:
        """The one message that begins the response."""
        (found,) = [one for one in self.sent if one["type"].endswith((".start", ".accept"))]
        return found

    @property
    def status(self) -> int:
        return int(self.start["status"])

    @property
    def lines(self) -> list[tuple[bytes, bytes]]:
        return list(self.start["headers"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers; each must be there once."""
        found = {name.decode(): value.decode() for name, value in self.lines}
        assert len(found) == len(self.lines)
        return found

    @property
    def remaining(self) -> int:
        return int(self.headers["x-ratelimit-remaining"])

    @property
    def body(self) -> bytes:
        return b"".join(one.get("body", b"") for one in self.sent)

    @property
    def types(self) -> list[str]:
        return [one["type"] for one in self.sent]


REQUEST: tuple[Message, ...] = ({"type": "http.request", "body": b"", "more_body": False},)
CONNECT: tuple[Message, ...] = (
    {"type": "websocket.connect"},
    {"type": "websocket.disconnect", "code": 1000},
)


async def exchange(
    app: App, scope: Scope, messages: Sequence[Message] | None = None, into: Exchange | None = None
) -> Exchange:
    """What *app* sends on the connection of *scope*, which receives *messages* and then waits."""
    if messages is None:
        messages = CONNECT if scope["type"] == "websocket" else REQUEST
    seen = Exchange() if into is None else into
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        seen.received += 1
        return left.pop(0)

    async def send(message: Message) -> None:
        seen.sent.append(message)

    await app({**scope}, receive, send)  # a scope is for one connection
    return seen


def drive(app: App, scope: Scope | None = None, *messages: Message) -> Exchange:
    """The same, in a loop of its own."""
    return asyncio.run(exchange(app, scope or http(), messages or None))


def drive_all(app: App, *scopes: Scope) -> list[Exchange]:
    """Several, one after another, in one loop."""

    async def each() -> list[Exchange]:
        return [await exchange(app, scope) for scope in scopes]

    return asyncio.run(each())


def statuses(app: App, *scopes: Scope) -> list[int]:
    """The status of each."""
    return [one.status for one in drive_all(app, *scopes)]


class Answering:
    """An app that answers with *status*, *headers* and *chunks*; keeps the scopes that it saw."""

    def __init__(
        self,
        status: int = 200,
        headers: Iterable[tuple[bytes, bytes]] = ((b"content-type", b"text/plain"),),
        chunks: Sequence[bytes] = (b"hello",),
    ) -> None:
        self.status = status
        self.headers = list(headers)
        self.chunks = chunks
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        last = len(self.chunks) - 1
        for n, chunk in enumerate(self.chunks):
            await send({"type": "http.response.body", "body": chunk, "more_body": n < last})


async def accepting(scope: Scope, receive: Receive, send: Send) -> None:
    """A websocket app that accepts, and stays until the other end goes."""
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", "headers": [(b"x-own", b"1")]})
    while (await receive())["type"] != "websocket.disconnect":
        pass
