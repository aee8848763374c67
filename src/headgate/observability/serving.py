"""The measures of a process over HTTP, for apps that answer `/metrics` themselves.

Both apps answer GET and HEAD under whatever path they are mounted at. They need no package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.observability.measures import MEASURES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""That of Prometheus's text."""

_METHODS: Final = ("GET", "HEAD")


def metrics_text() -> str:
    """All measures of this process, as Prometheus reads them (see `CONTENT_TYPE`)."""
    return MEASURES.text()


class AsgiMetrics:
    """An ASGI app that tells them. (An object, not a function: as such frameworks that route to
    apps, such as Starlette, know it for one.)"""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            status, lines, body = _answer(scope["method"])
            headers = [(name.lower().encode(), value.encode()) for name, value in lines]
            start = {"type": "http.response.start", "status": int(status[:3]), "headers": headers}
            await send(start)
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close"})


asgi_metrics: Final = AsgiMetrics()


def wsgi_metrics(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """A WSGI app that tells them."""
    status, lines, body = _answer(environ["REQUEST_METHOD"])
    start_response(status, lines)
    return [body]


def _answer(method: str) -> tuple[str, list[tuple[str, str]], bytes]:
    if method not in _METHODS:
        refused = [("Allow", ", ".join(_METHODS)), ("Content-Type", CONTENT_TYPE)]
        return "405 Method Not Allowed", [*refused, ("Content-Length", "0")], b""
    text = metrics_text().encode()
    lines = [
        ("Content-Type", CONTENT_TYPE),
        ("Cache-Control", "no-store"),
        ("Content-Length", str(len(text))),
    ]
    return "200 OK", lines, text if method == "GET" else b""


async def _live(receive: Receive, send: Send) -> None:
    """Begin and end with the server: there is nothing to do for it."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
