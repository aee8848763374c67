"""Bodies of responses, apps that give them, and how the requests ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.testing import ManualClock
from tests.support.wsgi_caller import Answered, environ

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.integrations import CompletedResponse

PLAIN = [("Content-Type", "text/plain")]


class Ended:
    """Notes how requests ended; each is held until then."""

    def __init__(self) -> None:
        self.all: list[CompletedResponse] = []

    def __call__(self, responded: CompletedResponse) -> bool:
        self.all.append(responded)
        return True

    @property
    def one(self) -> CompletedResponse:
        (only,) = self.all
        return only


class Chunks:
    """A body that notes when its parts are made and that it is closed."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self._left: Iterator[bytes | Exception] = iter(chunks)
        self.made = 0
        self.closed = 0

    def __iter__(self) -> Chunks:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._left)
        if isinstance(chunk, Exception):
            raise chunk
        self.made += 1
        return chunk

    def close(self) -> None:
        self.closed += 1


def answering(result: Any) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(PLAIN))
        answer: Iterable[bytes] = result
        return answer

    return app


def watching(app: WSGIApplication, ended: Ended) -> RateLimitMiddleware:
    return RateLimitMiddleware(app, limits="9/minute", charge_when=ended, clock=ManualClock(100))


def counting(app: WSGIApplication) -> RateLimitMiddleware:
    """A middleware that has nothing to do at the end of a request."""
    return RateLimitMiddleware(app, limits="9/minute", clock=ManualClock(100))


def begun(app: WSGIApplication) -> tuple[Iterable[bytes], Answered]:
    answered = Answered()
    return app(environ(), answered.start), answered


def close(result: Any) -> None:
    result.close()
