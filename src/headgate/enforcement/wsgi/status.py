"""A page that tells callers of their limits: `GET /rate_limit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.enforcement.status import status_body
from headgate.enforcement.wsgi.incoming import WsgiRequest
from headgate.enforcement.wsgi.middleware import blocking
from headgate.enforcement.wsgi.sending import status_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment

    from headgate.enforcement.gate import Gate


class StatusApp:
    """A WSGI app that answers with every limit that *gate* has for the caller, as JSON.

    Nothing is consumed. It is mounted where the app likes it, at a path that is exempt.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = blocking(gate)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer `GET` and `HEAD`, whatever the path."""
        request = WsgiRequest(environ)
        if request.method not in ("GET", "HEAD"):
            lines = [("Allow", "GET, HEAD"), ("Content-Type", "text/plain")]
            start_response(status_line(405), [*lines, ("Content-Length", "0")])
            return []
        body = status_body(self.gate, request)
        lines = [
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-store"),
            ("Content-Length", str(len(body))),
        ]
        start_response(status_line(200), lines)
        return [] if request.method == "HEAD" else [body]
