"""The end of a request in Flask: what is charged then, and which slots are free again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask, abort, request, send_file, stream_with_context

from headgate import Concurrency
from headgate.errors import UsageError
from headgate.integrations.flask import RateLimits, report
from headgate.testing import ManualClock
from tests.support.flask_apps import ask, codes, left, made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from werkzeug.test import TestResponse

    from headgate.integrations import CompletedResponse


def begin(app: Flask, path: str = "/") -> TestResponse:
    """A response whose body is not read yet, and not closed."""
    return app.test_client().open(path, environ_overrides={"REMOTE_ADDR": "203.0.113.7"})


def test_the_outcome_may_be_seen_in_the_headers() -> None:
    app, limits = made()
    missed = limits.limit("1/hour", charge_when=lambda end: end.header("x-cache") == "miss")
    app.add_url_rule("/<found>", "index", missed(lambda found: ("x", {"X-Cache": found})))
    assert codes(app, "/hit", times=3) == [200] * 3
    assert codes(app, "/miss", times=2) == [200, 429]


def streaming(limits: RateLimits, app: Flask) -> None:
    @app.get("/")
    @limits.limit("100/hour", cost=90, is_estimate=True, name="tokens")
    def index() -> Any:
        def words() -> Iterator[str]:
            for number in range(3):
                yield f"word {number} "
                report(request, tokens=number + 1)

        return stream_with_context(words())


def test_a_stream_is_charged_what_it_reported_when_it_is_over() -> None:
    app, limits = made()
    streaming(limits, app)
    stream = begin(app)
    assert begin(app).status_code == 429
    assert stream.text == "word 0 word 1 word 2 "
    stream.close()
    assert left(ask(app)) == {"tokens": 7}


def test_a_client_that_goes_away_is_charged_what_it_had() -> None:
    app, limits = made()
    streaming(limits, app)
    stream = begin(app)
    parts = stream.iter_encoded()
    next(parts)
    next(parts)
    stream.close()
    assert left(ask(app)) == {"tokens": 9}


def test_chunks_come_one_at_a_time_as_they_are_made() -> None:
    app, limits = made(limits=Concurrency(1, ttl=60))
    drawn: list[int] = []

    def numbers() -> Iterator[str]:
        for number in range(3):
            drawn.append(number)
            yield str(number)

    app.add_url_rule("/", "index", lambda: app.response_class(numbers()))
    stream = begin(app)
    parts = stream.iter_encoded()
    assert [(next(parts), len(drawn)) for _ in range(3)] == [(b"0", 1), (b"1", 2), (b"2", 3)]
    stream.close()
    assert limits.limiter(app).limit is not None


def answering(tmp_path: Path) -> Flask:
    """An app with one slot, and views that answer in all the ways there are."""
    (tmp_path / "a.txt").write_text("a")
    app, _ = made(limits=Concurrency(1, ttl=60))

    @app.get("/<kind>")
    def index(kind: str) -> Any:
        if kind == "file":
            return send_file(tmp_path / "a.txt")
        if kind == "stream":
            return iter(["a", "b"])
        if kind == "error":
            raise LookupError
        return abort(404) if kind == "missing" else kind

    return app


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_slot_is_taken_until_the_stream_is_closed(kind: str, tmp_path: Path) -> None:
    app = answering(tmp_path)
    open_one = begin(app, f"/{kind}")
    assert open_one.status_code == 200
    assert codes(app, "/text", times=1) == [429]
    open_one.close()
    assert codes(app, "/text", times=1) == [200]


@pytest.mark.parametrize("kind", ["text", "error", "missing", "stream"])
def test_a_whole_answer_is_over_even_if_nobody_reads_it(kind: str, tmp_path: Path) -> None:
    app = answering(tmp_path)
    method = "HEAD" if kind == "stream" else "GET"
    given = [app.test_client().open(f"/{kind}", method=method) for _ in range(3)]
    assert {one.status_code for one in given} == {{"error": 500, "missing": 404}.get(kind, 200)}


def test_outcomes_that_do_not_count_are_not_charged_in_the_tests_of_an_app() -> None:
    app, limits = made()
    app.add_url_rule("/", "index", limits.limit("1/m", charge_when=lambda _: False)(lambda: "hi"))
    client = app.test_client()
    assert [client.get("/").status_code for _ in range(3)] == [200] * 3


def test_an_answer_is_closed_even_if_what_it_makes_of_the_limit_fails() -> None:
    def fail(responded: CompletedResponse) -> bool:
        raise LookupError("no")

    app, limits = made()
    closed: list[str] = []

    @app.get("/")
    @limits.limit("9/minute", charge_when=fail)
    def index() -> Any:
        response = app.response_class("hello")
        response.call_on_close(lambda: closed.append("closed"))
        return response

    with pytest.raises(LookupError):
        ask(app)
    assert closed == ["closed"]


def test_what_others_made_a_stream_of_is_watched_to_its_end() -> None:
    app = Flask("asked")
    flasks = app.wsgi_app

    def streaming(environ: Any, start_response: Any) -> Iterator[bytes]:
        whole = flasks(environ, start_response)

        def chunks() -> Iterator[bytes]:
            yield from whole
            report(environ, tokens=1)

        return chunks()

    app.wsgi_app = streaming  # type: ignore[method-assign]
    limits = RateLimits(app, clock=ManualClock(100))
    held = limits.limit("100/hour", cost=90, is_estimate=True, name="tokens")
    app.add_url_rule("/", "index", held(lambda: "hello"))
    assert [left(ask(app)) for _ in range(2)] == [{"tokens": 10}, {"tokens": 9}]


def test_what_a_stream_takes_on_its_way_is_free_at_its_end() -> None:
    app, limits = made()

    @limits.limit(Concurrency(1, ttl=60), name="slots")
    def slot() -> str:
        return "b"

    @app.get("/")
    def index() -> Any:
        def parts() -> Iterator[str]:
            yield "a"
            yield slot()

        return stream_with_context(parts())

    assert [ask(app).text for _ in range(3)] == ["ab"] * 3


def test_what_a_view_takes_and_does_not_keep_is_free_when_it_fails() -> None:
    app, limits = made()
    app.testing = True

    @app.get("/<int:divisor>")
    @limits.limit(Concurrency(1, ttl=60))
    def index(divisor: int) -> str:
        return str(1 / divisor)

    with pytest.raises(ZeroDivisionError):
        ask(app, "/0")
    assert codes(app, "/1", times=2) == [200, 200]


def test_reports_are_about_requests_that_come_through_the_app() -> None:
    app = Flask("bare")
    with app.test_request_context("/"), pytest.raises(UsageError, match="nothing limits"):
        report(request, tokens=1)


def test_a_hold_that_nobody_settles_lapses() -> None:
    clock = ManualClock(100)
    app, limits = made(clock=clock)
    held = limits.limit("1/hour", charge_when=lambda _: True, ttl=5)
    app.add_url_rule("/", "index", held(lambda: iter(["hello"])))
    lost = begin(app)
    assert codes(app, times=1) == [429]
    clock.advance(6)
    assert codes(app, times=1) == [200]
    lost.close()
