"""A WSGI app with limits: 20 requests a minute for each client, and a page that tells of them.

python examples/wsgi_app.py               # then: curl -i http://127.0.0.1:8000/
gunicorn --chdir examples wsgi_app:app    # with HEADGATE_STORE=redis://... for several workers
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from wsgiref.simple_server import make_server

from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware, StatusApp

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

limiter = RequestLimiter(
    limits="20/minute",
    exempt=["/health", "/rate_limit"],
    store=os.environ.get("HEADGATE_STORE", "memory://"),
)
status = StatusApp(limiter)


def hello(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The app itself, which knows nothing of limits."""
    if environ["PATH_INFO"] == "/rate_limit":
        return status(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello\n"]


app = RateLimitMiddleware(hello, limiter)

if __name__ == "__main__":
    port = int(os.environ.get("PORT", "8000"))
    with make_server("127.0.0.1", port, app) as server:
        server.serve_forever()
