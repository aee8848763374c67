"""Requests that the app behind a gateway may read differently, at the service."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.http_app import app_of, ask

POLICY = """
version: 1
rules:
  - {id: by-user, match: {endpoint: /u}, key_by: user_id, limit: 2/day}
  - {id: by-session, match: {endpoint: /s}, key_by: "cookie:sid", limit: 2/day}
  - {id: tokens, match: {endpoint: /t}, key_by: user_id, limit: 10/day}
"""
USERS = [("x-user-id", "own"), ("x-user-id", "r{n}")]
BOTH = [USERS, USERS[::-1], [("x-user-id", "own,r{n}")]]
COOKIES = ["sid=own; sid=r{n}", "sid=r{n}; sid=own", "sid=own,r{n}", "SID=r{n}; sid=own"]


def numbered(lines: list[tuple[str, str]], n: int) -> list[tuple[str, str]]:
    return [(name, value.format(n=n)) for name, value in lines]


@pytest.mark.parametrize("lines", [*BOTH, *([("cookie", cookies)] for cookies in COOKIES)])
def test_forward_auth_limits_every_reading(lines: list[tuple[str, str]]) -> None:
    app = app_of(POLICY)
    path = "/v1/authorize/s" if lines[0][0] == "cookie" else "/v1/authorize/u"
    found = [ask(app, "GET", path, numbered(lines, n)).status for n in range(4)]
    assert found == [200, 200, 429, 429]


@pytest.mark.parametrize("lines", [*BOTH, *([("cookie", cookies)] for cookies in COOKIES)])
def test_a_check_limits_every_reading(lines: list[tuple[str, str]]) -> None:
    app = app_of(POLICY)
    path = "/s" if lines[0][0] == "cookie" else "/u"
    found = []
    for n in range(4):
        body = json.dumps({"path": path, "headers": numbered(lines, n)}).encode()
        reply = ask(app, "POST", "/v1/check", [("content-type", "application/json")], body)
        found.append(reply.status)
    assert found == [200, 200, 429, 429]


def _post(app: Any, path: str, body: dict[str, Any]) -> Any:
    data = json.dumps(body).encode()
    return ask(app, "POST", path, [("content-type", "application/json")], data)


def test_a_reservation_is_settled_under_every_reading() -> None:
    app = app_of(POLICY)
    both = [["x-user-id", "a"], ["x-user-id", "b"]]
    held = _post(app, "/v1/reservations", {"path": "/t", "headers": both, "cost": 6})
    assert held.status == 201
    for user in "ab":
        one = {"path": "/t", "headers": {"x-user-id": user}, "cost": 5}
        assert _post(app, "/v1/check", one).status == 429
    done = _post(app, f"/v1/reservations/{held.json['id']}/commit", {"cost": 1})
    assert done.status == 200
    for user in "ab":
        one = {"path": "/t", "headers": {"x-user-id": user}, "cost": 9}
        assert _post(app, "/v1/check", one).status == 200
        assert _post(app, "/v1/check", {**one, "cost": 1}).status == 429
