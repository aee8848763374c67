"""Who is asking: the peer, or the client behind proxies that are believed."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.integrations import RequestLimiter, by_address
from headgate.integrations.asgi import AsgiRequest, RateLimitMiddleware
from headgate.policy.loader import read_policy
from tests.support.asgi_connection import Answering, http, statuses

PROXY = ("10.0.0.1", 1)


def forwarded(*values: bytes, client: object = PROXY, name: bytes = b"x-forwarded-for") -> Any:
    return http(headers=[(name, value) for value in values], client=client)


def behind_proxies(**options: Any) -> RateLimitMiddleware:
    return RateLimitMiddleware(Answering(), trusted_proxies=["10.0.0.0/8"], **options)


def key_of(scope: Any, **options: Any) -> str:
    return RequestLimiter(**options).address(AsgiRequest(scope))


def test_a_forwarded_header_from_anyone_is_ignored() -> None:
    app = RateLimitMiddleware(Answering(), limits="2/hour")
    spoofed = [forwarded(b"198.51.100.%d" % n, client=("203.0.113.7", 1)) for n in range(3)]

    assert statuses(app, *spoofed) == [200, 200, 429]


def test_a_forwarded_header_from_a_peer_that_is_no_trusted_proxy_is_ignored() -> None:
    app = behind_proxies(limits="2/hour")
    spoofed = [forwarded(b"198.51.100.%d" % n, client=("203.0.113.7", 1)) for n in range(3)]

    assert statuses(app, *spoofed) == [200, 200, 429]


def test_clients_behind_a_trusted_proxy_are_distinguished() -> None:
    app = behind_proxies(limits="1/hour")
    first, second = forwarded(b"198.51.100.1"), forwarded(b"198.51.100.2")

    assert statuses(app, first, second, first, second) == [200, 200, 429, 429]


def test_what_a_client_writes_left_of_its_own_address_changes_nothing() -> None:
    app = behind_proxies(limits="2/hour")
    spoofed = [forwarded(b"6.6.6.%d, 198.51.100.1, 10.9.9.9" % n) for n in range(3)]

    assert statuses(app, *spoofed) == [200, 200, 429]


def test_several_header_lines_are_one_list() -> None:
    options = {"trusted_proxies": ["10.0.0.0/8"]}

    assert key_of(forwarded(b"6.6.6.6", b"198.51.100.1"), **options) == "198.51.100.1"


@pytest.mark.parametrize("name", [b"x_forwarded_for", b"x-real-ip", b"forwarded"])
def test_other_headers_are_not_believed(name: bytes) -> None:
    options = {"trusted_proxies": ["10.0.0.0/8"]}

    assert key_of(forwarded(b"198.51.100.1", name=name), **options) == "10.0.0.1"


def test_another_header_is_believed_if_that_is_chosen() -> None:
    key = by_address(trusted_proxies=["10.0.0.0/8"], header="CF-Connecting-IP")
    scope = forwarded(b"198.51.100.1", name=b"cf-connecting-ip")

    assert key(AsgiRequest(scope)) == "198.51.100.1"


@pytest.mark.parametrize("client", [None, ("", 0), ("", None), []])
def test_a_peer_on_a_unix_socket_is_this_machine(client: object) -> None:
    assert AsgiRequest(http(client=client)).peer == "127.0.0.1"
    assert key_of(http(client=client)) == "127.0.0.1"
    app = RateLimitMiddleware(Answering(), limits="1/hour")
    assert statuses(app, http(client=client), http(client=client)) == [200, 429]


def test_a_proxy_on_a_unix_socket_is_trusted_by_the_address_of_this_machine() -> None:
    scope = forwarded(b"198.51.100.1", client=None)

    assert key_of(scope, trusted_proxies=["127.0.0.1"]) == "198.51.100.1"
    assert key_of(scope) == "127.0.0.1"


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.8", False),
        ("2001:DB8::1", "2001:db8:0:0::1", True),
        ("fe80::1%eth0", "fe80::1", True),
    ],
)
def test_spellings_and_networks_of_ipv6(one: str, other: str, are_one: bool) -> None:
    app = RateLimitMiddleware(Answering(), limits="1/hour")

    expected = [200, 429 if are_one else 200]
    assert statuses(app, http(client=(one, 1)), http(client=(other, 1))) == expected


def test_a_policy_says_itself_whom_it_believes() -> None:
    policy = read_policy(
        "version: 1\nidentity: {ip: {trusted_proxies: [10.0.0.0/8]}}\n"
        "rules:\n  - {id: a, key_by: ip, limit: 1/hour}"
    )
    app = RateLimitMiddleware(Answering(), policy=policy, limits="1/hour", name="own")

    assert statuses(app, forwarded(b"198.51.100.1"), forwarded(b"198.51.100.2")) == [200, 200]
    assert statuses(app, forwarded(b"198.51.100.1")) == [429]


@pytest.mark.parametrize(
    "path",
    ["/login", "//login", "/login/", "/a/../login", "/LOGIN", "/login;x", "/./login", "/login\0"],
)
def test_no_spelling_of_a_path_escapes_its_rule(path: str) -> None:
    policy = read_policy(
        "version: 1\nrules:\n  - {id: a, match: {endpoint: /login}, key_by: ip, limit: 1/hour}"
    )
    app = RateLimitMiddleware(Answering(), policy=policy)

    assert statuses(app, http("/login"), http(path), http("/other")) == [200, 429, 200]
