"""Paths that no limit is for, in all their spellings and in no others."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.errors import OptionError
from headgate.integrations.exemptions import LONGEST_REMEMBERED, Exemptions, is_preflight

STATIC = Exemptions(["/static/**", "/health", "/*/ping"])


@pytest.mark.parametrize(
    "path",
    ["/health", "/%68ealth", "/static", "/static/a.js", "/static/A/b%20c", "/a/ping"],
)
def test_paths_that_are_meant_are_exempt(path: str) -> None:
    assert STATIC.covers(path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/health/",
        "/Health",
        "//health",
        "/STATIC/a.js",
        "/login",
        "/healthy",
        "/health/more",
        "/a/b/ping",
        "/static/../login",
        "/static/%2e%2e/login",
        "/static/..%2flogin",
        "/static/..%5clogin",
        "/static/..;/login",
        "/login/../health",
        "/login%00/../health",
        "/login;/../static/a",
        "/health%3f/../login",
        "/static" + "/x" * LONGEST_REMEMBERED + "/.." * LONGEST_REMEMBERED + "/../login",
    ],
)
def test_odd_spellings_of_other_paths_are_not(path: str) -> None:
    assert not STATIC.covers(path)
    assert not STATIC.covers(path)


def test_long_paths_are_exempt_too() -> None:
    assert STATIC.covers("/static/" + "a" * 2 * LONGEST_REMEMBERED)


def test_no_patterns_are_none() -> None:
    assert not Exemptions([]).patterns
    assert Exemptions(["/a"]).patterns
    assert not Exemptions([]).covers("/")


@pytest.mark.parametrize("wrong", ["/health", ["health"], [""], [5], [None]])
def test_wrong_patterns_are_clear_errors(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"exempt .*expected"):
        Exemptions(wrong)


@pytest.mark.parametrize(
    ("method", "names", "expected"),
    [
        ("OPTIONS", ("Origin", "Access-Control-Request-Method"), True),
        ("OPTIONS", ("origin",), False),
        ("OPTIONS", ("access-control-request-method",), False),
        ("GET", ("origin", "access-control-request-method"), False),
    ],
)
def test_a_preflight_is_what_browsers_send(
    method: str, names: tuple[str, ...], expected: bool
) -> None:
    request = Request(method, headers=tuple((name, "x") for name in names))

    assert is_preflight(request) is expected
