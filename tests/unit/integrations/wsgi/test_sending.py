"""Responses on their way out: streamed as they are made, and seen to their end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate import Concurrency
from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware
from headgate.testing import ManualClock
from tests.support.wsgi_bodies import (
    PLAIN,
    Chunks,
    Ended,
    answering,
    begun,
    close,
    counting,
    watching,
)
from tests.support.wsgi_caller import Answered, call

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

    from headgate.integrations import CompletedResponse


def fault() -> None:
    raise LookupError("no")


@pytest.mark.parametrize("is_held", [True, False])
def test_chunks_come_one_at_a_time_as_they_are_made(is_held: bool) -> None:
    chunks = Chunks(b"a", b"b", b"c")
    app = watching(answering(chunks), Ended()) if is_held else counting(answering(chunks))
    result, _ = begun(app)
    assert chunks.made == 0
    parts = iter(result)
    assert [(next(parts), chunks.made) for _ in range(3)] == [(b"a", 1), (b"b", 2), (b"c", 3)]


def test_it_ends_with_the_last_chunk_and_is_closed_by_the_server() -> None:
    ended = Ended()
    chunks = Chunks(b"a")
    result, _ = begun(watching(answering(chunks), ended))
    parts = iter(result)
    assert (next(parts), ended.all) == (b"a", [])
    assert next(parts, None) is None
    assert ended.one.status_code == 200
    assert ended.one.header("content-type") == "text/plain"
    assert ended.one.error is None
    assert chunks.closed == 0
    close(result)
    assert (chunks.closed, len(ended.all)) == (1, 1)


def test_closing_twice_closes_once() -> None:
    ended = Ended()
    chunks = Chunks(b"a")
    result, _ = begun(watching(answering(chunks), ended))
    close(result)
    close(result)
    assert chunks.closed == 1
    assert len(ended.all) == 1


def test_a_client_that_goes_away_ends_it_too() -> None:
    ended = Ended()
    left: list[str] = []

    def body() -> Generator[bytes, None, None]:
        try:
            yield b"a"
            yield b"b"
        except GeneratorExit:
            left.append("left")
            raise

    result, _ = begun(watching(answering(body()), ended))
    next(iter(result))
    close(result)
    assert left == ["left"]
    assert ended.one.status_code == 200


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_whole_body_ends_it_at_once_and_is_the_apps_own(kind: type) -> None:
    ended = Ended()
    given = kind([b"a", b"b"])
    result, _ = begun(watching(answering(given), ended))
    assert result is given
    assert ended.one.status_code == 200


def test_a_list_that_wants_to_be_closed_ends_when_it_is() -> None:
    class Closing(list[bytes]):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    ended = Ended()
    given = Closing([b"a"])
    result, _ = begun(watching(answering(given), ended))
    assert ended.all == []
    assert len(result) == 1  # type: ignore[arg-type]
    close(result)
    assert given.closed == 1
    assert ended.one.status_code == 200


def test_iterators_without_a_close_end_with_their_last_chunk() -> None:
    ended = Ended()
    result, _ = begun(watching(answering(iter([b"a"])), ended))
    assert not hasattr(result, "__len__")
    assert list(result) == [b"a"]
    assert ended.one.status_code == 200
    close(result)
    assert len(ended.all) == 1


def test_what_the_outcome_makes_of_a_whole_body_may_fail() -> None:
    def fail(responded: CompletedResponse) -> bool:
        raise LookupError("no")

    app = RateLimitMiddleware(answering([b"a"]), limits="9/minute", charge_when=fail)
    with pytest.raises(LookupError):
        call(app)


def test_what_is_taken_while_the_body_is_made_is_free_at_its_end() -> None:
    taking = RequestLimiter(limits=Concurrency(1, ttl=60), name="slots", clock=ManualClock(100))
    inner = RateLimitMiddleware(answering([b"b"]), taking)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(PLAIN))

        def chunks() -> Iterator[bytes]:
            yield b"a"
            begun = Answered()
            yield from inner(environ, begun.start)
            yield begun.status.encode()

        return chunks()

    bodies = [call(counting(app)).body for _ in range(3)]
    assert bodies == [b"ab200 OK"] * 3


def test_an_error_of_the_app_ends_it() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise LookupError("no")

    with pytest.raises(LookupError):
        call(watching(app, ended))
    assert ended.one.status_code == 500
    assert isinstance(ended.one.error, LookupError)


def test_even_an_exit_ends_it() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        sys.exit(3)

    with pytest.raises(SystemExit):
        call(watching(app, ended))
    assert isinstance(ended.one.error, SystemExit)


def test_an_error_before_the_first_chunk_is_a_500() -> None:
    ended = Ended()
    with pytest.raises(LookupError):
        call(watching(answering(Chunks(b"", LookupError("no"))), ended))
    assert ended.one.status_code == 500
    assert isinstance(ended.one.error, LookupError)


def test_an_error_in_the_middle_of_a_stream_leaves_the_status_that_was_sent() -> None:
    ended = Ended()
    chunks = Chunks(b"a", LookupError("no"))
    with pytest.raises(LookupError):
        call(watching(answering(chunks), ended))
    assert chunks.closed == 1
    assert ended.one.status_code == 200
    assert isinstance(ended.one.error, LookupError)


def test_what_cannot_be_iterated_ends_it() -> None:
    ended = Ended()
    result: Any = None
    with pytest.raises(TypeError):
        begun(watching(answering(result), ended))
    assert isinstance(ended.one.error, TypeError)


def test_an_error_when_closing_ends_it_all_the_same() -> None:
    ended = Ended()

    class Stuck(Chunks):
        def close(self) -> None:
            raise OSError("stuck")

    with pytest.raises(OSError, match="stuck"):
        call(watching(answering(Stuck(b"a")), ended))
    assert ended.one.status_code == 200


def test_an_app_may_begin_again_after_an_error() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(PLAIN))
        try:
            fault()
        except LookupError:
            start_response("502 Bad Gateway", list(PLAIN), sys.exc_info())
        return [b"sorry"]

    answer = call(watching(app, ended))
    assert answer.status == "502 Bad Gateway"
    assert answer.headers["X-RateLimit-Remaining"] == "8"
    assert ended.one.status_code == 502


def test_too_late_to_begin_again_is_the_error_itself() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        write = start_response("200 OK", list(PLAIN))
        write(b"part")
        try:
            fault()
        except LookupError:
            start_response("502 Bad Gateway", list(PLAIN), sys.exc_info())
        return []

    with pytest.raises(LookupError):
        call(watching(app, ended))
    assert isinstance(ended.one.error, LookupError)


def test_write_still_writes_and_counts_as_sent() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        write = start_response("200 OK", list(PLAIN))
        write(b"a")
        write(b"b")
        return [b"c"]

    assert call(watching(app, ended)).body == b"abc"

    def failing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", list(PLAIN))(b"a")
        raise LookupError("no")

    with pytest.raises(LookupError):
        call(watching(failing, ended))
    assert ended.all[-1].status_code == 200


def test_an_app_that_is_a_generator_begins_with_its_first_chunk() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("201 Created", list(PLAIN))
        yield b"a"

    answer = call(watching(app, ended))
    assert answer.headers["X-RateLimit-Remaining"] == "8"
    assert ended.one.status_code == 201


def test_what_is_asked_late_inside_is_ended_by_the_one_outside() -> None:
    ended = Ended()
    inner = watching(answering([b"a"]), ended)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        yield from inner(environ, start_response)

    answer = call(RateLimitMiddleware(app, limits="20/minute", name="out", clock=ManualClock(100)))
    assert answer.headers["RateLimit-Policy"] == '"out";q=20;w=60, "default";q=9;w=60'
    assert ended.one.status_code == 200


def test_a_status_that_makes_no_sense_is_for_the_server_to_refuse() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("odd", list(PLAIN))
        return [b"a"]

    begun(watching(app, ended))
    assert ended.one.status_code == 500
