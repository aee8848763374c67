from __future__ import annotations

import pytest

from headgate.policy.path import compiled, readings


def fits(pattern: str, path: str) -> bool:
    return compiled(pattern).fits(readings(path)[0])


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("/login", ["/login", "/LOGIN/"], ["/", "/login/x", "/logins", "/x/login"]),
        ("/", ["/", ""], ["/x"]),
        ("/a/*", ["/a/b", "/a/*"], ["/a", "/a/b/c", "/b/b"]),
        ("/*", ["/a", "*"], ["/", "/a/b"]),
        ("/a/**", ["/a", "/a/b", "/a/b/c"], ["/", "/b", "/ab"]),
        ("/**", ["/", "/a", "/a/b", "*"], []),
        ("/**/x", ["/x", "/a/x", "/a/b/x", "/x/x"], ["/", "/x/a", "/a"]),
        ("/a/**/x", ["/a/x", "/a/b/x", "/a/x/x"], ["/a", "/x", "/b/x"]),
        ("/a/*/**", ["/a/b", "/a/b/c"], ["/a"]),
        ("/**/*", ["/a", "/a/b"], ["/"]),
        ("/**/a/**/b", ["/a/b", "/x/a/y/b", "/a/a/b/b"], ["/a", "/b/a"]),
        ("/v*", ["/v*"], ["/v1", "/v"]),
    ],
)
def test_an_asterisk_is_one_segment_and_two_are_any_number(
    pattern: str, fitting: list[str], others: list[str]
) -> None:
    assert [path for path in fitting + others if fits(pattern, path)] == fitting


@pytest.mark.parametrize("text", ["/login/", "login", "/LOGIN", "//login", "/%6Cogin"])
def test_a_pattern_may_be_spelt_in_any_way(text: str) -> None:
    assert compiled(text) == compiled("/login")


def test_one_pair_of_asterisks_after_another_says_nothing_new() -> None:
    assert compiled("/a/**/**/**") == compiled("/a/**")


def test_a_pattern_that_nearly_fits_everywhere_takes_no_exponential_time() -> None:
    assert not compiled("/**/a" * 30 + "/b").fits(("a",) * 256)
