from __future__ import annotations

from headgate.rules.matching import endpoint_of
from headgate.rules.request import Request


def test_the_endpoint_is_the_normalised_path() -> None:
    assert endpoint_of(Request(path="//Users/7/")) == "/users/7"


def test_the_route_that_a_framework_knows_is_the_endpoint_instead() -> None:
    request = Request(path="/users/7", attributes={"route": "/users/{id}"})
    assert endpoint_of(request) == "/users/{id}"


def test_an_empty_route_says_nothing() -> None:
    assert endpoint_of(Request(path="/users/7", attributes={"route": ""})) == "/users/7"
