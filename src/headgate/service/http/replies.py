"""Replies, problem details, and the options of the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
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
RETRY_SOON: Final = (b"retry-after", b"1")
"""For what fails now and may succeed in a moment."""
WITHOUT_LENGTH: Final = (204, 304)
"""Statuses without Content-Length (RFC 9110, 8.6)."""


class Reply(NamedTuple):
    """A response without its Content-Length."""

    status: int
    headers: Headers
    body: bytes


class Flaw(NamedTuple):
    """One error in a request: the field, the problem, the expected value."""

    field: str
    message: str
    hint: str = ""

    def to_data(self) -> dict[str, str]:
        """The error as data, without a hint if there is none."""
        data = {"field": self.field, "message": self.message}
        return {**data, "hint": self.hint} if self.hint else data


class RejectedError(HeadgateError):
    """A rejected request; *reply* is the response."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


async def respond(send: Send, reply: Reply, *, is_head: bool = False) -> None:
    """Send *reply* with its Content-Length, and without a body for HEAD."""
    status, headers, body = reply
    if status not in WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(body)) if body else _NO_LENGTH)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


def json_reply(content: object, *, status: int = 200) -> Reply:
    """Encode *content* as JSON that must not be cached."""
    return Reply(status, [JSON_LINE, NO_STORE], json.dumps(content).encode("ascii"))


def problem(
    status: int, detail: str, *, errors: Sequence[object] = (), headers: tuple[Any, ...] = ()
) -> Reply:
    """Problem details (RFC 9457); *detail* says what is expected, *errors* lists what is wrong."""
    content: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        content["errors"] = errors
    body = json.dumps(content).encode("ascii")
    return Reply(status, [PROBLEM_LINE, NO_STORE, *headers], body)


def header_of(scope: Scope, name: bytes) -> str | None:
    """The value of the header *name*; of several lines the first."""
    for field, value in scope["headers"]:
        if field == name:
            text: str = value.decode("latin-1")
            return text
    return None


# Options.


UNIX: Final = "unix"
"""Among the gateways: all peers on a Unix socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Options of the HTTP API; the settings validate them.

    *gateways*: networks, and `unix`, that are trusted to describe requests of others
    (`/v1/authorize`). The server must not change the peer's address.

    *loopback*: the hosts of listeners on loopback, where `Host` is checked; *allowed_hosts*: names
    that are accepted there, and then checked on every TCP listener (see `hosts`).

    *deadline*: seconds for a decision; beyond it the answer is 503, and what the store decides
    later is charged (a reservation is cancelled). *largest_body*: bytes; beyond it 413.
    *most_headers*: lines; beyond it 431.
    *longest_hold*: seconds that a reservation may last.
    """

    gateways: tuple[str, ...] = ("127.0.0.0/8", "::1/128", UNIX)
    loopback: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    deadline: float = 1.0
    largest_body: int = 65_536
    most_headers: int = 200
    longest_hold: float = 86_400.0
