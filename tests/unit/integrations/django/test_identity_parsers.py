"""A caller is counted by the values that Django reads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.wsgi import WSGIRequest

from headgate.integrations.django import DjangoRequest
from tests.support.identity_parsers import LINES, Reading, environ, keys, keys_of, scope

if TYPE_CHECKING:
    from collections.abc import Callable


def django_wsgi(lines: list[tuple[str, str]]) -> Reading:
    native = WSGIRequest(environ(lines))
    return DjangoRequest(native), native.COOKIES.get("sid"), native.headers.get("x-user")


def django_asgi(lines: list[tuple[str, str]]) -> Reading:
    native = ASGIRequest(scope(lines), io.BytesIO())
    return DjangoRequest(native), native.COOKIES.get("sid"), native.headers.get("x-user")


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("read", [django_wsgi, django_asgi])
def test_a_caller_has_the_key_of_the_value_that_django_reads(
    read: Callable[[list[tuple[str, str]]], Reading], lines: list[tuple[str, str]]
) -> None:
    request, cookie, user = read(lines)
    assert keys(request) == keys_of(cookie, user)
