from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.path import endpoints_of


def test_the_endpoint_is_the_normalised_path() -> None:
    assert endpoints_of(Request(path="//Users/7/")) == ("/users/7",)


def test_the_route_that_a_framework_knows_is_the_endpoint_instead() -> None:
    request = Request(path="/users/7", attributes={"route": "/users/{id}"})
    assert endpoints_of(request) == ("/users/{id}",)


def test_an_empty_route_says_nothing() -> None:
    assert endpoints_of(Request(path="/users/7", attributes={"route": ""})) == ("/users/7",)


AMBIGUOUS = (
    "/r1%23/../acct/me",
    "/r1%3f/../acct/me",
    "/r1%3F/%2e%2e/acct/me",
    "/r1%00/../acct/me",
    "/r1%23/../Acct//me/",
    "/r1%23/../acct/me;x",
    "/r1%23%2f..%2facct/me",
    "/r1%23\\..\\acct\\me",
    "/r1%2fr2/../acct/me",
    "/r1//../acct/me",
    "/r1%23/..;x/acct/me",
    "/r1/" + "a/" * 2_000 + "%23/" + "../" * 2_002 + "acct/me",
)


@pytest.mark.parametrize("path", AMBIGUOUS)
def test_a_path_for_different_resources_is_ambiguous(path: str) -> None:
    found = endpoints_of(Request(path=path))
    assert len(found) > 1
    assert "/acct/me" in found


@pytest.mark.parametrize("path", AMBIGUOUS)
@pytest.mark.parametrize("endpoints", [("/acct/me",), ("/acct/*", "/other"), ("/acct/**",)])
def test_a_rule_for_one_of_the_resources_counts_by_it(
    path: str, endpoints: tuple[str, ...]
) -> None:
    assert endpoints_of(Request(path=path), endpoints) == ("/acct/me",)


@pytest.mark.parametrize(
    "path", ["/acct/r1%23/../me", "/acct/me%3f/../r1", "/acct/r1%2fa/../me", "/acct/me;%2fr1"]
)
def test_a_rule_for_several_of_the_resources_counts_by_all(path: str) -> None:
    found = endpoints_of(Request(path=path), ("/acct/**",))
    assert len(found) > 1
    assert "/acct/me" in found


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/acct/me;x=1", "/acct/me"),
        ("/acct/a%2fb", "/acct/a/b"),
        ("/acct\\me", "/acct/me"),
        ("/a/../acct/me", "/acct/me"),
        ("/a/..;x/acct/./me", "/acct/me"),
        ("/a/%2e%2e/ACCT//me/", "/acct/me"),
        ("/acct/me%23x", "/acct/me"),
        ("/.well-known/x", "/.well-known/x"),
    ],
)
def test_what_servers_only_spell_differently_is_not_ambiguous(path: str, endpoint: str) -> None:
    assert endpoints_of(Request(path=path)) == (endpoint,)
