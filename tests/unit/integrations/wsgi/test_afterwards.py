"""Costs that are known when the response is over, charged by the WSGI middleware."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from wsgiref.util import FileWrapper

import pytest

from headgate.errors import StoreError
from headgate.integrations import RequestLimiter
from headgate.integrations.wsgi import RateLimitMiddleware, report
from headgate.policy.loader import read_policy
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Operation, Take, TakeEach
from headgate.testing import ManualClock
from tests.support.wsgi_bodies import PLAIN, Chunks, answering, begun, close
from tests.support.wsgi_caller import Answered, call, environ, hello

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def limiter(after: str, failure: str = "fail_open", **options: Any) -> RequestLimiter:
    rule = (
        "{id: llm, key_by: ip, limit: 100/hour fixed_window, "
        f"cost: {{after: {after}}}, on_store_failure: {failure}}}"
    )
    options.setdefault("clock", ManualClock(100))
    return RequestLimiter(policy=read_policy(f"version: 1\nrules: [{rule}]"), **options)


def by_bytes() -> RequestLimiter:
    return limiter("{bytes: true}")


def by_tokens() -> RequestLimiter:
    return limiter("{header: x-tokens, per: 10}")


def left(of: RequestLimiter) -> int:
    """What is left for the next request, after it."""
    return int(call(RateLimitMiddleware(hello, of)).headers["X-RateLimit-Remaining"])


def saying(*values: str) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [*PLAIN, *(("X-Tokens", value) for value in values)])
        return [b"x"]

    return app


@pytest.mark.parametrize(("said", "rest"), [(("301",), 68), (("10",), 98), (("0",), 98)])
def test_the_number_in_the_header_is_charged_beyond_what_it_took_to_enter(
    said: tuple[str, ...], rest: int
) -> None:
    own = by_tokens()
    call(RateLimitMiddleware(saying(*said), own))
    assert left(own) == rest


@pytest.mark.parametrize("said", [(), ("x",), ("5", "5")])
def test_what_is_no_number_charges_nothing_and_is_told_once(
    said: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    own = by_tokens()
    for _ in range(3):
        call(RateLimitMiddleware(saying(*said), own))
    assert left(own) == 96
    assert len([one for one in caplog.records if one.name == "headgate.integrations"]) == 1


@pytest.mark.parametrize("result", [[b"12345", b"67"], (b"1234567",), Chunks(b"12345", b"", b"67")])
def test_the_bytes_of_the_body_are_charged(result: Any) -> None:
    own = by_bytes()
    assert call(RateLimitMiddleware(answering(result), own)).body == b"1234567"
    assert left(own) == 100 - 7 - 1


def test_the_body_of_a_head_is_not_sent_and_not_charged() -> None:
    own = by_bytes()
    app = RateLimitMiddleware(answering([b"12345"]), own)
    list(app(environ("HEAD"), Answered().start))
    stream = RateLimitMiddleware(answering(Chunks(b"12345")), own)
    result = stream(environ("HEAD"), Answered().start)
    list(result)
    close(result)
    assert left(own) == 97


def test_what_is_written_and_what_a_file_has_count_too() -> None:
    own = by_bytes()

    def writing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        write = start_response("200 OK", list(PLAIN))
        write(b"12345")
        return [b"67"]

    call(RateLimitMiddleware(writing, own))
    assert left(own) == 92
    file = FileWrapper(io.BytesIO(b"abc"))
    app = RateLimitMiddleware(answering(file), own)
    result = app(environ() | {"wsgi.file_wrapper": FileWrapper}, Answered().start)
    assert b"".join(result) == b"abc"
    close(result)
    assert left(own) == 92 - 4 - 3 - 1


def test_who_goes_away_midway_is_charged_the_bytes_so_far() -> None:
    own = by_bytes()
    result, _ = begun(RateLimitMiddleware(answering(Chunks(b"12345", b"67")), own))
    next(iter(result))
    close(result)
    assert left(own) == 94


def test_a_stream_that_breaks_off_is_charged_the_bytes_so_far() -> None:
    own = by_bytes()
    with pytest.raises(LookupError):
        call(RateLimitMiddleware(answering(Chunks(b"12345", LookupError())), own))
    assert left(own) == 94


def test_what_a_gate_further_in_refuses_is_not_charged_at_all() -> None:
    own = by_bytes()
    inner = RateLimitMiddleware(hello, limits="1/hour", cost=2, clock=ManualClock(100))
    assert call(RateLimitMiddleware(inner, own)).code == 429
    assert left(own) == 99


def test_the_app_may_say_the_amount_itself() -> None:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        report(environ, llm=312)
        return saying("1")(environ, start_response)

    own = by_tokens()
    call(RateLimitMiddleware(app, own))
    assert left(own) == 67


class Leaving(Store):
    """A store that is gone once it has decided."""

    def __init__(self) -> None:
        self.inner = MemoryStore(clock=ManualClock(100))

    def run(self, operation: Operation[Any]) -> Any:
        if type(operation) not in (Take, TakeEach):
            raise StoreError("gone")
        return self.inner.run(operation)


def test_a_store_that_is_gone_by_then_fails_no_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = limiter("{header: x-tokens}", "fail_closed", store=Leaving(), clock=None)
    for _ in range(3):
        assert call(RateLimitMiddleware(saying("30"), own)).body == b"x"
    assert own.late_charges.lost == 3
    assert len([one for one in caplog.records if one.name == "headgate.integrations"]) == 1
