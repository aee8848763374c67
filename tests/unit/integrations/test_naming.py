"""From what a key function returns to the key of a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.errors import KeyInvalidError, OptionError
from headgate.integrations import by_address, by_header
from headgate.integrations.route_limit import key_of

if TYPE_CHECKING:
    from headgate.integrations.route_limit import KeyValue

PARTS = st.one_of(st.text(max_size=4), st.just("&"), st.just("!1.2.3.4"), st.just("a&b"))


def here() -> str:
    return "1.2.3.4"


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("ann", "ann"),
        (42, "42"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (None, "!1.2.3.4"),
        ("", "!1.2.3.4"),
        ((), "!1.2.3.4"),
        ((None, ""), "!1.2.3.4"),
        (("ann", 5), "ann&5"),
        (("ann", None), "ann&!1.2.3.4"),
        ("a&b", "a%26b"),
    ],
)
def test_a_value_has_a_key_and_nobody_is_counted_by_address(value: KeyValue, key: str) -> None:
    assert key_of(value, here) == key


@given(st.tuples(PARTS, PARTS), st.tuples(PARTS, PARTS))
def test_different_values_never_share_a_counter(one: Any, other: Any) -> None:
    assert (key_of(one, here) == key_of(other, here)) == (
        one == other or (not any(one) and not any(other))
    )


@given(PARTS.filter(bool))
def test_no_key_function_can_return_what_stands_in_for_nobody(value: str) -> None:
    assert key_of(value, here) != key_of(None, here)


@given(st.text())
def test_a_key_is_short_and_printable_whatever_it_was_made_of(value: str) -> None:
    key = key_of(value, here)

    assert len(key) <= 128
    assert key.isascii()
    assert key.isprintable()


@pytest.mark.parametrize("wrong", [1.5, b"a", True, ["a"], {"a"}, ("a", 1.5), ("a", ("b",))])
def test_what_is_no_key_is_a_clear_error(wrong: Any) -> None:
    with pytest.raises(KeyInvalidError, match=r"the key function returned .*expected text"):
        key_of(wrong, here)


def ask(peer: str = "203.0.113.7", **headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(headers=lines, peer=peer)


def test_addresses_are_grouped_as_is_said() -> None:
    by_network = by_address(ipv4_prefix=24, ipv6_prefix=48)

    assert by_network(ask("203.0.113.7")) == by_network(ask("203.0.113.8"))
    assert by_network(ask("2001:db8:1:2::")) == by_network(ask("2001:db8:1:3::"))
    assert by_address()(ask("203.0.113.7")) == "203.0.113.7"


@pytest.mark.parametrize(
    "options",
    [
        {"trusted_proxies": ["10.0.0.0/33"]},
        {"trusted_proxies": ["proxy.example"]},
        {"trusted_proxies": "10.0.0.0/8"},
        {"ipv4_prefix": 0},
        {"ipv4_prefix": 33},
        {"ipv6_prefix": 129},
        {"ipv6_prefix": "64"},
        {"ipv6_prefix": True},
    ],
)
def test_wrong_options_of_addresses_are_clear_errors(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))}.*expected"):
        by_address(**options)


def test_a_header_is_a_key_that_does_not_show_what_it_says() -> None:
    key = by_header("X-API-Key")

    assert key(ask(x_api_key="s3cr3t")) == key(ask(x_api_key=" s3cr3t\t"))
    assert key(ask(x_api_key="s3cr3t")) != key(ask(x_api_key="other"))
    assert "s3cr3t" not in str(key(ask(x_api_key="s3cr3t")))
    assert by_header("x-api-key", salt=b"a")(ask(x_api_key="k")) != key(ask(x_api_key="k"))
    assert by_header("x-plan", is_secret=False)(ask(x_plan="paid")) == "paid"


@pytest.mark.parametrize("value", ["", " ", "\t"])
def test_an_empty_header_is_nobody(value: str) -> None:
    assert by_header("x-api-key")(ask(x_api_key=value)) is None
    assert by_header("x-api-key")(ask()) is None
