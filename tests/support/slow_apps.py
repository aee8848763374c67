"""Apps that take their time, and clients that may go away, for a loop on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Message = dict[str, Any]


class App:
    """An app that takes its time: *seconds* for each request."""

    def __init__(self, seconds: float, status: int = 200) -> None:
        self.seconds = seconds
        self.status = status
        self.log: list[tuple[float, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.log.append((asyncio.get_running_loop().time(), scope["path"]))
        await asyncio.sleep(self.seconds)
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


class Client:
    """Asks a middleware, and goes away if it is told to."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def ask(
        self,
        path: str = "/",
        *,
        leaves_after: float | None = None,
        address: str = "1.2.3.4",
        method: str = "GET",
        **headers: str,
    ) -> tuple[int, Mapping[str, str], bytes]:
        sent: list[Message] = []
        left = [{"type": "http.request", "body": b""}]

        async def receive() -> Message:
            if left:
                return left.pop()
            await asyncio.sleep(1_000_000 if leaves_after is None else leaves_after)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        lines = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": lines,
            "client": (address, 1),
        }
        await self.app(scope, receive, send)
        if not sent:
            return 0, {}, b""
        told = {k.decode().lower(): v.decode() for k, v in sent[0]["headers"]}
        return sent[0]["status"], told, sent[1]["body"]
