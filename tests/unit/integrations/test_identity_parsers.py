"""An integration counts a caller by the value that its framework reads, whatever is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import make_mocked_request
from flask import Flask
from flask import request as flask_request
from litestar import Litestar
from litestar.connection import ASGIConnection
from multidict import CIMultiDict
from starlette.applications import Starlette
from starlette.requests import HTTPConnection

from headgate.integrations.aiohttp_server import AiohttpRequest
from headgate.integrations.asgi import AsgiRequest
from headgate.integrations.flask import FlaskRequest
from headgate.integrations.grpc import GrpcRequest
from headgate.integrations.wsgi import WsgiRequest
from headgate.policy.identity import hashed
from tests.support.identity_parsers import LINES, Reading, environ, keys, keys_of, scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.engine.request import Request


def starlette(lines: list[tuple[str, str]]) -> Reading:
    found = scope(lines, app=Starlette())
    native = HTTPConnection(found)
    return AsgiRequest(found), native.cookies.get("sid"), native.headers.get("x-user")


def litestar(lines: list[tuple[str, str]]) -> Reading:
    app = Litestar([])
    found = scope(lines, app=app, litestar_app=app, state={})
    native: Any = ASGIConnection(found)  # type: ignore[arg-type]
    return AsgiRequest(found), native.cookies.get("sid"), native.headers.get("x-user")


def aiohttp(lines: list[tuple[str, str]]) -> Reading:
    native = make_mocked_request("GET", "/", headers=CIMultiDict(lines))
    return AiohttpRequest(native), native.cookies.get("sid"), native.headers.get("x-user")


def flask(lines: list[tuple[str, str]]) -> Reading:
    app = Flask("app")
    with app.request_context(environ(lines)) as context:
        native: Any = context.request
        view = FlaskRequest(native)
        cookie, user = flask_request.cookies.get("sid"), flask_request.headers.get("x-user")
        return view, cookie, user


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize(
    "read",
    [starlette, litestar, aiohttp, flask],
    ids=lambda f: f.__name__,
)
def test_a_caller_has_the_key_of_the_value_that_the_framework_reads(
    read: Callable[[list[tuple[str, str]]], Reading], lines: list[tuple[str, str]]
) -> None:
    request, cookie, user = read(lines)
    assert keys(request) == keys_of(cookie, user)


def test_the_readings_of_several_cookies_differ_among_frameworks() -> None:
    lines = [("cookie", "sid=a; sid=%62")]
    found = {read(lines)[1] for read in (starlette, litestar, flask)}
    assert found == {"%62", "b", "a"}


@pytest.mark.parametrize(
    "request_",
    [
        AsgiRequest(scope([("cookie", "sid=a; sid=b"), ("x-user", "a"), ("x-user", "b")])),
        AsgiRequest(scope([("cookie", "sid=a; sid=b"), ("x-user", "a,b")], app=object())),
    ],
)
def test_without_a_known_framework_every_reading_counts(request_: Request) -> None:
    sessions, users = keys(request_)
    assert sessions == {f"cookie:sid={hashed(value)}" for value in "ab"}
    assert users == {f"header:x-user={value}" for value in ("a", "b", "a,b")}


def test_a_wsgi_app_reads_the_header_of_the_environ_and_may_read_any_cookie() -> None:
    lines = [("cookie", "sid=a; sid=b"), ("x-user", "a"), ("x-user", "b")]
    sessions, users = keys(WsgiRequest(environ(lines)))
    assert sessions == {f"cookie:sid={hashed(value)}" for value in "ab"}
    assert users == {"header:x-user=a,b"}


def test_a_plan_is_not_shared_by_requests_that_are_read_differently() -> None:
    lines = [("cookie", "sid=a; sid=b")]
    unknown, known = AsgiRequest(scope(lines)), AsgiRequest(scope(lines, app=Starlette()))
    for request in (unknown, known, unknown):
        expected = "b" if request is known else "ab"
        assert keys(request)[0] == {f"cookie:sid={hashed(value)}" for value in expected}
    for _ in range(2):
        assert keys(flask(lines)[0])[0] == {f"cookie:sid={hashed('a')}"}
        assert len(keys(WsgiRequest(environ(lines)))[0]) == 2


class _Call:
    """The context of a gRPC call."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self.metadata = metadata

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self.metadata

    def peer(self) -> str:
        return "ipv4:1.2.3.4:5"


def test_a_grpc_server_may_read_the_first_or_the_last_metadata() -> None:
    request = GrpcRequest("/a.B/C", _Call(("x-user", "a"), ("x-user", "b")), None)
    assert {"header:x-user=a", "header:x-user=b"} < keys(request)[1]
