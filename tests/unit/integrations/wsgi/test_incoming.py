"""A WSGI environ as a request: who asks, and for what."""

from __future__ import annotations

import pytest

from headgate.integrations import request_view
from headgate.integrations.wsgi import WsgiRequest
from headgate.policy.path import readings
from tests.support.wsgi_caller import environ


def as_in_wsgi(path: str) -> str:
    """*path* as servers give it: each byte a character."""
    return path.encode().decode("latin-1")


def test_headers_are_named_as_clients_send_them() -> None:
    made = environ(x_api_key="k", cookie="a=b") | {"CONTENT_TYPE": "text/plain"}
    request = WsgiRequest(made)
    assert dict(request.headers)["x-api-key"] == "k"
    assert dict(request.headers)["content-type"] == "text/plain"
    assert request.header("x-api-key") == "k"
    assert request.header("content-type") == "text/plain"
    assert request.header_lines("cookie") == ["a=b"]
    assert request.header("x-other") is None


def test_an_empty_content_length_is_none() -> None:
    request = WsgiRequest(environ() | {"CONTENT_LENGTH": ""})
    assert request.header("content-length") is None
    assert request.header_lines("content-length") == []


def test_a_header_named_like_those_that_wsgi_keeps_apart_does_not_replace_them() -> None:
    made = environ(content_type="forged") | {"CONTENT_TYPE": "text/plain"}
    assert WsgiRequest(made).header_lines("content-type") == ["text/plain"]


def test_a_name_with_an_underscore_is_never_found() -> None:
    request = WsgiRequest(environ(x_forwarded_for="6.6.6.6"))
    assert request.header("x_forwarded_for") is None
    assert request.header_lines("x_forwarded_for") == []


@pytest.mark.parametrize("spelling", ["", "<local>", "localhost", "unix:"])
def test_the_peer_on_a_unix_socket_is_this_machine(spelling: str) -> None:
    assert WsgiRequest(environ(peer=spelling)).peer == request_view.LOCAL


def test_without_a_peer_it_is_this_machine() -> None:
    assert WsgiRequest({}).peer == request_view.LOCAL


def test_the_path_is_all_of_it_wherever_the_app_is_mounted() -> None:
    outside = WsgiRequest(environ(path="/api/users"))
    inside = WsgiRequest(environ(path="/users") | {"SCRIPT_NAME": "/api"})
    assert inside.path == outside.path == "/api/users"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (as_in_wsgi("/café"), "/caf%C3%A9"),
        ("/\xff", "/%FF"),
        ("/a b?c", "/a%20b%3Fc"),
        ("/\u20ac", "/%E2%82%AC"),
        ("", "/"),
    ],
    ids=["utf-8", "no utf-8", "odd characters", "decoded too far", "empty"],
)
def test_the_path_is_as_it_was_sent(given: str, path: str) -> None:
    assert WsgiRequest(environ(path=given)).path == path


@pytest.mark.parametrize("spelling", ["//login", "/login/", "/a/../login", "/LOGIN", "/login;x"])
def test_odd_spellings_can_be_read_as_the_plain_one(spelling: str) -> None:
    assert ("login",) in readings(WsgiRequest(environ(path=spelling)).path)


def test_what_else_there_is_to_know() -> None:
    request = WsgiRequest(environ("post", host="example.org") | {"REMOTE_USER": "ann"})
    assert request.method == "POST"
    assert request.host == "example.org"
    assert request.environ["REMOTE_USER"] == "ann"
    assert WsgiRequest({}).host == ""
