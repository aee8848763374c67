"""Where the parts of a key come from, in words."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.identity import Identifier, hashed
from headgate.policy.model import AddressSource, Fallback, Identity, Source
from tests.support.identity_requests import asked, behind, by, identity, sent


def account(request: Request, *parts: str, of: Identity | None = None) -> list[str]:
    return Identifier(of or Identity(), salt=b"salt").account(by(*parts), request)


def test_what_the_caller_said_and_where() -> None:
    request = Request(
        "post", "//login", "Example.com", (("x-tenant-id", "acme"),), attributes={"user": "7"}
    )
    parts = "tenant", "attribute:user", "endpoint", "method", "host", "global"
    assert account(request, *parts) == [
        "tenant: header x-tenant-id = 'acme'",
        "attribute:user: attribute user = '7'",
        "endpoint: '/login', of the path '//login'",
        "method: 'POST'",
        "host: 'example.com'",
        "global: one counter for everybody",
    ]


def test_a_method_that_counts_as_another() -> None:
    assert account(Request("head"), "method") == ["method: 'GET', as 'HEAD' counts as it"]


def test_a_secret_is_shown_as_its_hash_alone() -> None:
    [line] = account(asked(x_api_key="hush"), "api_key")
    assert line == f"api_key: header x-api-key = {hashed('hush', b'salt')}, a secret"
    [line] = account(asked(cookie="sid=hush"), "cookie:sid")
    assert line == f"cookie:sid: cookie sid = {hashed('hush', b'salt')}, a secret"


def test_each_reading_of_a_caller_is_shown() -> None:
    first, last = (hashed(value, b"salt") for value in ("hush", "hush2"))
    assert account(asked(cookie="sid=hush; sid=hush2"), "cookie:sid", "ip") == [
        f"cookie:sid: cookie sid = {first}, a secret",
        "ip: 1.2.3.4, the peer",
        f"cookie:sid: cookie sid = {last}, a secret",
    ]
    many = "; ".join(f"{name}={n}" for name in ("a", "b", "c") for n in range(5))
    told = account(asked(cookie=many.replace("a=1", "A=8")), "cookie:a", "cookie:b", "cookie:c")
    assert len(told) == 6
    odd = "; ".join(f"{name}={n} {n}x" for name in ("a", "b", "c", "d") for n in range(2))
    assert account(asked(cookie=odd), *(f"cookie:{name}" for name in "abcd")) == [
        "more than 64 readings, so the rule denies the request"
    ]


def test_a_default_and_a_lookup() -> None:
    tier = Source(lookup="api_key", values={"key-1": "paid"}, default="free")
    of = identity(tier=tier)
    assert account(asked(x_api_key="key-1"), "tier", of=of) == ["tier: lookup of api_key = 'paid'"]
    assert account(asked(), "tier", of=of) == [
        "tier: default = 'free', as lookup of api_key is missing"
    ]


@pytest.mark.parametrize(
    ("fallback", "words"),
    [
        ("ip", "the address 1.2.3.4 stands in"),
        ("shared", "the counter that all such callers share is used"),
        ("skip", "the rule does not apply"),
    ],
)
def test_what_stands_in_for_what_is_missing(fallback: Fallback, words: str) -> None:
    [line] = account(asked(), "api_key", of=identity(fallback=fallback))
    assert line == f"api_key: header x-api-key is missing, so {words}"


BEHIND = Identity(address=behind())


@pytest.mark.parametrize(
    ("request_", "of", "words"),
    [
        (asked(), Identity(), "1.2.3.4, the peer"),
        (Request(), Identity(), "unknown, as the peer '' is no address"),
        (Request(peer="2001:db8::1"), Identity(), "2001:db8::/64, for 2001:db8::1, the peer"),
        (
            Request(peer="1.2.3.4"),
            Identity(address=AddressSource(ipv4_prefix=24)),
            "1.2.3.0/24, for 1.2.3.4, the peer",
        ),
        (
            sent("6.6.6.6", peer="1.2.3.4"),
            BEHIND,
            "1.2.3.4, the peer; x-forwarded-for is not believed, as the peer is no trusted proxy",
        ),
        (sent("1.2.3.4"), BEHIND, "1.2.3.4, from x-forwarded-for of the trusted proxy 10.0.0.1"),
        (
            sent("unknown"),
            BEHIND,
            "10.0.0.1, the peer, though a trusted proxy: x-forwarded-for has no client's address",
        ),
        (
            sent(),
            BEHIND,
            "10.0.0.1, the peer, though a trusted proxy: x-forwarded-for is missing",
        ),
    ],
)
def test_where_the_address_comes_from(request_: Request, of: Identity, words: str) -> None:
    assert account(request_, "ip", of=of) == [f"ip: {words}"]


@pytest.mark.parametrize("value", ["x" * 65536, "\x1b[2J\r\n", "\ud800"])
def test_values_are_shown_short_and_harmless(value: str) -> None:
    [line] = account(Request(attributes={"a": value}), "attribute:a")
    assert len(line) < 200
    assert line.isascii()
    assert line.isprintable()
