"""Responses on their way out: streamed as they are made, and seen to their end."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any
from wsgiref.util import FileWrapper

import pytest

from headgate import Concurrency
from headgate.enforcement import Gate
from headgate.enforcement.wsgi import RateLimitMiddleware
from headgate.testing import ManualClock

from .calling import Answered, call, environ, served

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from headgate.enforcement.passage import Responded

PLAIN = [("Content-Type", "text/plain")]


class Ended:
    """Notes how requests ended; each is held until then."""

    def __init__(self) -> None:
        self.all: list[Responded] = []

    def __call__(self, responded: Responded) -> bool:
        self.all.append(responded)
        return True

    @property
    def one(self) -> Responded:
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


def fault() -> None:
    raise LookupError("no")


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


@pytest.mark.parametrize("is_held", [True, False])
def test_chunks_come_one_at_a_time_as_they_are_made(is_held: bool) -> None:
    chunks = Chunks(b"a", b"b", b"c")
    app = watching(answering(chunks), Ended()) if is_held else counting(answering(chunks))
    result, _ = begun(app)
    assert chunks.made == 0
    parts = iter(result)
    assert [(next(parts), chunks.made) for _ in range(3)] == [(b"a", 1), (b"b", 2), (b"c", 3)]


def test_it_ends_when_the_body_is_closed_and_not_before() -> None:
    ended = Ended()
    chunks = Chunks(b"a")
    result, _ = begun(watching(answering(chunks), ended))
    assert list(result) == [b"a"]
    assert (chunks.closed, ended.all) == (0, [])
    close(result)
    assert chunks.closed == 1
    assert ended.one.status == 200
    assert ended.one.header("content-type") == "text/plain"
    assert ended.one.error is None


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
    assert ended.one.status == 200


def test_a_list_ends_with_its_last_chunk_even_if_nobody_closes() -> None:
    ended = Ended()
    result, _ = begun(watching(answering([b"a"]), ended))
    assert list(result) == [b"a"]
    assert ended.one.status == 200
    close(result)
    assert len(ended.all) == 1


def test_the_length_of_a_list_is_known_to_the_server() -> None:
    result, _ = begun(watching(answering([b"a", b"b"]), Ended()))
    assert len(result) == 2  # type: ignore[arg-type]
    result, _ = begun(watching(answering(iter([b"a"])), Ended()))
    assert not hasattr(result, "__len__")


def test_with_nothing_to_do_at_the_end_the_body_is_the_apps_own() -> None:
    wrapper = FileWrapper(io.BytesIO(b"abc"))
    result, _ = begun(counting(answering(wrapper)))
    assert result is wrapper


def test_an_error_of_the_app_ends_it() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise LookupError("no")

    with pytest.raises(LookupError):
        call(watching(app, ended))
    assert ended.one.status == 500
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
    assert ended.one.status == 500
    assert isinstance(ended.one.error, LookupError)


def test_an_error_in_the_middle_of_a_stream_leaves_the_status_that_was_sent() -> None:
    ended = Ended()
    chunks = Chunks(b"a", LookupError("no"))
    with pytest.raises(LookupError):
        call(watching(answering(chunks), ended))
    assert chunks.closed == 1
    assert ended.one.status == 200
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
    assert ended.one.status == 200


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
    assert ended.one.status == 502


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
    assert ended.all[-1].status == 200


def test_an_app_that_is_a_generator_begins_with_its_first_chunk() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("201 Created", list(PLAIN))
        yield b"a"

    answer = call(watching(app, ended))
    assert answer.headers["X-RateLimit-Remaining"] == "8"
    assert ended.one.status == 201


def test_what_is_asked_late_inside_is_ended_by_the_one_outside() -> None:
    ended = Ended()
    inner = watching(answering([b"a"]), ended)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        yield from inner(environ, start_response)

    answer = call(RateLimitMiddleware(app, limits="20/minute", name="out", clock=ManualClock(100)))
    assert answer.headers["RateLimit-Policy"] == '"out";q=20;w=60, "default";q=9;w=60'
    assert ended.one.status == 200


def test_a_status_that_makes_no_sense_is_for_the_server_to_refuse() -> None:
    ended = Ended()

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("odd", list(PLAIN))
        return [b"a"]

    result, _ = begun(watching(app, ended))
    close(result)
    assert ended.one.status == 500


@pytest.fixture
def gate() -> Gate:
    return Gate(limits=Concurrency(1, ttl=60), clock=ManualClock(100))


def read_all(gate: Gate) -> None:
    call(RateLimitMiddleware(answering(Chunks(b"a", b"b")), gate))


def go_away(gate: Gate) -> None:
    result, _ = begun(RateLimitMiddleware(answering(Chunks(b"a", b"b")), gate))
    next(iter(result))
    close(result)


def break_off(gate: Gate) -> None:
    with pytest.raises(LookupError):
        call(RateLimitMiddleware(answering(Chunks(b"a", LookupError())), gate))


def fail(gate: Gate) -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        raise LookupError

    with pytest.raises(LookupError):
        call(RateLimitMiddleware(app, gate))


@pytest.mark.parametrize("way", [read_all, go_away, break_off, fail])
def test_a_slot_is_free_again_however_the_request_ended(
    way: Callable[[Gate], None], gate: Gate
) -> None:
    result, answered = begun(RateLimitMiddleware(answering(Chunks(b"a")), gate))
    assert answered.code == 200
    assert call(RateLimitMiddleware(answering([b"a"]), gate)).code == 429
    close(result)
    way(gate)
    assert served(RateLimitMiddleware(answering([b"a"]), gate), environ()).code == 200
