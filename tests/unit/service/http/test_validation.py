"""What bodies are refused, and what is said to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.errors import OptionError
from headgate.service.http import HttpApp, HttpOptions
from headgate.service.http.body import document_of
from headgate.service.http.replies import RejectedError
from tests.support.http_app import Answer, app_of, ask, core_of, post, scope_of

JSON = ("content-type", "application/json")


def problems(answer: Answer) -> dict[str, str]:
    assert answer.status == answer.json["status"] == 400
    assert answer.headers["content-type"] == "application/problem+json"
    return {one["field"]: f"{one['message']}; {one['hint']}" for one in answer.json["errors"]}


def test_all_errors_are_told_at_once_with_what_would_be_right() -> None:
    found = problems(
        post(
            app_of(),
            "/v1/check",
            {
                "paht": "/x",
                "method": "",
                "ip": "1.2.3.4.5",
                "headers": {"a": 1, "": "x", "b": ["c", None]},
                "attributes": {"x": True},
                "cost": {"r": -1, "s": 1.5},
                "peek": "yes",
                "host": 7,
            },
        )
    )
    assert found["paht"] == "no such field; did you mean 'path'?"
    assert found["path"].startswith("it is missing")
    assert "1.2.3.4.5" in found["ip"]
    assert set(found) == {
        "paht",
        "path",
        "method",
        "ip",
        "headers.a",
        "headers",
        "headers.b",
        "attributes.x",
        "cost.r",
        "cost.s",
        "peek",
        "host",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "login"),
        ("path", ""),
        ("path", None),
        ("method", "G" * 65),
        ("method", 5),
        ("headers", "a: b"),
        ("headers", [["a"]]),
        ("headers", [["a", "b", "c"]]),
        ("headers", [["a", 1]]),
        ("ip", "localhost"),
        ("ip", 5),
        ("attributes", []),
        ("cost", True),
        ("cost", -1),
        ("cost", 1.0),
        ("cost", 10**19),
        ("cost", "1"),
        ("cost", None),
        ("peek", 1),
        ("ttl", 5),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object) -> None:
    found = problems(post(app_of(), "/v1/check", {"path": "/api/a", field: value}))
    assert [name.partition("[")[0] for name in found] == [field]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "line 1"),
        (b"{", "line 1"),
        (b"[]", "found a list"),
        (b"null", "found null"),
        (b'{"path": "/a", "path": "/b"}', "'path' occurs twice"),
        (b'{"headers": {"a": "1", "a": "2"}}', "'a' occurs twice"),
        (b'{"cost": NaN}', "NaN"),
        (b'{"cost": -Infinity}', "Infinity"),
        (b'{"cost": ' + b"9" * 5000 + b"}", "too many digits"),
        (b"[" * 60_000, "too deep"),
        (b'{"a":' * 12_000, "too deep"),
        (b'{"path": "\xff"}', "UTF-8"),
        (b'\xef\xbb\xbf{"path": "/"}', "line 1"),
        (b'{"path": "/a"} x', "column 16"),
    ],
)
def test_what_is_not_plain_json_is_refused(body: bytes, why: str) -> None:
    answer = post(app_of(), "/v1/check", body)
    assert answer.status == 400
    assert why in answer.json["detail"]
    assert len(answer.body) < 400


def test_a_huge_number_is_an_error_of_its_field() -> None:
    found = problems(post(app_of(), "/v1/check", b'{"path": "/", "cost": 1%s}' % (b"0" * 400)))
    assert found["cost"].startswith("found a number far too large")


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
def test_only_json_is_taken(kind: str) -> None:
    headers = [("content-type", kind)] if kind else []
    answer = ask(app_of(), "POST", "/v1/check", headers, b'{"path": "/"}')
    assert answer.status == 415
    assert answer.headers["accept"] == "application/json"


def test_a_large_body_is_refused_announced_or_not() -> None:
    app = HttpApp(core_of(), options=HttpOptions(largest_body=100))
    told = ask(app, "POST", "/v1/check", [JSON, ("content-length", "101")])
    untold = ask(app, "POST", "/v1/check", [JSON], b" " * 60, b" " * 60, b" " * 60)
    digits = ask(app, "POST", "/v1/check", [JSON, ("content-length", "9" * 30)])
    assert told.status == untold.status == digits.status == 413


def test_a_value_that_is_none_is_told_where() -> None:
    for body in (b'{"path": x}', b'{"path":}', b'{"headers": [x]}'):
        answer = ask(app_of(), "POST", "/v1/check", [JSON], body)
        assert answer.status == 400
        assert "Expecting value" in answer.json["detail"]


def test_of_very_many_errors_the_first_are_told() -> None:
    many = {f"f{number}": 0 for number in range(3_000)}
    answer = post(app_of(), "/v1/check", {"path": "/", **many})
    assert answer.json["detail"] == "the body has 3000 errors; these are the first 20"
    assert len(answer.json["errors"]) == 20


def test_one_name_twice_among_very_many_is_found_at_once() -> None:
    # As quick as reading it: 200,000 names would take minutes if each was looked for in all.
    names = ",".join(f'"{number:x}":0' for number in range(200_000))
    with pytest.raises(RejectedError):
        document_of(f'{{{names},"30d3f":0}}'.encode())


def test_no_more_of_a_large_body_is_read_than_shows_that_it_is() -> None:
    app = HttpApp(core_of(), options=HttpOptions(largest_body=100))
    sent: list[Any] = []
    pieces = [b" " * 60] * 2

    async def receive() -> Any:
        return {"type": "http.request", "body": pieces.pop(), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope_of("POST", "/v1/check", [JSON]), receive, send))
    assert sent[0]["status"] == 413


def test_a_body_that_comes_late_is_read() -> None:
    app = app_of()

    async def main() -> int:
        sent: list[dict[str, Any]] = []
        pieces = [b'{"path": ', b'"/api/a"}']

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope_of("POST", "/v1/check", [JSON]), receive, send)
        status: int = sent[0]["status"]
        return status

    assert asyncio.run(main()) == 200


@pytest.mark.parametrize("first", [[], [{"type": "http.request", "body": b"{", "more_body": True}]])
def test_nobody_is_answered_who_is_gone(first: list[dict[str, Any]]) -> None:
    app = app_of()
    messages = [*first, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(_message: Any) -> None:
        raise AssertionError("there is nobody")

    asyncio.run(app(scope_of("POST", "/v1/check", [JSON]), receive, send))


def test_an_empty_secret_is_refused() -> None:
    core = core_of()
    core.secret = b""
    with pytest.raises(OptionError, match="secret"):
        HttpApp(core)
