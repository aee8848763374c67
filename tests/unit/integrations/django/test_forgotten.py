"""Responses of Django's that servers forget without closing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, StreamingHttpResponse
from django.test import RequestFactory

from headgate import Concurrency
from headgate.integrations.django import limit
from tests.support.django_project import OURS, project
from tests.support.heartbeats import listened

if TYPE_CHECKING:
    from typing import Any


@limit(Concurrency(1, 60))
def streamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter((b"a", b"b")))


@pytest.mark.parametrize("middleware", [(), (OURS,)], ids=["alone", "behind"])
def test_a_stream_that_nobody_closes_is_not_renewed_once_it_is_forgotten(
    middleware: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    heart = listened(monkeypatch)
    begun: list[str] = []
    with project({"a": streamed}, middleware=middleware):
        environ = RequestFactory().get("/a").environ
        handler: Any = WSGIHandler()
        response = handler(environ, lambda status, *_: begun.append(status))
        assert begun == ["200 OK"]
        assert next(iter(response)) == b"a"
        assert heart.are_beating == [True]
        del response, environ
        assert heart.are_beating == [False]
