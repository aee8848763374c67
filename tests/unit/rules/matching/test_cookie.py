from __future__ import annotations

import pytest

from headgate.rules.matching import cookies_of
from headgate.rules.request import Request


@pytest.mark.parametrize(
    ("line", "cookies"),
    [
        ("a=1; b=2", {"a": "1", "b": "2"}),
        ("a=1;b=2;", {"a": "1", "b": "2"}),
        (" a = 1 ;; b=", {"a": "1", "b": ""}),
        ('a="x y"; b="', {"a": "x y", "b": '"'}),
        ("a=b=c==", {"a": "b=c=="}),
        ("a=1; a=2", {"a": "1"}),
        ("a=1; A=2", {"a": "1", "A": "2"}),
        ("flag; =x; a=1", {"a": "1"}),
        ("a[b]:c/d=é{}; ok=1", {"a[b]:c/d": "é{}", "ok": "1"}),
        ("", {}),
    ],
)
def test_cookies_are_read_whatever_is_between_them(line: str, cookies: dict[str, str]) -> None:
    assert cookies_of(Request(headers=(("Cookie", line),))) == cookies


def test_the_first_of_several_lines_wins() -> None:
    request = Request(headers=(("cookie", "a=1"), ("COOKIE", "a=2; b=3")))
    assert cookies_of(request) == {"a": "1", "b": "3"}
