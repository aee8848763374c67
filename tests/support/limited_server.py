"""A real HTTP server with a limit, and every client that calls it, as functions that block."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import httpx
import requests

from headgate.clients.aiohttp import PacedSession
from headgate.clients.httpx import AsyncPacedTransport, PacedTransport
from headgate.clients.requests import PacedAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Reply = tuple[int, dict[str, str]]
PATIENCE: Final = 30
"""Seconds after which a test gives up; nothing here takes them."""

DRIPS: Final = {
    "bytes of a body": ("Content-Length", "60000", b"", b"x"),
    "a chunk that never begins": ("Transfer-Encoding", "chunked", b"1;", b"x"),
}
"""Denials that come a byte at a time: a field with its value, the start, and each byte."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that has reached the server."""

    time: float
    method: str
    path: str
    body: bytes
    status: int


class LimitedServer:
    """Counts what arrives. The answer to the n-th request, from 0, is what *reply* says of n.

    With a *herd*, the first so many requests are answered when all of them are there. *denial* is
    the body of those that are denied, or *drip* what they are sent, one of the `DRIPS`; when a
    client has enough of that, it is `left_alone`.
    """

    def __init__(
        self,
        reply: Callable[[int], Reply] | None = None,
        *,
        herd: int = 1,
        denial: bytes = b"denied",
        drip: str | None = None,
    ) -> None:
        self.arrivals: list[Arrival] = []
        self.left_alone = threading.Event()
        self._drip = drip
        self.connections = 0
        self._reply = reply or (lambda _: (200, {}))
        self._denial = denial
        self._count = 0
        self._herd = herd
        self._gathering = threading.Barrier(herd)
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                with server._lock:
                    server.connections += 1

            def answer(self) -> None:
                server.answer(self)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """Say nothing: a client may hang up before its answer."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = _body(handler)
        with self._lock:
            number, self._count = self._count, self._count + 1
        if number < self._herd:
            self._gathering.wait(PATIENCE)
        with self._lock:
            status, headers = self._reply(number)
            at = time.monotonic()
            self.arrivals.append(Arrival(at, handler.command, handler.path, body, status))
        content = self._denial if status >= 400 else b"served"
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        if status >= 400 and self._drip is not None:
            self._send_slowly(handler, *DRIPS[self._drip])
            return
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        with suppress(ConnectionError):  # a client need not read all of a denial
            handler.wfile.write(content)

    def _send_slowly(
        self, handler: BaseHTTPRequestHandler, name: str, value: str, start: bytes, byte: bytes
    ) -> None:
        handler.send_header(name, value)
        handler.end_headers()
        handler.close_connection = True
        try:
            handler.wfile.write(start)
            for _ in range(200):
                handler.wfile.write(byte)
                time.sleep(0.02)
        except ConnectionError:
            self.left_alone.set()

    @property
    def denied(self) -> int:
        return sum(arrival.status >= 400 for arrival in self.arrivals)

    def came_before(self, seconds: float) -> int:
        """How many came after the first denial and its herd, and before so many seconds of it."""
        first = next(arrival.time for arrival in self.arrivals if arrival.status >= 400)
        return sum(one.time < first + seconds for one in self.arrivals[self._herd :])

    def __enter__(self) -> LimitedServer:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding") != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


CLIENTS: Final = ("httpx", "httpx-async", "requests", "aiohttp")


class Client:
    """A client of one of the `CLIENTS`; `call` and `together` give statuses."""

    def call(self, method: str, url: str, **options: Any) -> int:
        raise NotImplementedError

    def together(self, count: int, method: str, url: str) -> list[int]:
        raise NotImplementedError


class Threaded(Client):
    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send

    def call(self, method: str, url: str, **options: Any) -> int:
        return int(self._send(method, url, **options).status_code)

    def together(self, count: int, method: str, url: str) -> list[int]:
        with ThreadPoolExecutor(count) as pool:
            waiting = [pool.submit(self.call, method, url) for _ in range(count)]
            return [one.result(PATIENCE) for one in waiting]


class Looped(Client):
    def __init__(self, runner: asyncio.Runner, send: Callable[..., Any]) -> None:
        self._runner = runner
        self._send = send

    def call(self, method: str, url: str, **options: Any) -> int:
        return self._runner.run(self._status(method, url, **options))

    def together(self, count: int, method: str, url: str) -> list[int]:
        async def all_of_them() -> list[int]:
            return await asyncio.gather(*(self._status(method, url) for _ in range(count)))

        return self._runner.run(all_of_them())

    async def _status(self, method: str, url: str, **options: Any) -> int:
        response = await self._send(method, url, **options)
        if isinstance(response, aiohttp.ClientResponse):
            async with response:
                await response.read()
                return response.status
        return int(response.status_code)


@contextmanager
def client_of(kind: str, **options: Any) -> Iterator[Client]:
    """A client of that *kind*, with these options of ours."""
    timeout = httpx.Timeout(PATIENCE)
    if kind == "httpx":
        with httpx.Client(transport=PacedTransport(**options), timeout=timeout) as client:
            yield Threaded(client.request)
    elif kind == "requests":
        with requests.Session() as session:
            session.mount("http://", PacedAdapter(pool_maxsize=100, **options))
            yield Threaded(session.request)
    else:
        with asyncio.Runner() as runner:
            if kind == "httpx-async":
                transport = AsyncPacedTransport(**options)
                aclient = httpx.AsyncClient(transport=transport, timeout=timeout)
                yield Looped(runner, aclient.request)
                runner.run(aclient.aclose())
            else:
                paced = PacedSession(**options)
                opened = runner.run(paced.__aenter__())
                yield Looped(runner, opened.request)
                runner.run(paced.__aexit__(None, None, None))


def streamed(kind: str) -> dict[str, Any]:
    """A body that can be sent once, for a request of that client."""
    if kind in ("httpx", "requests"):
        return {"content" if kind == "httpx" else "data": (part for part in (b"on", b"ce"))}

    async def parts() -> Any:
        yield b"on"
        yield b"ce"

    return {"content" if kind == "httpx-async" else "data": parts()}
