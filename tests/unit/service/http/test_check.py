"""POST /v1/check: a request described in JSON."""

from __future__ import annotations

import json

import pytest

from headgate.responses import ResponseOptions
from headgate.service.http import HttpApp, HttpOptions
from tests.support.http_app import START, FakeStore, app_of, ask, check, core_of, post

TIGHT = """
version: 1
rules:
  - {id: wide, match: {endpoint: "/**"}, key_by: global, limit: 100/minute}
  - {id: narrow, match: {endpoint: "/**"}, key_by: ip, limit: 2/minute}
  - {id: watched, match: {endpoint: "/**"}, key_by: ip, limit: 1/minute, mode: shadow}
"""


def test_an_admitted_request_is_told_its_figures_in_headers_and_json() -> None:
    answer = check(app_of())
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-ratelimit-remaining"] == "2"
    assert answer.headers["x-ratelimit-reset"] == str(int(START) + 20)
    assert answer.headers["ratelimit"] == '"per-ip";r=2;t=20'
    assert answer.headers["ratelimit-policy"] == '"per-ip";q=3;w=60'
    assert "retry-after" not in answer.headers
    assert answer.json == {
        "allowed": True,
        "limit": "per-ip",
        "quota": 3,
        "remaining": 2,
        "retry_after": 0,
        "retry_after_ms": 0,
        "reset_after": 20.0,
        "source": "store",
        "revision": 0,
        "rules": [
            {
                "id": "per-ip",
                "mode": "enforce",
                "limit": "3/m",
                "quota": 3,
                "cost": 1,
                "allowed": True,
                "remaining": 2,
                "retry_after_ms": 0,
                "reset_after": 20.0,
                "source": "store",
            }
        ],
    }


def test_a_refusal_has_the_body_for_clients_and_the_decision() -> None:
    app = app_of()
    for _ in range(3):
        check(app)
    answer = check(app)
    assert answer.status == 429
    assert answer.headers["retry-after"] == "20"
    assert answer.headers["cache-control"] == "no-store"
    found = answer.json
    assert found["error"] == "rate_limit_exceeded"
    assert found["limit"] == "per-ip"
    assert (found["retry_after"], found["retry_after_ms"]) == (20, 20_000)
    assert found["allowed"] is False
    assert found["remaining"] == 0
    assert found["rules"][0]["allowed"] is False
    assert check(app, ip="203.0.113.8").status == 200


def test_a_refusal_is_a_problem_for_those_who_ask_for_one() -> None:
    app = app_of()
    body = {"path": "/api/a", "cost": 4}
    answer = post(app, "/v1/check", body, ("accept", "application/problem+json"))
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == 429
    assert answer.json["violated-policies"] == ["per-ip"]
    assert answer.json["allowed"] is False
    assert answer.json["retry_after"] is None  # it can never fit
    assert "retry-after" not in answer.headers


def test_the_tightest_rule_speaks_and_shadows_only_tell() -> None:
    app = app_of(TIGHT)
    assert check(app).json["limit"] == "narrow"
    answer = check(app)
    assert answer.status == 200
    assert [(one["id"], one["allowed"]) for one in answer.json["rules"]] == [
        ("wide", True),
        ("narrow", True),
        ("watched", False),
    ]
    assert "watched" not in answer.headers["ratelimit-policy"]
    assert check(app).status == 429


def test_a_request_that_no_rule_is_for_is_admitted_without_figures() -> None:
    answer = check(app_of(), "/elsewhere")
    assert answer.status == 200
    assert answer.json["limit"] is answer.json["remaining"] is answer.json["source"] is None
    assert not [name for name in answer.headers if "ratelimit" in name]


def test_costs_are_for_all_rules_or_by_rule() -> None:
    app = app_of(TIGHT)
    assert check(app, cost=2).json["remaining"] == 0
    again = check(app_of(TIGHT), cost={"narrow": 2}).json
    assert {one["id"]: one["cost"] for one in again["rules"]} == {
        "wide": 1,
        "narrow": 2,
        "watched": 1,
    }


def test_a_peek_consumes_nothing() -> None:
    app = app_of()
    for _ in range(5):
        assert check(app, peek=True).json["remaining"] == 3
    assert check(app, peek=True, cost=4).status == 429


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.9, 10.1.1.1"},
        {"x-forwarded-for": ["203.0.113.9", "10.1.1.1"]},
        [["X-Forwarded-For", "203.0.113.9"], ["x-forwarded-for", "10.1.1.1"]],
    ],
)
def test_headers_come_as_an_object_or_as_pairs(headers: object) -> None:
    app = app_of()
    check(app, ip="203.0.113.9", cost=3)
    assert check(app, ip="10.0.0.1", headers=headers).status == 429
    assert check(app, ip="198.51.100.1", headers=headers).status == 200  # not a trusted proxy


def test_the_host_is_its_own_field_or_the_header() -> None:
    app = app_of(
        "version: 1\nrules: [{id: a, match: {host: a.example}, key_by: global, limit: 9/s}]"
    )
    assert check(app, host="a.example").json["limit"] == "a"
    assert check(app, headers={"Host": "a.example:80"}).json["limit"] == "a"
    assert check(app, headers={"Host": "a.example"}, host="b.example").json["limit"] is None


def test_attributes_are_for_rules_to_look_at() -> None:
    app = app_of(
        "version: 1\nrules: [{id: a, match: {attributes: {plan: x}}, "
        "key_by: attribute:user, limit: 1/m}]"
    )
    assert check(app, attributes={"plan": "x", "user": "u1"}).json["limit"] == "a"
    assert check(app, attributes={"plan": "x", "user": "u1"}).status == 429
    assert check(app, attributes={"plan": "y", "user": "u1"}).json["limit"] is None


@pytest.mark.parametrize("path", ["/api/a?x=1", "/api/%61", "//api//a", "/API/a/"])
def test_spellings_of_a_path_do_not_escape(path: str) -> None:
    assert check(app_of(), path).json["limit"] == "per-ip"


def test_an_outage_is_503_under_a_rule_that_fails_closed_and_told_under_one_that_does_not() -> None:
    rule = "{id: a, key_by: ip, limit: 3/m, on_store_failure: %s}"
    store = FakeStore()
    store.is_gone = True
    closed, opened = (
        app_of(f"version: 1\nrules: [{rule % how}]", store=store)
        for how in ("fail_closed", "fail_open")
    )
    answer = check(closed)
    assert (answer.status, answer.json["error"]) == (503, "temporarily_unavailable")
    assert answer.json["source"] == "fail_closed"
    assert "retry-after" in answer.headers
    answer = check(opened)
    assert (answer.status, answer.json["source"]) == (200, "fail_open")
    assert "ratelimit" not in answer.headers


def test_a_brief_rule_is_named_in_what_is_for_clients_without_its_figures() -> None:
    app = app_of("version: 1\nrules: [{id: terse, key_by: ip, limit: 1/m, headers: brief}]")
    check(app)
    denied = check(app)
    assert denied.headers["retry-after"] == "60"
    assert not [name for name in denied.headers if "ratelimit" in name]
    told = denied.json
    assert (told["limit"], told["retry_after"], told["retry_after_ms"]) == ("terse", 60, 60_000)
    assert (told["quota"], told["remaining"], told["rules"]) == (None, None, [])


@pytest.mark.parametrize("mode", ["off", "redacted"])
def test_hidden_rules_are_not_named_in_what_is_for_clients(mode: str) -> None:
    app = app_of(
        f"version: 1\nrules: [{{id: hush, key_by: ip, limit: 1/m, headers: {mode}}},"
        " {id: open, key_by: ip, limit: 9/m}]"
    )
    first, second = check(app), check(app)
    assert first.headers["x-ratelimit-limit"] == "9"
    assert ("retry-after" in second.headers) == (mode == "off")
    assert b"hush" not in second.body
    told = second.json
    assert [one["id"] for one in told.pop("rules")] == ["open"]
    assert told == {
        "allowed": False,
        "limit": None,
        "quota": None,
        "remaining": None,
        "retry_after": None,
        "retry_after_ms": None,
        "reset_after": 0.0,
        "source": "store",
        "revision": 0,
        "error": "rate_limit_exceeded",
        "message": "Too many requests. Try again later.",
    }


def test_all_headers_of_the_options_are_sent() -> None:
    app = app_of(answers=ResponseOptions(draft03=True, bucket=True))
    names = set(check(app).headers)
    assert {"ratelimit-limit", "x-ratelimit-bucket", "x-ratelimit-limit"} <= names


def test_a_body_in_pieces_is_one_body() -> None:
    body = json.dumps({"path": "/api/a"}).encode()
    answer = ask(
        app_of(),
        "POST",
        "/v1/check",
        [("content-type", "application/json; charset=utf-8")],
        body[:5],
        b"",
        body[5:],
    )
    assert answer.status == 200


def test_a_decision_that_takes_too_long_is_503() -> None:
    store = FakeStore()
    store.is_stuck = True
    app = HttpApp(core_of(store=store), options=HttpOptions(deadline=0.01))
    answer = check(app)
    assert answer.status == answer.json["status"] == 503
    assert answer.headers["retry-after"] == "1"


def test_a_store_that_does_not_wait_is_asked_at_once() -> None:
    app = app_of(store="memory://")
    assert [check(app).status for _ in range(4)] == [200, 200, 200, 429]


def test_a_blocked_counter_is_refused_and_one_with_more_has_more() -> None:
    app = app_of(
        """
        version: 1
        rules:
          - {id: per-ip, key_by: ip, limit: 3/minute}
        overrides:
          - {rule: per-ip, key: "ip=203.0.113.7", block: true, until: "2030-01-01T00:00:00Z"}
          - {rule: per-ip, key: "ip=203.0.113.8", extra: 7, until: "2030-01-01T00:00:00Z"}
        """
    )
    blocked = check(app, ip="203.0.113.7")
    assert (blocked.status, blocked.json["source"]) == (429, "override")
    assert "retry-after" in blocked.headers
    assert check(app, ip="203.0.113.8").headers["x-ratelimit-limit"] == "10"
    assert check(app, ip="203.0.113.9").headers["x-ratelimit-limit"] == "3"
    body = {"path": "/", "ip": "203.0.113.7", "cost": 1}
    assert post(app, "/v1/reservations", body).status == 429
    held = post(app, "/v1/reservations", {**body, "ip": "203.0.113.8"}).json
    assert post(app, f"/v1/reservations/{held['id']}/commit", {}).status == 200
    left = post(app, "/v1/rate_limit", {"ip": "203.0.113.8"}).json["limits"][0]
    assert (left["quota"], left["remaining"]) == (10, 8)
