"""Cookies: every value that some server reads is a reading, in the one spelling that it has."""

from __future__ import annotations

from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import unquote, unquote_plus

import pytest
from django.http.cookie import parse_cookie as parsed_by_django
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.requests import cookie_parser as parsed_by_starlette
from werkzeug.http import parse_cookie as parsed_by_werkzeug

from headgate.engine.request import Request
from headgate.policy.conditions import cookie_readings, cookies_of

C = ["d=3, e=4", "d=3"]


def _request(*lines: str) -> Request:
    return Request(headers=tuple(("Cookie", line) for line in lines))


@pytest.mark.parametrize(
    ("line", "cookies"),
    [
        ("a=1; b=2", {"a": ["1"], "b": ["2"]}),
        ("a=1;b=2;", {"a": ["1"], "b": ["2"]}),
        (" a = 1 ;; b=", {"a": ["1"], "b": [""]}),
        ('a="x y"; b="', {"a": ["x y", "x"], "b": ['"', ""]}),
        (
            'a=1 b=2; c="d=3, e=4"',
            {"a": ["1 b=2", "1"], "b": ["2"], "c": C, "d": ["3"], "e": ["4"]},
        ),
        ("a=b=c==", {"a": ["b=c=="]}),
        ("a=1; a=2", {"a": ["1", "2"]}),
        ("a=1; A=2; %61=3", {"a": ["1", "2", "3"]}),
        ('a=%31; b="\\062"', {"a": ["%31", "1"], "b": ["\\062", "2"]}),
        ("flag; =x; a=1", {"a": ["1"]}),
        ("a[b]:c/d=é{}; ok=1", {"a[b]:c/d": ["é{}"], "ok": ["1"]}),
        ("", {}),
    ],
)
def test_all_values_of_a_cookie_can_match(line: str, cookies: dict[str, list[str]]) -> None:
    found = cookies_of(_request(line), (*cookies, "missing"))
    assert {name: values - {None} for name, values in found.items()} == {
        name: set(values) for name, values in cookies.items()
    }


def test_cookies_of_all_lines_can_match() -> None:
    request = Request(headers=(("cookie", "a=1"), ("COOKIE", "a=2; b=3")))
    assert cookies_of(request, ("a", "b")) == {"a": {"1", "2"}, "b": {"3"}}
    assert cookies_of(request, ("b",)) == {"b": {"3"}}


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["sid=abc"], "abc"),
        (["a=1; sid=abc; b=2"], "abc"),
        (["a=1;sid = abc ;b=2"], "abc"),
        (["a=1", "sid=abc"], "abc"),
        (["sid=abc; sid=abc"], "abc"),
        (["sid=abc", 'sid="abc"'], "abc"),
        (["sid=abc; sid=%61bc; SID=abc"], "abc"),
        (["sid=a=b"], "a=b"),
        (['sid="abc"'], "abc"),
        (['sid="\\141b\\c"'], "abc"),
        (["sid=%61%62c"], "abc"),
        (["sid=a\xc3\xad"], "a\u00ed"),  # as HTTP servers have it
        (["sid=a\u00ed"], "a\u00ed"),  # as gRPC has it
        (["sid=a%C3%AD"], "a\u00ed"),
        (["sid=a%25C3%25ad"], "a\u00ed"),
        (["sid=a%ED"], "a\u00ed"),
        (["sid=\u20ac%C3%AD"], "\u20ac\u00ed"),
        (["sid=%2561bc"], "abc"),
        (["sid=%" + "25" * 4 + "41"], "A"),
        (["sid=a+b"], "a b"),
        (["sid=a%20b"], "a b"),
        (["sid=abc\xa0\x85\x1f"], "abc"),
        (["sid=abc\udca0"], "abc"),
        (["$Version=1; sid=abc; $Path=/"], "abc"),
        (["sid=Abc"], "Abc"),
        (["note={'sid': 1}; sid=abc"], "abc"),
        (["next=/a?sid=1; sid=abc"], "abc"),
    ],
)
def test_a_cookie_has_one_spelling(lines: list[str], value: str) -> None:
    assert cookie_readings(_request(*lines), "sid") == (value,)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["sid="],
        ['sid=""'],
        ["sid"],
        ["xsid=abc; sid2=abc; a=sid=abc"],
        [";" * 65536],
        ["; " + " " * 65536],
    ],
)
def test_a_cookie_is_missing(lines: list[str]) -> None:
    assert cookie_readings(_request(*lines), "sid") == (None,)


@pytest.mark.parametrize(
    ("lines", "readings"),
    [
        (["sid=r1; sid=victim"], ["r1", "victim"]),
        (["sid=victim; sid=r1"], ["r1", "victim"]),
        (["sid=r1; sid=r2; sid=victim"], ["r1", "victim"]),
        (["sid=r1", "sid=victim"], ["r1", "victim"]),
        (["sid=r1, sid=victim"], ["r1", "r1, sid=victim", "victim"]),
        (["sid=r1,sid=victim"], ["r1", "r1,sid=victim", "victim"]),
        (["sid=r1; SID=victim"], ["r1", "victim"]),
        (["SID=victim"], [None, "victim"]),
        (["sid=; sid=victim"], [None, "victim"]),
        (["sid=r1; %73id=victim"], ["r1", "victim"]),
        (["sid=r1; sid =victim"], ["r1", "victim"]),
        (["sid=r1; \xa0sid\x1f=victim"], ["r1", "victim"]),
        (["a=1 sid=victim; sid=r1"], ["r1", "victim"]),
        (["a sid=victim; sid=r1"], ["r1", "victim"]),
        (['a="sid=r1"; sid=victim'], ["r1", "victim"]),
        (["sid=victim r1"], ["victim", "victim r1"]),
        (["sid=victim,r1"], ["victim", "victim,r1"]),
        (["sid=victim\x00r1"], ["victim", "victim\x00r1"]),
        (['sid="victim1'], ['"victim1', "victim1"]),
        (['sid="victim;1"'], ['"victim', "victim"]),
        (['sid="victim\\0731"'], ["victim", "victim;1"]),
        (['sid=victim"'], ["victim", 'victim"']),
        (['sid="a b"'], ["a", "a b"]),
    ],
)
def test_what_servers_read_differently_has_several_readings(
    lines: list[str], readings: list[str | None]
) -> None:
    found = cookie_readings(_request(*lines), "sid")
    assert sorted(found, key=str) == sorted(readings, key=str)


@pytest.mark.parametrize("line", ["session.id=a; session_id=b", "session id=a; session_id=b"])
def test_a_name_that_php_takes_for_another_is_that_one(line: str) -> None:
    assert set(cookie_readings(_request(line), "session_id")) == {"a", "b"}


def test_a_cookies_name_is_no_pattern() -> None:
    assert cookie_readings(_request("aXb=1"), "a.b") == (None,)


@pytest.mark.parametrize(
    "line", ["a" * 65_536, "a " * 32_768, '"' * 65_536, "a=" * 32_768, "sid=1;" * 10_000]
)
def test_a_long_line_has_few_readings(line: str) -> None:
    assert len(cookie_readings(_request(line), "sid")) <= 2


def _last(line: str) -> list[str]:
    pairs = [pair.partition("=") for pair in line.split(";")]
    return [value.strip() for name, _, value in pairs if name.strip() == "sid"][-1:]


def _readings(line: str) -> set[str | None]:
    """What servers read as the cookie `sid` in *line*."""
    simple: SimpleCookie = SimpleCookie()
    with suppress(CookieError):
        simple.load(line)
    found: set[str | None] = {
        parsed_by_starlette(line).get("sid"),
        parsed_by_django(line).get("sid"),
        parsed_by_werkzeug(line).get("sid"),
        simple["sid"].value if "sid" in simple else None,
    }
    return {value for value in found | _decoded(line) if value}


def _decoded(line: str) -> set[str]:
    """The values whose spelling some server decodes in its own way."""
    return {unquote(value) for value in _last(line)} | {unquote_plus(v) for v in _last(line)}


_PIECES = (
    "sid=",
    "victim",
    "r1",
    "; ",
    ";",
    ",",
    " ",
    '"',
    "=",
    "\\",
    "\\166",
    "%76",
    "SID=",
    "x=",
)


@settings(max_examples=1_000)
@given(st.lists(st.sampled_from(_PIECES), max_size=8).map("".join))
@example("sid=victim; sid=r1")
@example('x="; sid=victim; "; sid=r1')
@example("x=1 sid=victim; sid=r1")
def test_who_is_read_as_somebody_is_counted_as_that_one(line: str) -> None:
    if "victim" in _readings(line):
        assert "victim" in cookie_readings(_request(line), "sid")
    if "victim" in _readings(line) - _decoded(line):
        assert "victim" in cookies_of(_request(line), ("sid",))["sid"]
