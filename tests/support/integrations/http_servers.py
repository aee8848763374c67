"""Real servers for apps of the contract, in threads of this process, and a client over TCP.

The app stays in this process, so that a test moves its clock and takes its store away. A client has
the whole response before the app is done with the request; each exchange has a number, and the app
is wrapped so that a test can wait for its end.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import threading
from contextlib import ExitStack, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped]
from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headgate.testing.integration_contract import Exchange, Reply, Server, Socket
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HttpParser = Literal["auto", "h11", "httptools"]
PATIENCE = 30.0
NUMBER = "x-exchange"


class Ends:
    """The numbers of the exchanges that the app is done with."""

    def __init__(self) -> None:
        self._over: set[str] = set()
        self._changed = threading.Condition()

    def add(self, number: str) -> None:
        with self._changed:
            self._over.add(number)
            self._changed.notify_all()

    def wait(self, number: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._over, PATIENCE):
                raise TimeoutError("the app is not done with the request")


class HttpExchange(Exchange):
    """A request over a connection of its own."""

    def __init__(
        self,
        port: int,
        ends: Ends,
        number: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
    ) -> None:
        self._ends, self._number = ends, number
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self._connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in {**headers, NUMBER: number}.items():
            self._connection.putheader(name, value)
        self._connection.endheaders()
        self._response: http.client.HTTPResponse | None = None

    def send(self, part: bytes, *, is_last: bool = False) -> None:
        with suppress(OSError):  # the server has answered, and closed
            self._connection.send(part)

    def start(self) -> Reply:
        self._response = response = self._connection.getresponse()
        lines = tuple((name.lower(), value) for name, value in response.getheaders())
        return Reply(response.status, lines)

    def read(self) -> bytes:
        assert self._response is not None
        try:
            return self._response.read1(65_536)
        except (http.client.HTTPException, OSError):  # it breaks off
            return b""

    def disconnect(self) -> None:
        if self._response is not None:
            self._response.close()
        self._connection.close()

    def wait(self) -> None:
        self._ends.wait(self._number)
        self.disconnect()


class HttpSocket(Socket):
    """A websocket over a connection of its own."""

    def __init__(self, url: str, ends: Ends, number: str, headers: Mapping[str, str]) -> None:
        self._url, self._ends, self._number = url, ends, number
        self._headers = {**headers, NUMBER: number}
        self._opened: ClientConnection | None = None
        self._closing = ExitStack()

    def connect(self) -> Reply:
        try:
            opening = connect(self._url, additional_headers=self._headers, proxy=None)
            self._opened = opened = self._closing.enter_context(opening)
        except InvalidStatus as error:
            response = error.response
        else:
            assert opened.response is not None
            response = opened.response
        lines = tuple((name.lower(), value) for name, value in response.headers.raw_items())
        return Reply(response.status_code, lines)

    def ask(self, text: str) -> str:
        assert self._opened is not None
        self._opened.send(text)
        return str(self._opened.recv())

    def close(self) -> None:
        self._closing.close()
        self._ends.wait(self._number)


class HttpServer(Server):
    """A server on a port of this machine, in a thread."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.ends = Ends()
        self._numbers = map(str, count())
        self._exchanges: list[HttpExchange] = []

    def open(self, method: str, path: str, headers: Mapping[str, str], length: int) -> HttpExchange:
        lines = {**headers, "content-length": str(length)} if length else headers
        number = next(self._numbers)
        exchange = HttpExchange(self.port, self.ends, number, method, path, lines)
        self._exchanges.append(exchange)
        return exchange

    def websocket(self, path: str, headers: Mapping[str, str]) -> HttpSocket:
        url = f"ws://127.0.0.1:{self.port}{path}"
        return HttpSocket(url, self.ends, next(self._numbers), headers)

    def close(self) -> None:
        for exchange in self._exchanges:
            exchange.disconnect()
        self.stop()
        self.listener.close()

    def stop(self) -> None:
        """Stop the server."""
        raise NotImplementedError


# uvicorn.


class _Uvicorn(uvicorn.Server):
    """Ends at once when it is stopped, not with the next tick of a loop."""

    async def main_loop(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        await self.on_tick(0)
        self.is_ready = True
        await self._ended.wait()

    is_ready = False

    def end(self) -> None:
        """End, from any thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._ended.set)


class UvicornServer(HttpServer):
    """uvicorn, in the event loop of a thread."""

    def __init__(self, app: Any, *, has_lifespan: bool, http: HttpParser = "auto") -> None:
        super().__init__()
        config = uvicorn.Config(
            self._watched(app),
            http=http,
            lifespan="on" if has_lifespan else "off",
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        self._server = _Uvicorn(config)
        sockets = [self.listener]
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), name="uvicorn")
        self._thread.start()
        wait_until(lambda: self._server.is_ready, "uvicorn serves", every=0.005)

    def _watched(self, app: Any) -> Any:
        async def watched(scope: Any, receive: Any, send: Any) -> None:
            number = dict(scope.get("headers", ())).get(NUMBER.encode())
            try:
                await app(scope, receive, send)
            finally:
                if number is not None:
                    self.ends.add(number.decode())

        return watched

    def stop(self) -> None:
        self._server.end()
        self._thread.join()


# gunicorn: a worker of its own kind, without the process around it.


class _Worker(ThreadWorker):  # type: ignore[misc]
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._connections: list[Any] = []

    def init_signals(self) -> None:
        """Leave the signals alone: they are for processes."""

    def enqueue_req(self, conn: Any) -> None:
        self._connections.append(conn)
        super().enqueue_req(conn)

    def close_connections(self) -> None:
        """Close what gunicorn left open: its process would have ended."""
        for connection in self._connections:
            connection.close()


class _Application(BaseApplication):  # type: ignore[misc]
    def __init__(self, app: WSGIApplication, threads: int) -> None:
        self._app, self._threads = app, threads
        super().__init__()

    def load_config(self) -> None:
        self.cfg.set("threads", self._threads)
        self.cfg.set("loglevel", "critical")

    def load(self) -> WSGIApplication:
        return self._app


class GunicornServer(HttpServer):
    """A worker of gunicorn with threads."""

    def __init__(self, app: WSGIApplication, *, threads: int = 4) -> None:
        super().__init__()
        application = _Application(self._watched(app), threads)
        cfg = application.cfg
        log = cfg.logger_class(cfg)
        self._worker = _Worker(1, os.getppid(), [self.listener], application, 30, cfg, log)
        self._thread = threading.Thread(target=self._worker.init_process, name="gunicorn")
        self._thread.start()

    def _watched(self, app: WSGIApplication) -> WSGIApplication:
        def watched(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            number = environ.get("HTTP_X_EXCHANGE", "")
            try:
                return _Watched(app(environ, start), self.ends, number)
            except BaseException:
                self.ends.add(number)
                raise

        return watched

    def stop(self) -> None:
        wait_until(lambda: bool(self._worker.booted), "gunicorn serves", every=0.005)
        self._worker.handle_exit(None, None)
        self._thread.join()
        self._worker.close_connections()
        self._worker.tmp.close()
        for end in self._worker.PIPE:
            os.close(end)


class _Watched:
    """The body of a response; its end is recorded when the server closes it."""

    def __init__(self, body: Iterable[bytes], ends: Ends, number: str) -> None:
        self._body, self._ends, self._number = body, ends, number

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._ends.add(self._number)
