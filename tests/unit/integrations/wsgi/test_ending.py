"""Files, which servers send in their own way, and places that are free again at the end."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING
from wsgiref.util import FileWrapper

import pytest

from headgate import Concurrency
from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.testing import ManualClock
from tests.support.wsgi_bodies import Chunks, Ended, answering, begun, close, counting, watching
from tests.support.wsgi_caller import Answered, call, environ, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def given_to_server(app: WSGIApplication, wrapper: object) -> Iterable[bytes]:
    return app(environ() | {"wsgi.file_wrapper": wrapper}, Answered().start)


def test_a_file_is_the_servers_to_send_if_there_is_nothing_to_do_at_its_end() -> None:
    file = FileWrapper(io.BytesIO(b"abc"))
    assert given_to_server(counting(answering(file)), FileWrapper) is file
    plain = io.BytesIO(b"abc")
    assert given_to_server(counting(answering(plain)), lambda file, *_: file) is plain


def test_a_file_is_watched_if_there_is_and_so_is_what_only_looks_like_one() -> None:
    ended = Ended()
    file = FileWrapper(io.BytesIO(b"abc"))
    result = given_to_server(watching(answering(file), ended), FileWrapper)
    assert ended.all == []
    assert b"".join(result) == b"abc"
    assert ended.one.status_code == 200
    close(result)
    assert len(ended.all) == 1
    assert given_to_server(counting(answering(file)), None) is not file
    assert given_to_server(counting(answering(Chunks())), FileWrapper) is not file


@pytest.fixture
def limiter() -> RequestLimiter:
    return RequestLimiter(limits=Concurrency(1, ttl=60), clock=ManualClock(100))


def read_all(limiter: RequestLimiter) -> None:
    call(RateLimitMiddleware(answering(Chunks(b"a", b"b")), limiter))


def go_away(limiter: RequestLimiter) -> None:
    result, _ = begun(RateLimitMiddleware(answering(Chunks(b"a", b"b")), limiter))
    next(iter(result))
    close(result)


def break_off(limiter: RequestLimiter) -> None:
    with pytest.raises(LookupError):
        call(RateLimitMiddleware(answering(Chunks(b"a", LookupError())), limiter))


def fail(limiter: RequestLimiter) -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise LookupError

    with pytest.raises(LookupError):
        call(RateLimitMiddleware(app, limiter))


@pytest.mark.parametrize("way", [read_all, go_away, break_off, fail])
def test_a_slot_is_free_again_however_the_request_ended(
    way: Callable[[RequestLimiter], None], limiter: RequestLimiter
) -> None:
    result, answered = begun(RateLimitMiddleware(answering(Chunks(b"a")), limiter))
    assert answered.code == 200
    assert call(RateLimitMiddleware(answering([b"a"]), limiter)).code == 429
    close(result)
    way(limiter)
    assert served(RateLimitMiddleware(answering([b"a"]), limiter), environ()).code == 200
