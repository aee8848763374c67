"""Time 30 calls of a client against a server with our own middleware and `5/s fixed_window`.

    python -m benchmarks.outgoing

The ideal is 6 seconds. Each row: the pace of the client, the seconds that the calls take, and how
many of the requests the server denied.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import httpx
import uvicorn

from headgate.clients.httpx import PacedTransport
from headgate.integrations.asgi import RateLimitMiddleware

CALLS = 30


async def app(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


class Counting(httpx.HTTPTransport):
    """Counts the requests that the server denies."""

    denied = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        self.denied += response.status_code == 429
        return response


def main() -> None:
    limited = RateLimitMiddleware(app, limits="5/s fixed_window")
    server = uvicorn.Server(uvicorn.Config(limited, log_level="warning", lifespan="off"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        for pace in (None, "5/s", "10/s"):
            time.sleep(1.1)  # into a fresh window
            inner = Counting()
            began = time.monotonic()
            with httpx.Client(transport=PacedTransport(inner, pace=pace)) as client:
                served = sum(client.get(url).status_code == 200 for _ in range(CALLS))
            seconds = time.monotonic() - began
            outcome = f"{served} served, {inner.denied} denied"
            print(f"pace {pace or 'none':5} {outcome} in {seconds:4.1f} s")
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
