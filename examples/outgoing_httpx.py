"""Call an API that allows 10 requests a second, 20 times, in three ways.

The example starts a small server with that limit. A plain client is denied half of the time. One
that obeys the server is denied once, and waits. One that paces its calls is never denied.

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
    """An API that allows 10 requests a second and denies more with 429."""

    protocol_version = "HTTP/1.1"
    limiter = RateLimiter(LIMIT)
    denied = 0

    def do_GET(self) -> None:
        decision = API.limiter.hit("all")
        API.denied += not decision
        self.send_response(200 if decision else 429)
        if not decision:
            self.send_header("Retry-After", str(math.ceil(decision.retry_after or 0)))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def call(name: str, url: str, transport: httpx.BaseTransport) -> None:
    """Call 20 times, one after the other, and print the outcome."""
    API.limiter.reset("all")
    API.denied = 0
    start = time.monotonic()
    with httpx.Client(transport=transport) as client:
        statuses = [client.get(url).status_code for _ in range(CALLS)]
    seconds = time.monotonic() - start
    print(
        f"{name:34}{statuses.count(200):2} of {CALLS} calls served; "
        f"{API.denied:2} denied; {seconds:.1f} s"
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
