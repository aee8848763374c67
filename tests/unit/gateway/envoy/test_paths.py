from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.gateway.envoy.matching import flaw_of, path_regex
from headgate.policy.path import compiled, readings
from tests.examples import example_count
from tests.support.envoy_matchers import looks_like

SEGMENTS = ["login", "a", "b", "*", "**", "x.y", "(p)", "café", "a b"]
PIECES = [
    *("login", "LOGIN", "a", "b", "A", "x.y", "(p)", "%28p%29", "/", "/", "/", "//", ";x", ";"),
    *("%3b", "%3F", "?", "%23", "%20", "%a0", "%85", "%c3%a0", "%C2%A0", "%e2%80%89", "%01"),
    *("%00", "%6c", "l%6fgin", "%c1%ac", "%2f", "%5c", "\\", ".", "..", "...", "%2e", "%256c"),
    *("%", "%zz", "~", "café", "caf%C3%A9", "%7f", "%ef%bb%bf", "%e3%80%80", "#"),
]


def told(pattern: str, path: str) -> bool:
    regex = path_regex([pattern])
    return regex is None or looks_like(regex, path)


def meant(pattern: str, path: str) -> bool:
    return any(compiled(pattern).fits(way) for way in readings(path.partition("?")[0]))


@settings(max_examples=example_count(400))
@given(
    st.lists(st.sampled_from(SEGMENTS), max_size=4),
    st.lists(st.sampled_from(PIECES), max_size=8),
    st.sampled_from(["/", "/", "/", ""]),
)
def test_no_path_that_a_pattern_is_for_looks_otherwise(
    segments: list[str], pieces: list[str], slash: str
) -> None:
    pattern, path = "/" + "/".join(segments), slash + "".join(pieces)
    if meant(pattern, path):
        assert told(pattern, path)


@settings(max_examples=example_count(400))
@given(
    st.lists(st.sampled_from(["login", "a", "*", "**", "x.y", "(p)"]), max_size=4),
    st.lists(st.sampled_from(["login", "A", "x.y", "%28p%29", "(p)", "a%20b", "é"]), max_size=5),
    st.sampled_from(["", "/", "?q=/login", ";v=1", "."]),
)
def test_of_ordinary_paths_no_other_looks_so(
    segments: list[str], names: list[str], end: str
) -> None:
    pattern, path = "/" + "/".join(segments), "/" + "/".join(names)
    path = (path + end if names else path).replace("é", "%C3%A9")
    if segments.count("**") < 2:
        assert told(pattern, path) == meant(pattern, path)


@pytest.mark.parametrize(
    "path",
    [
        *("/login", "/LOGIN", "/login/", "//login", "/login?x=1", "/login;x", "/login;x?y"),
        *("/%6cogin", "/log%01in", "/%c1%acogin", "/a%2Flogin", "/x\\login", "/login%3Fx"),
        *("/login.", "/login%20", "/%20login", "/login%C2%A0", "/;x/login", "/./login", ""),
    ],
)
def test_no_spelling_escapes(path: str) -> None:
    assert told("/login", path)


@pytest.mark.parametrize(
    "path",
    ["/", "/logins", "/x/login", "/login/x", "/?/login", "/citt%C3%A0", "/a%20b", "/.well-known/x"],
)
def test_other_paths_of_ordinary_clients_are_told_apart(path: str) -> None:
    assert not told("/login", path)


def test_all_paths_need_no_expression() -> None:
    assert path_regex([]) is None
    assert path_regex(["/a", "/**"]) is None


def test_it_is_said_what_cannot_be_told_exactly() -> None:
    assert flaw_of("/a/**/b") == ""
    assert flaw_of("/**/a/**") == "has ** in it more than once"
    assert "letters" in flaw_of("/café")
