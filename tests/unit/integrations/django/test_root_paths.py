"""The path of a request to Django is whole, also where URLs are resolved without its prefix."""

from __future__ import annotations

from io import BytesIO

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import override_settings

from headgate.integrations.django import DjangoRequest
from tests.support.asgi_connection import http


@pytest.mark.parametrize("path", ["/login", "/api/login"])
def test_the_path_of_a_request_to_django_has_the_prefix_of_the_script(path: str) -> None:
    scope = http(path, raw_path=path.encode(), query_string=b"")
    with override_settings(FORCE_SCRIPT_NAME="/api"):
        native = ASGIRequest(scope, BytesIO())
    assert native.path_info == "/login"
    assert DjangoRequest(native).path == "/api/login"
