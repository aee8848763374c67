"""`GET /rate_limit`: what a caller has left, for ASGI apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.enforcement.asgi.incoming import AsgiRequest
from headgate.enforcement.status import status_body_async

if TYPE_CHECKING:
    from headgate.enforcement.asgi.incoming import Receive, Scope, Send
    from headgate.enforcement.gate import Gate

_JSON: Final = (b"content-type", b"application/json")
_NEVER_KEPT: Final = (b"cache-control", b"no-store")
_WHY: Final = b'{"error": "method_not_allowed", "message": "Use GET."}'


class StatusApp:
    """An app that tells the caller every limit of the whole app, and consumes nothing.

    Mount it: `app.mount("/rate_limit", StatusApp(gate))`; and exempt its path, or looking counts.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the status app answers HTTP, not {scope['type']!r}")
        request = AsgiRequest(scope)
        headers = [_JSON, _NEVER_KEPT]
        if request.method in ("GET", "HEAD"):
            status, body = 200, await status_body_async(self.gate, request)
        else:
            status, body = 405, _WHY
            headers.append((b"allow", b"GET, HEAD"))
        headers.append((b"content-length", b"%d" % len(body)))
        shown = b"" if request.method == "HEAD" else body
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": shown})
