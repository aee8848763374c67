"""Requests written as lines, sent to ASGI and WSGI apps, and what came back as JSON types."""

import asyncio
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from wsgiref.util import setup_testing_defaults

PEER = "203.0.113.7"
PROSE = frozenset({"message", "detail", "title"})


@dataclass(frozen=True)
class Asked:
    """A request, read from a line such as `GET /path accept=text/plain @192.0.2.1`."""

    line: str
    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    peer: str

    @classmethod
    def read(cls, line: str) -> "Asked":
        """Read *line*: a method, a target, headers (`name=value`), a peer (`@address`)."""
        method, target, *rest = shlex.split(line)
        peers = [word[1:] for word in rest if word.startswith("@")]
        pairs = (word.partition("=") for word in rest if not word.startswith("@"))
        headers = (("host", "example.org"), *((name, value) for name, _, value in pairs))
        path, _, query = target.partition("?")
        return cls(line, method, path, query, headers, peers[0] if peers else PEER)


@dataclass
class Log:
    """What was answered, in the order in which it ended, and the sentences in it."""

    wire: list[Any] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)

    def add(
        self,
        asked: Asked,
        status: int | str | None,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        raised: BaseException | None = None,
    ) -> None:
        """Keep one answer."""
        found: dict[str, Any] = {"request": asked.line, "status": status}
        lines = sorted(headers, key=lambda pair: pair[0].lower())
        found["headers"] = [_line(name, value, status, body) for name, value in lines]
        found["body"] = self._without_prose(asked, body.decode())
        if raised is not None:
            found["raised"] = type(raised).__name__
        self.wire.append(found)

    def _without_prose(self, asked: Asked, body: str) -> Any:
        if not body.startswith("{"):
            return body
        found = json.loads(body)
        for name in sorted(PROSE & found.keys()):
            self.prose.append(f"{asked.line}: {found[name]}")
            found[name] = "<prose>"
        return found


def _line(name: str, value: str, status: int | str | None, body: bytes) -> str:
    """A header; of a refusal the length goes by its wording."""
    if name.lower() == "content-length" and isinstance(status, int) and status >= 400:
        assert not body or int(value) == len(body)
        value = "<length>"
    return f"{name}: {value}"


async def ask_asgi(app: Any, asked: Asked, log: Log) -> None:
    """Send a request to an ASGI app; `WS` opens a websocket."""
    sent: list[dict[str, Any]] = []
    is_websocket = asked.method == "WS"
    left = [{"type": "websocket.connect" if is_websocket else "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "websocket" if is_websocket else "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws" if is_websocket else "http",
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "query_string": asked.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in asked.headers],
        "client": (asked.peer, 4711),
        "server": ("127.0.0.1", 80),
        "extensions": {"websocket.http.response": {}} if is_websocket else {},
    }
    if not is_websocket:
        scope["method"] = asked.method
    raised = None
    try:
        await app(scope, receive, send)
    except RuntimeError as error:
        raised = error
    start: dict[str, Any] = next(
        (one for one in sent if one["type"].endswith((".start", ".accept"))), {}
    )
    lines = [(name.decode(), value.decode()) for name, value in start.get("headers", ())]
    status = start.get("status", start.get("type"))
    log.add(asked, status, lines, b"".join(one.get("body", b"") for one in sent), raised)


def ask_wsgi(app: Any, asked: Asked, log: Log) -> None:
    """Send a request to a WSGI app."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": asked.method,
        "PATH_INFO": asked.path,
        "QUERY_STRING": asked.query,
        "REMOTE_ADDR": asked.peer,
    }
    for name, value in asked.headers:
        environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    setup_testing_defaults(environ)
    started: list[tuple[str, Sequence[tuple[str, str]]]] = []

    def start_response(status: str, headers: Sequence[tuple[str, str]], *_: object) -> Any:
        started.append((status, headers))
        return lambda _data: None

    body, raised = b"", None
    try:
        chunks = app(environ, start_response)
        try:
            body = b"".join(chunks)
        finally:
            getattr(chunks, "close", lambda: None)()
    except RuntimeError as error:
        raised = error
    status, headers = started[-1] if started else ("", ())
    log.add(asked, int(status.split()[0]) if status else None, headers, body, raised)
