"""The HTTP server on a real socket of this process, an app for it, and somebody who calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.config import Address
from headgate.service.http_server import Bounds, HttpServer
from headgate.service.sockets import listen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
GENEROUS = Bounds(header=2_000, connections=100, receive=60.0, idle=60.0)


class App:
    """Answers `ok`, once *gate* is open if it has one."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        self.headers = scope["headers"]
        await self.gate.wait()
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


class Line:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def say(self, what: bytes) -> None:
        self._writer.write(what)

    async def answer(self) -> bytes:
        """The next answer with a body of two bytes."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        return head + await self._reader.readexactly(2)

    async def rest(self) -> bytes:
        """All that comes until the server closes."""
        return await self._reader.read()

    def hang_up(self) -> None:
        self._writer.transport.abort()


class House:
    """A server that is being tried."""

    def __init__(self, app: App, server: HttpServer, port: int) -> None:
        self.app, self.server = app, server
        self.address = "127.0.0.1", port
        self._lines: list[Line] = []

    async def line(self) -> Line:
        line = Line(*await asyncio.open_connection(*self.address))
        self._lines.append(line)
        return line

    async def leave(self) -> None:
        for line in self._lines:
            line.hang_up()
        self.app.gate.set()
        await self.server.drain(linger=0.0, grace=0.0)
        await asyncio.sleep(0)


def tried(
    trial: Callable[[House], Awaitable[None]], bounds: Bounds = GENEROUS, app: Any = None
) -> None:
    async def run() -> None:
        own = App()
        listener = listen(Address("127.0.0.1", 0), mode=0o660)
        server = HttpServer(app or own, bounds=bounds)
        await server.start([listener.sock])
        house = House(own, server, listener.at.port)
        try:
            await trial(house)
        finally:
            await house.leave()

    asyncio.run(run())
