"""Whose counter it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.engine.request import Request
from headgate.errors import OptionError
from headgate.policy.identity import Identifier, hashed
from headgate.policy.model import Fallback, Identity, Match, Source
from tests.support.identity_requests import asked, behind, by, identity, sent


def key(request: Request, *parts: str, of: Identity | None = None, salt: bytes = b"") -> str | None:
    identifier = Identifier(of or Identity(), salt=salt)
    return identifier.key(by(*parts), request, identifier.find(request))


def test_short_and_plain_keys_read_well() -> None:
    request = Request("POST", "/login", "Example.COM:8080", (("x-tenant-id", "acme"),), "1.2.3.4")
    assert key(request, "ip") == "ip=1.2.3.4"
    assert key(request, "tenant", "endpoint") == "tenant=acme&endpoint=/login"
    assert key(request, "method", "host") == "method=POST&host=example.com"
    assert key(request, "global") == "global"
    assert key(request, "global", "ip") == "global&ip=1.2.3.4"


def test_any_header_cookie_or_attribute_can_be_a_part() -> None:
    request = Request(
        headers=(("X-Region", "eu"), ("Cookie", "sid=s1")), attributes={"user": "7"}, peer="1.2.3.4"
    )
    assert (
        key(request, "header:X-Region") == key(request, "header:x-region") == "header:x-region=eu"
    )
    assert key(request, "attribute:user", "method") == "attribute:user=7&method=GET"
    assert key(request, "cookie:sid") == f"cookie:sid={hashed('s1')}"


def test_the_address_is_that_behind_proxies_and_grouped() -> None:
    of = Identity(address=behind())
    assert key(sent("6.6.6.6, 2001:db8::7, 10.0.0.2"), "ip", of=of) == "ip=2001:db8::/64"


def test_a_separator_in_a_value_makes_no_other_key() -> None:
    one = key(asked(x_tenant_id="a_b", x_user_id="c"), "tenant", "user_id")
    two = key(asked(x_tenant_id="a", x_user_id="b_c"), "tenant", "user_id")
    three = key(asked(x_tenant_id="a&user_id=c"), "tenant", "user_id")
    four = key(asked(x_tenant_id="a", x_user_id="c"), "tenant", "user_id")
    assert len({one, two, three, four}) == 4


@pytest.mark.parametrize(
    "value", [":", "{", "}", "a\x00b", "a\r\nb", "\ud800", "é" * 65536, "x" * 65536, "&", "="]
)
def test_odd_values_make_keys_of_bounded_printable_ascii(value: str) -> None:
    text = key(Request(attributes={"a": value}), "attribute:a")
    assert text is not None
    assert text.isascii()
    assert text.isprintable()
    assert not set(text) & set("{} ")
    assert len(text) < 200


def test_case_is_kept() -> None:
    assert key(asked(x_tenant_id="Acme"), "tenant") != key(asked(x_tenant_id="acme"), "tenant")


def test_methods_and_hosts_have_no_case_nor_hosts_a_port_or_a_last_dot() -> None:
    hosts = ["a.example", "A.EXAMPLE", "a.example:443", "a.example.", "a.example.:443"]
    assert {key(Request(host=host), "host") for host in hosts} == {"host=a.example"}
    assert key(Request(host="[::1]:80"), "host") == key(Request(host="[::1]"), "host")
    assert key(Request(method="post"), "method") == "method=POST"


@pytest.mark.parametrize("method", ["GET", "HEAD", "head"])
def test_asking_for_the_head_only_is_counted_with_the_rest(method: str) -> None:
    assert key(Request(method=method), "method") == "method=GET"


@pytest.mark.parametrize("path", ["//login", "/login/", "/%6cogin", "/a/../login"])
def test_spellings_of_a_path_share_a_counter(path: str) -> None:
    assert key(Request(path=path), "endpoint") == key(Request(path="/login"), "endpoint")


# ---- those who do not say who they are ---------------------------------------------------------


def test_the_address_stands_in_for_a_missing_part_and_the_others_stay() -> None:
    request = Request("GET", "/x", headers=(("x-tenant-id", "acme"),), peer="1.2.3.4")
    assert key(request, "api_key") == "api_key!ip=1.2.3.4"
    assert (
        key(request, "tenant", "api_key", "endpoint")
        == "tenant=acme&api_key!ip=1.2.3.4&endpoint=/x"
    )


def test_all_who_do_not_say_share_a_counter_if_the_policy_says_so() -> None:
    of = identity(fallback="shared")
    one = key(Request(peer="1.2.3.4"), "api_key", "method", of=of)
    two = key(Request(peer="5.6.7.8"), "api_key", "method", of=of)
    assert one == two == "api_key!shared&method=GET"


def test_the_rule_is_skipped_if_the_policy_says_so() -> None:
    of = identity(fallback="skip")
    assert key(asked(), "api_key", "endpoint", of=of) is None
    assert key(asked(x_api_key="k"), "api_key", of=of) is not None


@pytest.mark.parametrize("part", ["header:x-none", "cookie:none", "attribute:none", "tenant"])
@pytest.mark.parametrize(
    ("fallback", "end"), [("ip", "!ip=1.2.3.4"), ("shared", "!shared"), ("skip", None)]
)
def test_every_kind_of_claim_falls_back_alike(
    part: str, fallback: Fallback, end: str | None
) -> None:
    expected = None if end is None else part + end
    assert key(asked(), part, of=identity(fallback=fallback)) == expected


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("/acct/*", {"endpoint=/acct/me"}),
        ("/**", {"endpoint=/acct/me", "endpoint=/r1"}),
        ("/other", {"endpoint=/acct/me", "endpoint=/r1"}),
    ],
)
def test_an_ambiguous_path_is_counted_as_all_that_the_rule_is_for(
    endpoint: str, expected: set[str]
) -> None:
    identifier = Identifier(Identity())
    request = Request(path="/r1%23/../acct/me")
    rule = replace(by("endpoint"), match=Match(endpoints=(endpoint,)))
    found = identifier.find(request)
    readings = found.readings(identifier.places(rule)) or (found,)
    assert {identifier.key(rule, request, one) for one in readings} == expected


@pytest.mark.parametrize("fallback", ["ip", "shared", "skip"])
@pytest.mark.parametrize("peer", ["", "unix:"])
def test_those_without_an_address_are_one_caller_and_never_skipped(
    fallback: Fallback, peer: str
) -> None:
    assert key(Request(peer=peer), "ip", of=identity(fallback=fallback)) == "ip=unknown"


def test_a_missing_key_of_a_caller_without_an_address_is_counted_too() -> None:
    assert key(Request(), "api_key") == "api_key!ip=unknown"


def test_a_default_is_no_fallback() -> None:
    of = identity(tenant=Source(header="x-tenant-id", default="public"), fallback="skip")
    assert key(asked(), "tenant", of=of) == "tenant=public"


@pytest.mark.parametrize("value", ["ip=1.2.3.4", "!ip=1.2.3.4", "1.2.3.4", "!shared", "shared"])
def test_no_value_takes_the_place_of_an_anonymous_caller(value: str) -> None:
    for fallback in ("ip", "shared"):
        of = identity(fallback=fallback)
        assert key(asked(x_tenant_id=value), "tenant", of=of) != key(asked(), "tenant", of=of)


def test_which_part_is_missing_makes_a_difference() -> None:
    one = key(asked(x_tenant_id="a"), "tenant", "user_id")
    two = key(asked(x_user_id="a"), "tenant", "user_id")
    assert one != two


# ---- secrets -----------------------------------------------------------------------------------


def test_a_secret_is_hashed_in_a_key() -> None:
    assert key(asked(x_api_key="hush"), "api_key") == f"api_key={hashed('hush')}"
    salted = key(asked(x_api_key="hush"), "api_key", salt=b"salt")
    assert salted == f"api_key={hashed('hush', b'salt')}"


@pytest.mark.parametrize(
    "part", ["header:x-api-key", "header:X-Api-Key", "header:authorization", "header:Cookie",
             "cookie:sid", "header:x-token", "attribute:token", "plain_cookie", "plain_auth",
             "token"]
)  # fmt: skip
def test_no_way_to_name_a_secret_shows_it(part: str) -> None:
    headers = ("X-Api-Key", "Authorization", "X-Token")
    request = Request(
        headers=(*((name, "hush") for name in headers), ("Cookie", "sid=hush")),
        attributes={"token": "hush"},
    )
    of = identity(
        token=Source(header="x-token", secret=True),
        inner=Source(attribute="token", secret=True),
        plain_cookie=Source(cookie="sid"),
        plain_auth=Source(header="authorization"),
    )
    text = key(request, part, of=of)
    assert text is not None
    assert "hush" not in text
    assert "=~" in text


def test_what_was_looked_up_from_a_secret_is_none() -> None:
    tier = Source(lookup="api_key", values={"hush": "paid"})
    assert key(asked(x_api_key="hush"), "tier", of=identity(tier=tier)) == "tier=paid"


# ---- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["nobody", "header:", "cookie", "query:x", ""])
def test_a_part_that_nobody_knows_is_an_error(part: str) -> None:
    with pytest.raises(OptionError, match="no part of a key"):
        key(asked(), part)


def test_an_empty_key_is_an_error_and_never_skips_the_limit() -> None:
    with pytest.raises(OptionError, match="counts by nothing"):
        key(asked())


def test_rules_of_one_request_agree_on_a_shared_part() -> None:
    identifier = Identifier(Identity())
    request = asked(x_tenant_id="acme")
    found = identifier.find(request)
    assert identifier.key(by("tenant"), request, found) == "tenant=acme"
    assert identifier.key(by("tenant", "ip"), request, found) == "tenant=acme&ip=1.2.3.4"
