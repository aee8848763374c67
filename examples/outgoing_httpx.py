"""Calling an API that allows 10 requests a second, 20 times, in three ways.

A small server with that limit is started on this machine. A plain client is refused half of the
time. One that obeys is refused once, and waits. One that keeps a pace is never refused.

    python examples/outgoing_httpx.py
"""

from __future__ import annotations

import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from headgate import RateLimiter
from headgate.clients.httpx import PacedTransport

CALLS = 20
LIMIT = "10/s"


class API(BaseHTTPRequestHandler):
    """Somebody else's API: 10 requests a second, and 429 to those who send more."""

    protocol_version = "HTTP/1.1"
    limiter = RateLimiter(LIMIT)
    refused = 0

    def do_GET(self) -> None:
        decision = API.limiter.hit("everybody")
        API.refused += not decision
        self.send_response(200 if decision else 429)
        if not decision:
            self.send_header("Retry-After", str(math.ceil(decision.retry_after or 0)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def call(name: str, url: str, transport: httpx.BaseTransport) -> None:
    """Call 20 times, one after the other, and print what happened."""
    API.limiter.reset("everybody")
    API.refused = 0
    start = time.monotonic()
    with httpx.Client(transport=transport) as client:
        statuses = [client.get(url).status_code for _ in range(CALLS)]
    seconds = time.monotonic() - start
    print(
        f"{name:34}{statuses.count(200):2} of {CALLS} calls were served; "
        f"the server refused {API.refused:2}; {seconds:.1f} s"
    )


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), API)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        call("httpx alone", url, httpx.HTTPTransport())
        call("PacedTransport()", url, PacedTransport())
        call(f'PacedTransport(pace="{LIMIT}")', url, PacedTransport(pace=LIMIT))
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
