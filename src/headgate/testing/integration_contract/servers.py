"""Servers in this process that call an ASGI or WSGI app as a real server does.

A test opens an `Exchange`, sends and reads in steps, and ends it or disconnects.
"""

from __future__ import annotations

import asyncio
import io
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from wsgiref.util import setup_testing_defaults

from headgate.testing.integration_contract.app import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from wsgiref.types import WSGIApplication

    Message = dict[str, Any]

_PEER: Final = "203.0.113.7"


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as the client receives it. Header names are in lower case."""

    status: int
    lines: tuple[tuple[str, str], ...]
    body: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name. Raises `AssertionError` if one is sent twice."""
        found = dict(self.lines)
        if len(found) < len(self.lines):
            raise AssertionError(f"a header is sent twice: {self.lines}")
        return found


class Exchange(ABC):
    """A request in flight and its response."""

    @abstractmethod
    def send(self, part: bytes, *, is_last: bool = False) -> None:
        """Send a part of the body of the request."""

    @abstractmethod
    def start(self) -> Reply:
        """Wait for the status and the headers."""

    @abstractmethod
    def read(self) -> bytes:
        """Wait for the next part of the body; empty at its end."""

    @abstractmethod
    def disconnect(self) -> None:
        """Disconnect. The app may continue."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until the app is done with the request."""

    def finish(self) -> Reply:
        """Read the whole response, and wait until the app is done."""
        started = self.start()
        return Reply(started.status, started.lines, self.finish_body())

    def finish_body(self) -> bytes:
        """Read the rest of the body, and wait until the app is done."""
        parts = []
        while part := self.read():
            parts.append(part)
        self.wait()
        return b"".join(parts)


class Socket(ABC):
    """A websocket."""

    @abstractmethod
    def connect(self) -> Reply:
        """Wait for the handshake: status 101, or the status of a denial."""

    @abstractmethod
    def ask(self, text: str) -> str:
        """Send *text*, and wait for the message that answers it."""

    @abstractmethod
    def close(self) -> None:
        """Close it, and wait until the app is done."""


class Server(ABC):
    """A server that calls one app."""

    @abstractmethod
    def open(self, method: str, path: str, headers: Mapping[str, str], length: int) -> Exchange:
        """Begin a request whose body has *length* bytes."""

    def websocket(self, path: str, headers: Mapping[str, str]) -> Socket:
        """Open a websocket, if the server supports them."""
        raise NotImplementedError(f"{type(self).__name__} does not support websockets")

    @abstractmethod
    def close(self) -> None:
        """Stop serving."""


# ASGI.


class AsgiServer(Server):
    """Serves an ASGI app in an event loop that runs in a thread."""

    def __init__(self, app: Any, *, has_lifespan: bool) -> None:
        self._app = app
        is_running = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(is_running),))
        self._thread.start()
        is_running.wait(PATIENCE)
        self._lifespan: AsgiExchange | None = None
        if has_lifespan:
            scope: Message = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
            self._lifespan = AsgiExchange(app, scope, self.loop)
            self._lifespan.deliver({"type": "lifespan.startup"})
            self._lifespan.expect("lifespan.startup.complete")

    async def _run(self, is_running: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        is_running.set()
        await self._closing.wait()

    def open(self, method: str, path: str, headers: Mapping[str, str], length: int) -> AsgiExchange:
        scope = _scope("http", path, headers) | {"method": method}
        if length:
            scope["headers"].append((b"content-length", b"%d" % length))
        exchange = AsgiExchange(self._app, scope, self.loop)
        if not length:
            exchange.send(b"", is_last=True)
        return exchange

    def websocket(self, path: str, headers: Mapping[str, str]) -> AsgiSocket:
        scope = _scope("websocket", path, headers) | {"subprotocols": []}
        scope["extensions"] = {"websocket.http.response": {}}
        return AsgiSocket(AsgiExchange(self._app, scope, self.loop))

    def close(self) -> None:
        if self._lifespan is not None:
            self._lifespan.deliver({"type": "lifespan.shutdown"})
            self._lifespan.expect("lifespan.shutdown.complete")
            self._lifespan.wait()
        self.loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()


def _scope(kind: str, path: str, headers: Mapping[str, str]) -> Message:
    lines = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"app.test"), *lines],
        "client": (_PEER, 123),
        "server": ("app.test", 80),
    }


class AsgiExchange(Exchange):
    """One call of an ASGI app: a request, a websocket or the lifespan."""

    def __init__(self, app: Any, scope: Message, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._scope, self._loop = app, scope, loop
        self._from_app: queue.Queue[Message] = queue.Queue()
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._is_complete = False
        self._has_started = False
        self._ended = threading.Event()
        self._future: Future[None] = asyncio.run_coroutine_threadsafe(self._serve(), loop)

    async def _serve(self) -> None:
        async def send(message: Message) -> None:
            self._has_started = True
            self._from_app.put(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._to_app.put_nowait({"type": "http.disconnect"})  # as servers do at the end

        try:
            await self._app(self._scope, self._to_app.get, send)
        except Exception as error:  # noqa: BLE001 (as a server: a 500, or a broken connection)
            if self._scope["type"] == "lifespan":
                self._from_app.put({"type": "lifespan.failed", "error": error})
            elif not self._has_started:
                self._from_app.put({"type": "http.response.start", "status": 500, "headers": []})
        finally:
            self._from_app.put({"type": "end"})
            self._ended.set()

    def deliver(self, message: Message) -> None:
        """Deliver *message* to the app, which receives it next."""
        self._loop.call_soon_threadsafe(self._to_app.put_nowait, message)

    def next_message(self) -> Message:
        """Wait for the next message that the app sends."""
        return self._from_app.get(timeout=PATIENCE)

    def expect(self, kind: str) -> Message:
        """Wait for the next message that the app sends, which must be of *kind*."""
        message = self.next_message()
        if message["type"] != kind:
            raise AssertionError(f"expected {kind}, got {message}")
        return message

    def send(self, part: bytes, *, is_last: bool = False) -> None:
        self.deliver({"type": "http.request", "body": part, "more_body": not is_last})

    def start(self) -> Reply:
        return reply_of(self.expect("http.response.start"))

    def read(self) -> bytes:
        while not self._is_complete:
            message = self.next_message()
            self._is_complete = message["type"] == "end" or not message.get("more_body", False)
            if message.get("body"):
                return bytes(message["body"])
        return b""

    def disconnect(self) -> None:
        self.deliver({"type": "http.disconnect"})

    def cancel(self) -> None:
        """Cancel the task of the request, as a server does when it shuts down."""
        self._future.cancel()

    def wait(self) -> None:
        if not self._ended.wait(PATIENCE):
            raise TimeoutError("the app is not done with the request")


class AsgiSocket(Socket):
    """A websocket of an ASGI app."""

    def __init__(self, exchange: AsgiExchange) -> None:
        self._exchange = exchange
        exchange.deliver({"type": "websocket.connect"})

    def connect(self) -> Reply:
        message = self._exchange.next_message()
        if message["type"] == "websocket.accept":
            return reply_of({**message, "status": 101})
        return reply_of(message)

    def ask(self, text: str) -> str:
        self._exchange.deliver({"type": "websocket.receive", "text": text})
        return str(self._exchange.expect("websocket.send")["text"])

    def close(self) -> None:
        self._exchange.deliver({"type": "websocket.disconnect", "code": 1000})
        self._exchange.wait()


def reply_of(message: Message) -> Reply:
    """The status and headers of an ASGI *message*."""
    lines = [
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, value in message.get("headers", ())
    ]
    return Reply(message["status"], tuple(lines))


# WSGI.


class WsgiServer(Server):
    """Serves a WSGI app; each request has its own thread."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._exchanges: list[WsgiExchange] = []

    def open(self, method: str, path: str, headers: Mapping[str, str], length: int) -> WsgiExchange:
        exchange = WsgiExchange(self._app, method, path, headers, length)
        self._exchanges.append(exchange)
        return exchange

    def close(self) -> None:
        for exchange in self._exchanges:
            exchange.disconnect()
            exchange.wait()


class WsgiExchange(Exchange):
    """One call of a WSGI app. Each `read` of the test runs the app up to its next part."""

    def __init__(
        self,
        app: WSGIApplication,
        method: str,
        path: str,
        headers: Mapping[str, str],
        length: int,
    ) -> None:
        self._input = _Input(length)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "REMOTE_ADDR": _PEER,
            "SCRIPT_NAME": "",
            "QUERY_STRING": "",
            "HTTP_HOST": "app.test",
            "wsgi.input": io.BufferedReader(self._input),
            "wsgi.multithread": True,
        }
        if length:
            environ["CONTENT_LENGTH"] = str(length)
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": v for name, v in headers.items()}
        setup_testing_defaults(environ)
        self._environ = environ
        self._started: list[tuple[str, list[tuple[str, str]]]] = []
        self._parts: deque[bytes] = deque()
        """Parts of the response that the test has not read yet."""
        self._body: Iterable[bytes] = ()
        self._iterator: Iterator[bytes] = iter(())
        self._worker = ThreadPoolExecutor(1, "contract-wsgi")
        self._start = self._worker.submit(self._call, app)

    def _call(self, app: WSGIApplication) -> Reply:
        try:
            self._body = app(self._environ, self._start_response)
            self._iterator = filter(None, self._body)
            if not self._started:  # the response starts with the first part
                self._parts.append(next(self._iterator, b""))
        except Exception:  # noqa: BLE001 (as a server: a 500)
            return Reply(500, ())
        status, lines = self._started[-1]
        return Reply(int(status[:3]), tuple((name.lower(), value) for name, value in lines))

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /
    ) -> Callable[[bytes], object]:
        self._started.append((status, headers))
        return self._parts.append

    def _next(self) -> bytes:
        try:
            part = self._parts.popleft() if self._parts else next(self._iterator, b"")
        except Exception:  # noqa: BLE001 (as a server: a broken connection)
            part = b""
        if not part:
            self._close()
        return part

    def _close(self) -> None:
        body, self._body, self._iterator = self._body, (), iter(())
        close: Callable[[], object] | None = getattr(body, "close", None)
        if close is not None:
            close()

    def send(self, part: bytes, *, is_last: bool = False) -> None:
        self._input.parts.put(part)

    def start(self) -> Reply:
        return self._start.result(PATIENCE)

    def read(self) -> bytes:
        return self._worker.submit(self._next).result(PATIENCE)

    def disconnect(self) -> None:
        self._worker.submit(self._close)

    def wait(self) -> None:
        self._worker.submit(lambda: None).result(PATIENCE)


class _Input(io.RawIOBase):
    """The body of a request, *length* bytes long, that arrives in parts."""

    def __init__(self, length: int) -> None:
        self.parts: queue.Queue[bytes] = queue.Queue()
        self._missing = length
        self._buffered = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._buffered and self._missing:
            self._buffered = self.parts.get(timeout=PATIENCE)
        found = self._buffered[: min(len(buffer), self._missing)]
        buffer[: len(found)] = found
        self._buffered = self._buffered[len(found) :]
        self._missing -= len(found)
        return len(found)
