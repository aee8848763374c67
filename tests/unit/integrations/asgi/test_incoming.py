"""An ASGI scope as a request, and the route of the app that it is for."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from headgate.integrations import by_header
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware
from headgate.policy.loader import read_policy
from tests.support.asgi_connection import Answering, drive, drive_all, http, statuses, websocket


def test_a_scope_is_read_as_far_as_it_is_asked_for() -> None:
    request = AsgiRequest({"type": "http", "method": "get", "client": ["203.0.113.7", 1]})

    assert (request.method, request.peer, request.path) == ("GET", "203.0.113.7", "/")
    assert (request.host, request.headers, dict(request.attributes)) == ("", (), {})


def test_header_names_are_found_in_any_case_and_the_first_line_counts() -> None:
    lines = [(b"X-User", b"ann"), (b"x-user", b"bob"), (b"x-odd", b"\xe9")]
    request = AsgiRequest(http(headers=lines))

    assert request.header("x-user") == "ann"
    assert request.header("x-odd") == "\xe9"
    assert request.header("x-\u20ac") is None
    assert request.header_lines("x-user") == ["ann", "bob"]


@pytest.mark.parametrize(
    ("path", "encoded"),
    [
        ("/a b", "/a%20b"),
        ("/a%2fb", "/a%252fb"),
        ("/a?b#c;d", "/a%3Fb%23c%3Bd"),
        ("/\xe9", "/%C3%A9"),
        ("/~a-b_c.d!$&'()*+,=:@", "/~a-b_c.d!$&'()*+,=:@"),
        ("/\udcff", "/%ED%B3%BF"),
    ],
)
def test_a_path_is_as_it_may_stand_in_a_request_again(path: str, encoded: str) -> None:
    assert AsgiRequest({**http(), "path": path}).path == encoded


def test_a_websocket_is_asked_about_as_a_get() -> None:
    assert AsgiRequest(websocket("/chat")).method == "GET"


def test_attributes_can_be_added() -> None:
    request = AsgiRequest(http())
    request.add_attributes({"plan": "paid"})
    request.add_attributes({"route": "/"})

    assert request.attributes == {"plan": "paid", "route": "/"}


def app_with_routes(policy: str) -> Any:
    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    users = [Route("/users/{id}", hello), Route("/users/{id}/posts", hello)]
    rules = read_policy(f"version: 1\nrules:\n  - {policy}")
    return Starlette(
        routes=[*users, Mount("/api/{version}", routes=users)],
        middleware=[Middleware(RateLimitMiddleware, policy=rules)],
    )


def test_the_routes_of_a_mounted_app_are_told_apart_by_their_whole_template() -> None:
    app = app_with_routes("{id: a, key_by: [ip, endpoint], limit: 1/hour}")
    paths = ("/users/1", "/api/v1/users/1", "/api/v2/users/2", "/api/v1/users/1/posts")

    assert statuses(app, *map(http, paths)) == [200, 200, 429, 200]


@pytest.mark.parametrize("limits", ["2/hour", "2/hour fixed_window"])
def test_what_a_server_leaves_out_is_no_error(limits: str) -> None:
    bare: dict[str, Any] = {"type": "http", "path": "/"}
    shown = drive_all(RateLimitMiddleware(Answering(), limits=limits), *[dict(bare)] * 3)

    assert [one.status for one in shown] == [200, 200, 429]


@pytest.mark.parametrize("limits", ["2/hour", "2/hour fixed_window"])
def test_headers_that_can_be_read_once_are_there_for_the_app_too(limits: str) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append([*scope["headers"]])
        await Answering()(scope, receive, send)

    lines = [(b"x-api-key", b"a"), (b"host", b"b")]
    gated = RateLimitMiddleware(app, limits=limits, key=by_header("x-api-key"))
    drive(gated, {**http(), "headers": iter(lines)})

    assert seen == [lines]
