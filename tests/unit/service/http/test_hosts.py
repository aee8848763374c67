"""The `Host` of requests to the API: names that a web page could have are not accepted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.config import Address
from headgate.config.service import Settings
from headgate.service.container import http_options
from headgate.service.http import HttpApp
from tests.support.http_app import Answer, answer_of, core_of, scope_of

LOOPBACK = Address("127.0.0.1", 8090)
NETWORK = Address("10.0.0.5", 8090)
ANYWHERE = Address("0.0.0.0", 8090)  # noqa: S104 (nothing listens)


def settings(*http: Address, **more: Any) -> Settings:
    return Settings(rules="rules.yaml", http=http or (LOOPBACK,), **more)


def answer(
    found: Settings,
    host: str | None,
    *,
    server: tuple[str, int] | None = ("127.0.0.1", 8090),
    path: str = "/healthz",
    scheme: str = "http",
) -> Answer:
    app = HttpApp(core_of(), options=http_options(found))
    headers = [] if host is None else [("host", host)]
    scope = {**scope_of("GET", path, headers), "server": server, "scheme": scheme}
    return asyncio.run(answer_of(app, scope))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8090",
        "localhost.",
        "app.localhost:8090",
        "127.0.0.1:8090",
        "127.8.8.8",
        "[::1]:8090",
        "10.1.2.3",
        "host.docker.internal:8090",
        "",
        None,
    ],
)
def test_on_loopback_the_own_names_and_addresses_are_accepted(host: str | None) -> None:
    assert answer(settings(), host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8090",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "xn--localhost",
        "host.docker.internal.evil.example",
        "a, localhost",
        "\xff",
    ],
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/check", "/v1/rate_limit", "/json", "/nope"])
def test_on_loopback_other_names_are_403(host: str, path: str) -> None:
    found = answer(settings(), host, path=path)
    assert found.status == 403
    assert found.headers["content-type"] == "application/problem+json"
    assert "add it to the setting allowed_hosts" in found.json["detail"]


def test_every_line_of_host_is_checked() -> None:
    app = HttpApp(core_of(), options=http_options(settings()))
    for hosts in (("localhost", "evil.example"), ("evil.example", "localhost")):
        scope = scope_of("GET", "/healthz", [("host", host) for host in hosts])
        assert asyncio.run(answer_of(app, {**scope, "server": ("127.0.0.1", 1)})).status == 403


def test_the_host_of_a_request_that_a_gateway_asks_about_is_its_own() -> None:
    found = answer(settings(), "shop.example", path="/v1/authorize/basket")
    assert found.status == 200


@pytest.mark.parametrize(
    ("http", "server"),
    [
        ([ANYWHERE], ("127.0.0.1", 8090)),
        ([LOOPBACK, NETWORK], ("10.0.0.5", 8090)),
        ([LOOPBACK, Address(path="/run/h.sock")], None),
    ],
)
def test_listeners_that_are_not_on_loopback_accept_any_name(
    http: list[Address], server: tuple[str, int] | None
) -> None:
    assert answer(settings(*http), "headgate", server=server).status == 200


@pytest.mark.parametrize(
    ("http", "server"),
    [
        ([Address("localhost", 8090)], ("127.0.0.1", 8090)),
        ([Address("localhost", 8090)], ("::1", 8090)),
        ([Address("::1", 8090)], ("::1", 8090)),
        ([LOOPBACK, NETWORK], ("127.0.0.1", 8090)),
    ],
)
def test_every_listener_on_loopback_is_checked(
    http: list[Address], server: tuple[str, int]
) -> None:
    assert answer(settings(*http), "evil.example", server=server).status == 403


@pytest.mark.parametrize("http", [LOOPBACK, ANYWHERE])
def test_names_that_are_allowed_are_accepted_and_then_checked_everywhere(http: Address) -> None:
    server = "10.0.0.5" if http is ANYWHERE else http.host, 8090
    found = settings(http, allowed_hosts=("limits.example", "*.shop.example"))
    for host in ("limits.example:8090", "a.shop.example", "A.B.SHOP.EXAMPLE.", "localhost"):
        assert answer(found, host, server=server).status == 200
    for host in ("other.example", "shop.example", "x.limits.example"):
        assert answer(found, host, server=server).status == 403


def test_a_star_allows_any_name() -> None:
    assert answer(settings(allowed_hosts=("*",)), "evil.example").status == 200


def test_over_tls_the_certificate_names_the_host() -> None:
    assert answer(settings(), "limits.example", scheme="https").status == 200


def test_the_cache_of_hosts_is_bounded() -> None:
    app = HttpApp(core_of(), options=http_options(settings()))

    async def many() -> set[int]:
        found = set()
        for number in range(3_000):
            host = f"{number}.evil.example" + number % 2 * ("x" * 10_000)
            scope = scope_of("GET", "/healthz", [("host", host)])
            found.add((await answer_of(app, {**scope, "server": ("127.0.0.1", 1)})).status)
        return found

    assert asyncio.run(many()) == {403}
    assert len(app._hosts._known) <= 1_024
    assert max(map(len, app._hosts._known)) < 300
