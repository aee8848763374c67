"""Costs that are known when Flask's response is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from flask import Flask, Response, abort, request, send_file, stream_with_context

from headgate.integrations.flask import report
from headgate.policy.loader import read_policy
from tests.support.flask_apps import ask, left, made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def app_with(after: str) -> Flask:
    rule = f"{{id: llm, key_by: ip, limit: 1000/hour fixed_window, cost: {{after: {after}}}}}"
    return made(policy=read_policy(f"version: 1\nrules: [{rule}]"))[0]


def rest(app: Flask) -> int:
    """What is left for the next request, which costs 1 to enter."""
    return left(ask(app, "/nothing"))["llm"]


def test_views_are_charged_what_their_headers_say() -> None:
    app = app_with("{header: x-tokens}")
    app.add_url_rule("/", "index", lambda: ("x", {"X-Tokens": "30"}))
    ask(app)
    assert rest(app) == 969


@pytest.mark.parametrize("is_read", [True, False])
def test_views_are_charged_the_bytes_of_their_answers_read_or_not(is_read: bool) -> None:
    app = app_with("{bytes: true}")
    app.add_url_rule("/", "index", lambda: "x" * 30)
    ask(app, buffered=is_read)
    assert rest(app) == 969


def test_an_answer_that_does_not_say_how_long_it_is_is_counted_as_it_is_read() -> None:
    app = app_with("{bytes: true}")

    def index() -> Response:
        response = Response("x" * 30)
        response.automatically_set_content_length = False
        del response.headers["Content-Length"]
        return response

    app.add_url_rule("/", "index", index)
    assert "Content-Length" not in ask(app).headers
    assert rest(app) == 969


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_streams_and_errors_and_files_are_charged_their_bytes(method: str, tmp_path: Path) -> None:
    app = app_with("{bytes: true}")
    (tmp_path / "file").write_bytes(b"x" * 40)

    def stream() -> Iterator[bytes]:
        yield from (b"x" * 10, b"y" * 20)

    app.add_url_rule("/stream", "stream", lambda: Response(stream()))
    app.add_url_rule("/file", "file", lambda: send_file(tmp_path / "file"))
    app.add_url_rule("/error", "error", lambda: abort(Response("x" * 50, 418)))
    ask(app, "/stream", method=method)
    ask(app, "/file", method=method)
    ask(app, "/error", method=method)
    sent = 120 - 3 if method == "GET" else 0
    assert rest(app) == 1000 - 3 - sent - 1


def test_a_view_may_say_the_amount_itself_while_it_is_streamed() -> None:
    app = app_with("{header: x-tokens}")

    def stream() -> Iterator[bytes]:
        yield b"x"
        report(request, llm=250)

    app.add_url_rule("/", "index", lambda: Response(stream_with_context(stream())))
    ask(app)
    assert rest(app) == 749
