"""A WSGI server in a few lines: it calls an app as PEP 3333 says, and checks that all do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


@dataclass
class Answered:
    """A response as the client has it."""

    status: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    @property
    def code(self) -> int:
        return int(self.status[:3])

    @property
    def headers(self) -> dict[str, str]:
        assert len({name.lower() for name, _ in self.lines}) == len(self.lines)
        return dict(self.lines)

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        """The `start_response` of a server that sends headers with the first part of the body."""
        if exc_info is not None and self.body:
            raise exc_info[1].with_traceback(exc_info[2])
        assert exc_info is not None or not self.status, "started twice"
        self.status, self.lines = status, headers
        return self._write

    def _write(self, data: bytes) -> None:
        self.body += data


def environ(
    method: str = "GET", path: str = "/", *, peer: str = "203.0.113.7", **headers: str
) -> WSGIEnvironment:
    """An environ for a request with *headers*, whose names have underscores."""
    made: WSGIEnvironment = {"REQUEST_METHOD": method, "PATH_INFO": path, "REMOTE_ADDR": peer}
    made |= {"SCRIPT_NAME": "", "QUERY_STRING": ""}
    made |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    setup_testing_defaults(made)
    return made


def call(app: WSGIApplication, *args: str, **options: str) -> Answered:
    """What *app* answers to the request of an `environ` made with the same arguments."""
    return served(app, environ(*args, **options))


def served(app: WSGIApplication, made: WSGIEnvironment) -> Answered:
    """What *app*, checked against the specification, answers to *made*."""
    answered = Answered()
    result = validator(app)(made, answered.start)
    try:
        for chunk in result:
            answered.body += chunk
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()
    return answered


def hello(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """An app that greets."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
