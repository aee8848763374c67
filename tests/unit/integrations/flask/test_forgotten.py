"""Responses of Flask that servers forget without closing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate import Concurrency
from tests.support.flask_apps import ask, made
from tests.support.heartbeats import listened

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


def test_a_stream_that_nobody_closes_is_not_renewed_once_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heart = listened(monkeypatch)
    app, limits = made()

    @app.get("/")
    @limits.limit(Concurrency(2, 60))
    def index() -> Iterator[bytes]:
        return iter((b"a", b"b"))

    response = ask(app, buffered=False)
    assert response.status_code == 200
    assert heart.are_beating == [True]
    del response
    assert heart.are_beating == [False]
    assert ask(app).data == b"ab"
    assert heart.are_beating == [False, False]
