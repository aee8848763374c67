"""One value for one address, however it is spelled; and which addresses are one caller."""

from __future__ import annotations

import gc
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from headgate.engine.request import Request
from headgate.policy.identity.address import Proxies, Trail, address_key, read_address
from headgate.policy.model import AddressSource

DEFAULT = AddressSource()


@pytest.mark.parametrize(
    "text", ["1.2.3.4", "1.2.3.4:80", "1.2.3.4:65535", "1.2.3.4:_http", "::ffff:1.2.3.4",
             "::FFFF:1.2.3.4", "::ffff:102:304", "0:0:0:0:0:ffff:1.2.3.4", "[::ffff:1.2.3.4]:80"]
)  # fmt: skip
def test_spellings_of_an_ipv4_address_are_that_address(text: str) -> None:
    assert read_address(text) == IPv4Address("1.2.3.4")


@pytest.mark.parametrize(
    "text", ["2001:db8::1", "2001:DB8::1", "2001:0db8:0:0:0:0:0:1", "2001:db8:0:0::0.0.0.1",
             "[2001:db8::1]", "[2001:db8::1]:443", "2001:db8::1%eth0", "[2001:db8::1%25en0]:443"]
)  # fmt: skip
def test_spellings_of_an_ipv6_address_are_that_address(text: str) -> None:
    assert read_address(text) == IPv6Address("2001:db8::1")


def test_two_mapped_addresses_are_two_clients() -> None:
    first, second = read_address("::ffff:1.2.3.4"), read_address("::ffff:1.2.3.5")
    assert first is not None
    assert second is not None
    assert address_key(first, DEFAULT) != address_key(second, DEFAULT)


@pytest.mark.parametrize(
    "text", ["", " ", "unix:", "unix:/run/app.sock", "unknown", "_hidden", "localhost", "1.2.3",
             "1.2.3.4.5", "01.2.3.4", "1.2.3.256", "1.2.3.4:", "1.2.3.4:http", "1.2.3.4%eth0",
             "1.2.3.4:123456", "[1.2.3.4]", "[]", "[::1", "::1]", "[[::1]]", "[::1]x", ":::", ":",
             "%eth0", "0x7f.1", "2130706433", "1.2.3.4\x00", "1.2.3.4\n", "\u0661.2.3.4", "\ud800",
             "1" * 65536, ":" * 65536, "[" * 65536, "fe80::1%" + "e" * 65536]
)  # fmt: skip
def test_what_is_no_address_is_none(text: str) -> None:
    assert read_address(text) is None


@pytest.mark.parametrize("text", ["2002:102:304::1", "64:ff9b::1.2.3.4", "::1.2.3.4"])
def test_ipv4_addresses_in_6to4_nat64_and_compatible_ones_are_not_unwrapped(text: str) -> None:
    assert read_address(text) == IPv6Address(text)


@pytest.mark.parametrize(
    ("address", "settings", "key"),
    [
        ("1.2.3.4", DEFAULT, "1.2.3.4"),
        ("2001:db8:1:2:3:4:5:6", DEFAULT, "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", DEFAULT, "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", AddressSource(ipv6_prefix=48), "2001:db8:1::/48"),
        ("2001:db8:1:2::9", AddressSource(ipv6_prefix=128), "2001:db8:1:2::9"),
        ("2001:db8::9", AddressSource(ipv6_prefix=0), "::/0"),
        ("1.2.3.4", AddressSource(ipv4_prefix=24), "1.2.3.0/24"),
        ("1.2.3.4", AddressSource(ipv4_prefix=0), "0.0.0.0/0"),
    ],
)
def test_a_key_is_of_all_who_count_as_one_caller(
    address: str, settings: AddressSource, key: str
) -> None:
    assert address_key(ip_address(address), settings) == key


def test_one_customers_64_is_one_caller_and_the_next_is_another() -> None:
    keys = [address_key(IPv6Address(f"2001:db8:0:1::{n:x}"), DEFAULT) for n in range(100)]
    assert set(keys) == {"2001:db8:0:1::/64"}
    assert address_key(IPv6Address("2001:db8:0:2::"), DEFAULT) not in keys


def test_proxies_are_known_by_network_of_their_own_version() -> None:
    proxies = Proxies([ip_network("10.0.0.0/8"), ip_network("10.0.0.0/7"), ip_network("fd00::/8")])
    inside = ["10.0.0.0", "10.255.255.255", "11.0.0.1", "fd00::1", "fdff::"]
    outside = ["9.255.255.255", "12.0.0.0", "fe00::", "::a00:1"]
    assert [text for text in inside + outside if ip_address(text) in proxies] == inside


def test_a_mapped_network_of_proxies_is_the_ipv4_network() -> None:
    proxies = Proxies([ip_network("::ffff:10.0.0.0/104")])
    assert ip_address("10.1.2.3") in proxies
    assert ip_address("11.1.2.3") not in proxies


def test_the_whole_of_ipv6_is_not_the_whole_of_ipv4() -> None:
    assert ip_address("1.2.3.4") not in Proxies([ip_network("::/0")])


def test_a_trail_is_freed_without_a_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        trail = Trail(DEFAULT)
        assert trail.client_key(Request("GET", "/", peer="1.2.3.4")) == "1.2.3.4"
        place = id(trail)
        del trail
        assert not [one for one in gc.get_objects() if id(one) == place and type(one) is Trail]
    finally:
        gc.enable()
