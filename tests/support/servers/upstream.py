"""Upstreams of the tests' own making: a handler of requests, served in threads."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.servers.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps connections, and says nothing of requests."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Be quiet."""


class CostingHandler(QuietHandler):
    """Sends `x-size` bytes, and says that it took `x-want` tokens, if it was asked for some."""

    def do_GET(self) -> None:
        body = b"x" * int(self.headers.get("x-size", "2"))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        if "x-want" in self.headers:
            self.send_header("x-tokens", self.headers["x-want"])
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET


class QuietServer(ThreadingHTTPServer):
    """Says nothing of clients that leave: it would be on the stderr of another test."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def upstream_of(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port of a server on loopback whose requests *handler* answers."""
    with serving_in_thread(QuietServer((HOST, 0), handler)) as server:
        yield server.server_port


@contextmanager
def serving_in_thread(server: ThreadingHTTPServer) -> Iterator[ThreadingHTTPServer]:
    """Have *server* serve until the end, which does not wait for its clients."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
