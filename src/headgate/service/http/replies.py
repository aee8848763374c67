"""What is answered: a status, headers and a body, and what goes wrong as problem details."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from headgate.errors import HeadgateError
from headgate.responses.bodies import JSON, PROBLEM

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = list[tuple[bytes, bytes]]

JSON_LINE: Final = (b"content-type", JSON.encode())
PROBLEM_LINE: Final = (b"content-type", PROBLEM.encode())
TEXT_LINE: Final = (b"content-type", b"text/plain; charset=utf-8")
METRICS_LINE: Final = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
NO_STORE: Final = (b"cache-control", b"no-store")
_NO_LENGTH: Final = (b"content-length", b"0")
CLOSE: Final = (b"connection", b"close")
_WITHOUT_LENGTH: Final = (204, 304)
"""What has no length, or that of something else (RFC 9110, 8.6)."""


class Reply(NamedTuple):
    """A response, all but its `Content-Length`."""

    status: int
    headers: Headers
    body: bytes


class Flaw(NamedTuple):
    """One thing that is wrong with what was sent: where, what, and what would be right."""

    field: str
    message: str
    hint: str = ""


class RefusedError(HeadgateError):
    """A request that gets no further; *reply* says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


async def respond(send: Send, reply: Reply, *, is_head: bool = False) -> None:
    """Send *reply*, and add to its headers what is missing; of one to HEAD no body."""
    status, headers, body = reply
    if status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(body)) if body else _NO_LENGTH)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


def json_reply(content: object, *, status: int = 200) -> Reply:
    """*content* as JSON, not to be kept by anybody."""
    return Reply(status, [JSON_LINE, NO_STORE], json.dumps(content).encode("ascii"))


def problem(
    status: int, detail: str, *, flaws: tuple[Flaw, ...] = (), headers: tuple[Any, ...] = ()
) -> Reply:
    """What went wrong, as problem details (RFC 9457); *detail* says what would be right."""
    content: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if flaws:
        content["errors"] = [
            {name: text for name, text in flaw._asdict().items() if text or name == "field"}
            for flaw in flaws
        ]
    body = json.dumps(content).encode("ascii")
    return Reply(status, [PROBLEM_LINE, NO_STORE, *headers], body)


def header_of(scope: Scope, name: bytes) -> str | None:
    """The value of the header *name*; of several lines the first."""
    for field, value in scope["headers"]:
        if field == name:
            text: str = value.decode("latin-1")
            return text
    return None
