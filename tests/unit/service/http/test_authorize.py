"""/v1/authorize: what gateways ask, as each of them says it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from headgate.service.http import HttpApp, HttpOptions
from tests.support.http_app import FakeStore, answer_of, app_of, ask, core_of, scope_of

if TYPE_CHECKING:
    from tests.support.http_app import Answer

CLIENT = "203.0.113.7"
SHOWING = """
version: 1
identity:
  ip: {trusted_proxies: [10.0.0.0/8]}
rules:
  - {id: login, match: {endpoint: /login, method: POST}, key_by: ip, limit: 1/minute}
  - {id: shop, match: {host: shop.example, endpoint: "/shop/**"}, key_by: ip, limit: 1/minute}
  - {id: all, match: {endpoint: "/api/**"}, key_by: [ip, endpoint, method], limit: 1/minute}
"""

# What real gateways send (recorded): Envoy 1.40 with use_remote_address, nginx 1.22 as in the
# documentation, Caddy 2.6, Traefik 3.
ENVOY = [
    ("host", "shop.example"),
    ("content-length", "0"),
    ("user-agent", "curl/7.88.1"),
    ("x-forwarded-for", CLIENT),
    ("x-forwarded-proto", "http"),
    ("x-request-id", "8618548c-1733-4703-bcb0-4670609bc2d4"),
    ("accept", "*/*"),
    ("x-envoy-external-address", CLIENT),
    ("x-envoy-internal", "true"),
    ("x-envoy-expected-rq-timeout-ms", "1000"),
]


def nginx(uri: str, method: str = "GET", **more: str) -> list[tuple[str, str]]:
    return [
        ("host", more.get("host", "shop.example")),
        ("x-original-uri", uri),
        ("x-original-method", method),
        ("x-real-ip", CLIENT),
        ("x-forwarded-for", CLIENT),
        ("connection", "close"),
        ("accept", "*/*"),
    ]


def caddy(uri: str, method: str = "GET", **more: str) -> list[tuple[str, str]]:
    return [
        ("host", more.get("host", "shop.example")),
        ("user-agent", "curl/7.88.1"),
        ("accept", "*/*"),
        ("x-forwarded-for", CLIENT),
        ("x-forwarded-host", more.get("host", "shop.example")),
        ("x-forwarded-method", method),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-uri", uri),
        ("accept-encoding", "gzip"),
    ]


def traefik(uri: str, method: str = "GET", **more: str) -> list[tuple[str, str]]:
    return [
        ("host", "headgate:8090"),
        ("user-agent", "curl/7.88.1"),
        ("x-forwarded-for", CLIENT),
        ("x-forwarded-host", more.get("host", "shop.example")),
        ("x-forwarded-method", method),
        ("x-forwarded-port", "80"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-server", "traefik"),
        ("x-forwarded-uri", uri),
        ("accept-encoding", "gzip"),
    ]


def limits(answer: Answer) -> str:
    return answer.headers.get("ratelimit-policy", "")


def replaced(headers: list[tuple[str, str]], name: str, *values: str) -> list[tuple[str, str]]:
    return [line for line in headers if line[0] != name] + [(name, value) for value in values]


def test_envoy_asks_with_the_path_behind_the_prefix() -> None:
    app = app_of(SHOWING)
    answer = ask(app, "POST", "/v1/authorize/shop/a", ENVOY, query=b"x=1")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["ratelimit"] == '"shop";r=0;t=60'
    assert answer.headers["x-ratelimit-remaining"] == "0"
    denied = ask(app, "GET", "/v1/authorize/shop/b", ENVOY)
    assert denied.status == 429
    assert denied.json["limit"] == "shop"
    assert denied.headers["retry-after"] == "60"


@pytest.mark.parametrize("says", [nginx, caddy, traefik])
def test_other_gateways_describe_the_request_in_headers(says: Any) -> None:
    app = app_of(SHOWING)
    assert limits(ask(app, "GET", "/v1/authorize", says("/shop/a?x=1"))) == '"shop";q=1;w=60'
    assert ask(app, "GET", "/v1/authorize", says("/shop/b")).status == 429
    elsewhere = says("/shop/b", host="other.example")
    assert ask(app, "GET", "/v1/authorize", elsewhere).status == 200
    assert limits(ask(app, "GET", "/v1/authorize", says("/login", "POST"))) == '"login";q=1;w=60'
    assert ask(app, "GET", "/v1/authorize", says("/login", "post")).status == 429
    assert limits(ask(app, "GET", "/v1/authorize", says("/login", "GET"))) == ""


def test_a_refusal_is_429_or_what_the_gateway_can_take() -> None:
    app = app_of(SHOWING)
    ask(app, "GET", "/v1/authorize", nginx("/shop/a"))
    plain = ask(app, "GET", "/v1/authorize", nginx("/shop/a"), query=b"deny=429")
    mapped = ask(app, "GET", "/v1/authorize", nginx("/shop/a"), query=b"deny=403")
    assert (plain.status, mapped.status) == (429, 403)
    assert mapped.headers == plain.headers
    assert mapped.body == plain.body
    assert ask(app, "GET", "/v1/authorize", nginx("/shop/a"), query=b"deny=200").status == 400
    ambiguous = ask(app, "GET", "/v1/authorize", nginx("/x"), query=b"deny=403&deny=429")
    assert ambiguous.status == 400


def test_the_query_of_a_client_does_not_choose_the_status() -> None:
    app = app_of(SHOWING)
    ask(app, "GET", "/v1/authorize/shop/a", ENVOY)
    assert ask(app, "GET", "/v1/authorize/shop/a", ENVOY, query=b"deny=403").status == 429


@pytest.mark.parametrize("says", [nginx, caddy, traefik])
def test_the_other_end_is_whom_the_gateway_saw_whatever_the_client_sent(says: Any) -> None:
    app = app_of(SHOWING)
    assert ask(app, "GET", "/v1/authorize", says("/shop/a")).status == 200
    for forged in ("6.6.6.6", "10.0.0.1", "127.0.0.1", "unknown", ""):
        headers = replaced(says("/shop/a"), "x-forwarded-for", f"{forged}, {CLIENT}")
        assert ask(app, "GET", "/v1/authorize", headers).status == 429
        headers = replaced(says("/shop/a"), "x-forwarded-for", forged, CLIENT)
        assert ask(app, "GET", "/v1/authorize", headers).status == 429


def test_the_policy_decides_how_far_the_trail_is_followed() -> None:
    app = app_of(SHOWING)
    behind = replaced(ENVOY, "x-forwarded-for", f"6.6.6.6, {CLIENT}, 10.1.2.3")
    assert ask(app, "GET", "/v1/authorize/shop/a", behind).status == 200
    assert ask(app, "GET", "/v1/authorize/shop/a", ENVOY).status == 429  # the same client


def test_without_a_trail_the_gateway_itself_is_the_client() -> None:
    app = app_of(SHOWING)
    headers = [line for line in ENVOY if line[0] != "x-forwarded-for"]
    assert ask(app, "GET", "/v1/authorize/shop/a", headers).status == 200
    assert ask(app, "GET", "/v1/authorize/shop/a", headers).status == 429
    assert ask(app, "GET", "/v1/authorize/shop/a", headers, peer="127.0.0.2").status == 200


def test_nginx_may_say_the_address_in_either_header_but_not_two() -> None:
    app = app_of(SHOWING)
    headers = nginx("/shop/a")
    alone = [line for line in headers if line[0] != "x-forwarded-for"]
    assert ask(app, "GET", "/v1/authorize", alone).status == 200
    trail = [line for line in headers if line[0] != "x-real-ip"]
    assert ask(app, "GET", "/v1/authorize", trail).status == 429
    forged = replaced(headers, "x-real-ip", "6.6.6.6")
    assert ask(app, "GET", "/v1/authorize", forged).status == 400
    forged = replaced(headers, "x-forwarded-for", "6.6.6.6")
    answer = ask(app, "GET", "/v1/authorize", forged)
    assert answer.status == 400
    assert "$proxy_add_x_forwarded_for" in answer.json["detail"]


def test_an_address_that_a_client_sends_through_caddy_does_not_count() -> None:
    app = app_of(SHOWING)
    ask(app, "GET", "/v1/authorize", caddy("/shop/a"))
    forged = [*caddy("/shop/a"), ("x-real-ip", "6.6.6.6")]
    assert ask(app, "GET", "/v1/authorize", forged).status == 429


@pytest.mark.parametrize(
    "headers",
    [
        [*nginx("/shop/a"), ("x-forwarded-uri", "/harmless")],
        [*nginx("/shop/a"), ("x-forwarded-method", "GET")],
        [*nginx("/shop/a"), ("x-original-uri", "/harmless")],
        [*caddy("/shop/a"), ("x-original-uri", "/harmless")],
        [*caddy("/shop/a"), ("x-original-method", "GET")],
        [*caddy("/shop/a"), ("x-forwarded-uri", "/harmless")],
        [*caddy("/shop/a"), ("x-forwarded-host", "harmless")],
        replaced(nginx("/shop/a"), "x-original-method"),
        replaced(nginx("/shop/a"), "x-original-method", ""),
        replaced(caddy("/shop/a"), "x-forwarded-method"),
        replaced(caddy("/shop/a"), "x-forwarded-uri"),
        replaced(caddy("/shop/a"), "x-forwarded-uri", "shop/a"),
        replaced(caddy("/shop/a"), "x-forwarded-uri", ""),
        replaced(nginx("/shop/a"), "x-original-uri", "http://shop.example/shop/a"),
        [("host", "shop.example")],
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(headers: list[tuple[str, str]]) -> None:
    answer = ask(app_of(SHOWING), "GET", "/v1/authorize", headers)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_client_behind_envoy_cannot_say_that_it_asks_for_something_else() -> None:
    forged = [*ENVOY, ("x-original-uri", "/x"), ("x-forwarded-uri", "/y"), ("x-real-ip", "6.6.6.6")]
    app = app_of(SHOWING)
    assert ask(app, "GET", "/v1/authorize/shop/a", ENVOY).status == 200
    assert ask(app, "GET", "/v1/authorize/shop/a", forged).status == 429


@pytest.mark.parametrize("says", [nginx, caddy, traefik])
def test_a_slash_too_many_in_the_configuration_is_noticed(says: Any) -> None:
    answer = ask(app_of(SHOWING), "GET", "/v1/authorize/", says("/login", "POST"))
    assert answer.status == 400
    assert "without a slash" in answer.json["detail"]


def test_only_gateways_are_answered() -> None:
    app = app_of(SHOWING)
    for path in ("/v1/authorize", "/v1/authorize/shop/a"):
        answer = ask(app, "GET", path, nginx("/shop/a"), peer=CLIENT)
        assert answer.status == 403
        assert CLIENT in answer.json["detail"]
    narrow = HttpApp(core_of(SHOWING), options=HttpOptions(gateways=("192.0.2.0/24",)))
    assert ask(narrow, "GET", "/v1/authorize/shop/a", ENVOY, peer="192.0.2.9").status == 200
    assert ask(narrow, "GET", "/v1/authorize/shop/a", ENVOY, peer="::ffff:192.0.2.9").status == 429
    for peer in ("127.0.0.1", None, "nonsense"):
        assert ask(narrow, "GET", "/v1/authorize/shop/a", ENVOY, peer=peer).status == 403


def test_a_unix_socket_is_a_gateway_unless_said_otherwise() -> None:
    assert ask(app_of(SHOWING), "GET", "/v1/authorize/shop/a", ENVOY, peer=None).status == 200


@pytest.mark.parametrize(
    "path",
    [
        b"/login",
        b"//login",
        b"/login/",
        b"/%6cogin",
        b"/a/../login",
        b"/LOGIN",
        b"/login;x",
        b"/a%2f..%2flogin",
        b"/login%00x",
        b"/\xff/../login",
        b"/./login?x",
    ],
)
def test_the_path_is_checked_as_it_came(path: bytes) -> None:
    app = app_of(SHOWING)
    ask(app, "POST", "/v1/authorize/login", ENVOY)
    assert ask(app, "POST", b"/v1/authorize" + path, ENVOY).status == 429
    uri = path.decode("latin-1")
    assert ask(app, "GET", "/v1/authorize", nginx(uri, "POST")).status == 429


def test_head_and_options_are_checked_as_requests() -> None:
    app = app_of(SHOWING)
    assert ask(app, "HEAD", "/v1/authorize/api/a", ENVOY).status == 200
    refused = ask(app, "HEAD", "/v1/authorize/api/a", ENVOY)
    assert (refused.status, refused.body) == (429, b"")
    assert ask(app, "OPTIONS", "/v1/authorize/api/a", ENVOY).status == 200
    assert ask(app, "OPTIONS", "/v1/authorize/api/a", ENVOY).status == 429
    assert ask(app, "OPTIONS", "/v1/authorize*", ENVOY).status == 200


def test_a_gateways_own_status_for_an_outage_is_503_never_403() -> None:
    store = FakeStore()
    app = app_of(
        "version: 1\nrules: [{id: a, key_by: ip, limit: 1/m, on_store_failure: fail_closed}]",
        store=store,
    )
    store.is_gone = True
    assert ask(app, "GET", "/v1/authorize/x", ENVOY).status == 503
    assert ask(app, "GET", "/v1/authorize", nginx("/x"), query=b"deny=403").status == 503


def test_what_is_too_long_is_refused() -> None:
    app = HttpApp(core_of(), options=HttpOptions(most_headers=20))
    assert ask(app, "GET", "/v1/authorize/" + "x" * 8_192, ENVOY).status == 414
    assert ask(app, "GET", "/v1/authorize/x", [("a", "b")] * 21).status == 431


def test_other_paths_that_begin_alike_are_not_it() -> None:
    assert ask(app_of(), "GET", "/v1/authorizex", ENVOY).status == 404


def test_a_server_without_raw_paths_is_understood() -> None:
    scope = scope_of("POST", "/v1/authorize/login", ENVOY)
    del scope["raw_path"]
    answer = asyncio.run(answer_of(app_of(SHOWING), scope))
    assert limits(answer) == '"login";q=1;w=60'


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    app = app_of(SHOWING)
    assert ask(app, "GET", b"/v1/authorize/api/\xff", ENVOY).status == 200
    assert ask(app, "GET", b"/v1/authorize/api/\xfe", ENVOY).status == 200
    assert ask(app, "GET", b"/v1/authorize/api/%FF", ENVOY).status == 429
