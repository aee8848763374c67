"""Everything else that has a path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.observability import METRICS
from headgate.service.http import HttpApp
from tests.support.http_app import FakeStore, app_of, ask, check, core_of, post, scope_of

STANDING = """
version: 1
identity:
  ip: {trusted_proxies: [10.0.0.0/8]}
rules:
  - {id: per-ip, match: {endpoint: "/api/**"}, key_by: ip, limit: "3/minute; 10/hour"}
  - {id: by-endpoint, key_by: [ip, endpoint], limit: 9/minute}
  - {id: hidden, key_by: ip, limit: 9/minute, headers: "off"}
  - {id: watched, key_by: ip, limit: 9/minute, mode: shadow}
  - {id: for-paid, match: {tier: paid}, key_by: api_key, limit: 50/minute}
"""
CLIENT = "203.0.113.7"


def shown(answer: Any) -> dict[str, int | None]:
    assert answer.status == 200
    return {one["name"]: one.get("remaining") for one in answer.json["limits"]}


def test_a_caller_is_shown_every_limit_and_consumes_none() -> None:
    app = app_of(STANDING)
    check(app, ip=CLIENT)
    for _ in range(2):
        answer = ask(app, "GET", "/v1/rate_limit", [("x-forwarded-for", CLIENT)])
        assert shown(answer) == {"per-ip": 2, "per-ip/2": 9, "by-endpoint": None}
    assert answer.headers["cache-control"] == "no-store"
    first = answer.json["limits"][0]
    assert first["quota"] == 3
    assert first["window"] == 60
    assert first["endpoints"] == ["/api/**"]


def test_the_caller_may_be_described() -> None:
    app = app_of(STANDING)
    check(app, ip=CLIENT)
    body = {"ip": CLIENT, "headers": {"x-tier": "paid", "x-api-key": "k"}}
    assert shown(post(app, "/v1/rate_limit", body)) == {
        "per-ip": 2,
        "per-ip/2": 9,
        "by-endpoint": None,
        "for-paid": 50,
    }
    assert post(app, "/v1/rate_limit", {"cost": 1}).status == 400


def test_only_a_gateway_speaks_for_others_when_it_asks_how_they_stand() -> None:
    app = app_of(STANDING)
    check(app, ip=CLIENT)
    trail = [("x-forwarded-for", CLIENT)]
    assert shown(ask(app, "GET", "/v1/rate_limit", trail, peer="198.51.100.1"))["per-ip"] == 3
    assert shown(ask(app, "GET", "/v1/rate_limit", trail, peer="10.0.0.1"))["per-ip"] == 2
    assert shown(ask(app, "GET", "/v1/rate_limit", peer=CLIENT))["per-ip"] == 2


def test_limits_are_shown_without_figures_when_the_store_is_gone() -> None:
    store = FakeStore()
    app = app_of(STANDING, store=store)
    store.is_gone = True
    assert shown(ask(app, "GET", "/v1/rate_limit"))["per-ip"] is None


def test_alive_and_ready_are_two_things() -> None:
    reasons: tuple[str, ...] = ("the store does not answer", "no rules yet")
    app = app_of(not_ready=lambda: reasons)
    assert ask(app, "GET", "/healthz").json == {"status": "alive"}
    answer = ask(app, "GET", "/readyz")
    assert (answer.status, answer.json["reasons"]) == (503, list(reasons))
    reasons = ()
    answer = ask(app, "GET", "/readyz")
    assert (answer.status, answer.json) == (200, {"status": "ready"})


def test_trouble_is_told_of_a_service_that_is_ready() -> None:
    answer = ask(app_of(trouble=lambda: ("the store is gone",)), "GET", "/readyz")
    assert (answer.status, answer.json["reasons"]) == (200, ["the store is gone"])


def test_the_index_is_a_list_for_who_does_not_ask_for_a_page() -> None:
    answer = ask(app_of(), "GET", "/")
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"/v1/check" in answer.body


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/openapi.json", "/v1/rate_limit"])
def test_head_has_the_headers_of_get_and_no_body(path: str) -> None:
    head, get = (ask(app_of(), method, path) for method in ("HEAD", "GET"))
    assert head.status == 200
    assert head.body == b""
    assert head.headers == get.headers


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/check", "POST"),
        ("OPTIONS", "/v1/check", "POST"),
        ("PUT", "/v1/rate_limit", "GET, HEAD, POST"),
        ("GET", "/v1/reservations", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str) -> None:
    answer = ask(app_of(), method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == allowed
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path",
    ["/metric", "/v1", "/v1/check/", "/v1//check", "/V1/check", "/v1/%63heck", "/json", "/admin"],
)
def test_an_unknown_path_is_a_problem(path: str) -> None:
    answer = ask(app_of(), "POST", path)
    assert answer.status == answer.json["status"] == 404


def test_what_was_counted_is_told_as_prometheus_reads_it() -> None:
    METRICS.counter("tests_of_metrics", "How often this was tested.", rule='a"b').add(2)
    answer = ask(app_of(), "GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    assert "# TYPE headgate_tests_of_metrics_total counter\n" in text
    assert 'headgate_tests_of_metrics_total{rule="a\\"b"} 2\n' in text


def test_other_apps_have_all_below_their_prefix() -> None:
    async def other(scope: Any, _receive: Any, send: Any) -> None:
        body = scope["path"].encode()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    app = HttpApp(core_of(), others={"/admin": other, "/ui/": other})
    assert ask(app, "PUT", "/admin/v1/rules/a").body == b"/admin/v1/rules/a"
    assert ask(app, "GET", "/admin").body == b"/admin"
    assert ask(app, "GET", "/ui/x").body == b"/ui/x"
    assert ask(app, "GET", "/administrator").status == 404


def test_the_json_of_envoys_service_goes_to_whoever_has_it() -> None:
    async def rls(body: bytes) -> tuple[int, bytes]:
        return 429, body[::-1]

    app = HttpApp(core_of(), json=rls)
    kind = [("content-type", "application/x-www-form-urlencoded")]  # of a plain `curl -d`
    answer = ask(app, "POST", "/json", kind, b"}{")
    assert (answer.status, answer.body) == (429, b"{}")
    assert ask(app, "GET", "/json").headers["allow"] == "POST"
    assert "/json" in ask(app, "GET", "/openapi.json").json["paths"]


def test_it_starts_and_stops_with_the_server() -> None:
    app = app_of()
    heard = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return heard.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert [one["type"] for one in sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]


def test_a_websocket_is_turned_away() -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {**scope_of("GET", "/v1/authorize/x"), "type": "websocket"}
    asyncio.run(app_of()(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_other_protocols_are_not_for_it() -> None:
    with pytest.raises(RuntimeError, match="rpc"):
        asyncio.run(app_of()({"type": "rpc"}, None, None))  # type: ignore[arg-type]
