"""Which address a request comes from, whoever writes what into its headers."""

from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.identity import client_address
from headgate.policy.identity.address import LONGEST_FORWARDED, MOST_ENTRIES
from headgate.policy.model import AddressSource
from tests.support.identity_requests import PROXY, behind, sent


def client(request: Request, settings: AddressSource) -> str:
    return str(client_address(request, settings))


@pytest.mark.parametrize("peer", ["", "unix:", "unix:/run/app.sock", "testclient", "\x00"])
def test_a_peer_without_an_address_gives_none_and_its_headers_are_not_read(peer: str) -> None:
    assert client_address(sent("1.2.3.4", peer=peer), behind("0.0.0.0/0", "::/0")) is None


def test_without_trusted_proxies_the_header_says_nothing() -> None:
    assert client(sent("1.2.3.4"), AddressSource()) == PROXY


def test_a_peer_that_is_no_trusted_proxy_is_the_client() -> None:
    assert client(sent("1.2.3.4", peer="203.0.113.7:5000"), behind()) == "203.0.113.7"


@pytest.mark.parametrize("peer", [PROXY, "10.0.0.1:4711", "::ffff:10.0.0.1", "[::ffff:10.0.0.1]:1"])
def test_a_trusted_proxy_is_known_in_every_spelling(peer: str) -> None:
    assert client(sent("1.2.3.4", peer=peer), behind()) == "1.2.3.4"


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        (["6.6.6.6,203.0.113.7,10.0.0.2,10.9.9.9"], "203.0.113.7"),
        (["10.0.0.9, 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        (["6.6.6.6", "203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6", "203.0.113.7, 10.0.0.2", "10.0.0.3"], "203.0.113.7"),
        (["203.0.113.7:5000"], "203.0.113.7"),
        (["::ffff:203.0.113.7, ::ffff:10.0.0.2"], "203.0.113.7"),
        (["6.6.6.6, [2001:db8::7]:5000"], "2001:db8::7"),
        (["6.6.6.6, 2001:DB8:0::7%eth0"], "2001:db8::7"),
        (['6.6.6.6, "[2001:db8::7]:5000"'], "2001:db8::7"),
        (["\t6.6.6.6 ,\t203.0.113.7\t "], "203.0.113.7"),
    ],
)
def test_the_first_from_the_right_that_is_no_trusted_proxy_is_the_client(
    lines: list[str], address: str
) -> None:
    assert client(sent(*lines), behind()) == address


def test_if_all_are_trusted_it_is_the_leftmost() -> None:
    assert client(sent("10.0.0.4, 10.0.0.3", "10.0.0.2"), behind()) == "10.0.0.4"


@pytest.mark.parametrize(
    "garbage", ["unknown", "_hidden", "", " ", '"', '""', "1.2.3", "1.2.3.4:x", "[", "localhost",
                "6.6.6.6 7.7.7.7", "6.6.6.6;7.7.7.7", "\x00", "\r\n", "\ud800", "x" * 65536]
)  # fmt: skip
def test_what_is_no_address_ends_the_walk_at_the_last_that_was_sure(garbage: str) -> None:
    assert client(sent(f"6.6.6.6, {garbage}"), behind()) == PROXY
    assert client(sent(f"6.6.6.6, {garbage}, 10.0.0.2"), behind()) == "10.0.0.2"
    assert client(sent("6.6.6.6", garbage, "10.0.0.2"), behind()) == "10.0.0.2"
    assert client(sent(f"{garbage}, 203.0.113.7"), behind()) == "203.0.113.7"


def test_a_trusted_proxy_that_added_nothing_is_the_client() -> None:
    assert client(sent(), behind()) == PROXY
    assert client(sent(""), behind()) == PROXY


@pytest.mark.parametrize(
    "name", ["X_Forwarded_For", "X-Forwarded_For", "X-Forwarded-For ", "XForwardedFor", "Forwarded",
             "X-Real-IP", "X-Original-Forwarded-For"]
)  # fmt: skip
def test_other_headers_are_not_read(name: str) -> None:
    assert client(sent("6.6.6.6", header=name), behind()) == PROXY


def test_the_headers_name_has_any_case() -> None:
    assert client(sent("6.6.6.6", header="x-FORWARDED-for"), behind()) == "6.6.6.6"
    assert client(sent("6.6.6.6"), behind(header="X-Forwarded-For")) == "6.6.6.6"


def test_a_connection_header_does_not_take_the_trail_away() -> None:
    request = Request(
        headers=(("Connection", "close, X-Forwarded-For"), ("X-Forwarded-For", "203.0.113.7")),
        peer=PROXY,
    )
    assert client(request, behind()) == "203.0.113.7"


def test_only_so_many_entries_are_looked_at() -> None:
    trail = ", ".join(["6.6.6.6"] + [f"10.0.0.{n}" for n in range(MOST_ENTRIES)])
    assert client(sent(trail), behind()) == "10.0.0.0"
    assert client(sent(trail.replace("10.0.0.0, ", "")), behind()) == "6.6.6.6"


@pytest.mark.parametrize("unit", [",", "10.0.0.2,", '"', "\\", '\\"', '",', "for=10.0.0.2,", "; ,"])
@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_huge_headers_end_at_a_trusted_proxy(unit: str, header: str) -> None:
    request = sent(unit * (65536 // len(unit)), header=header)
    assert client(request, behind(header=header)).startswith("10.0.0.")


# ---- RFC 7239 ----------------------------------------------------------------------------------

FORWARDED = behind(header="forwarded")


def forwarded(*lines: str) -> str:
    return client(sent(*lines, header="Forwarded"), FORWARDED)


@pytest.mark.parametrize(
    ("text", "address"),
    [  # section 4
        ('for="_gazonk"', PROXY),
        ('For="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
        # sections 6.1 and 6.3
        ("for=192.0.2.43:47011", "192.0.2.43"),
        ('for="192.0.2.43:47011"', "192.0.2.43"),
        ('for="[2001:db8:cafe::17]:_obf"', "2001:db8:cafe::17"),
        ("for=_hidden, for=_SEVKISEK", PROXY),
        ("for=unknown", PROXY),
        # section 7.1
        ('for=192.0.2.43, for="[2001:db8:cafe::17]"', "2001:db8:cafe::17"),
        ('for=192.0.2.43, for="[2001:db8:cafe::17]", for=10.0.0.2', "2001:db8:cafe::17"),
        ("for=192.0.2.43, for=10.0.0.2;by=203.0.113.60;proto=http;host=example.com", "192.0.2.43"),
    ],
)
def test_the_examples_of_rfc_7239(text: str, address: str) -> None:
    assert forwarded(text) == address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (' proto=https ; FOR = "203.0.113.7" ; by=_x ', "203.0.113.7"),
        ('for="203\\.0.113\\.7"', "203.0.113.7"),
        ("for=203.0.113.7;", "203.0.113.7"),
        ('for=203.0.113.7;host="a, for=6.6.6.6"', "203.0.113.7"),
        ('for=203.0.113.7;host="a\\", for=6.6.6.6"', "203.0.113.7"),
        ('for=203.0.113.7;host="a\\\\", for="10.0.0.2"', "203.0.113.7"),
        ('for=", for=203.0.113.7', "203.0.113.7"),
        ('for="\\, for="[2001:db8::7]"', "2001:db8::7"),
        ("for=203.0.113.7, proto=https", PROXY),
        ("for=203.0.113.7;for=6.6.6.6", PROXY),
        ("203.0.113.7", PROXY),
        ('for="203.0.113.7', PROXY),
        ('for="203.0.113.7"x', PROXY),
        ("for", PROXY),
        ("", PROXY),
        (";;", PROXY),
    ],
)
def test_an_element_says_one_address_or_ends_the_walk(text: str, address: str) -> None:
    assert forwarded(text) == address


def test_lines_of_forwarded_are_one_list() -> None:
    assert forwarded("for=6.6.6.6", "for=203.0.113.7", "for=10.0.0.2") == "203.0.113.7"


def test_an_element_longer_than_what_is_looked_at_is_not_half_read() -> None:
    host = ";for=6.6.6.6;x=" + "x" * LONGEST_FORWARDED
    assert forwarded(f'for=203.0.113.7;host="{host}"') == PROXY
    assert forwarded(f"for=203.0.113.7;x={host}") == PROXY
    assert forwarded("x" * LONGEST_FORWARDED + ",for=203.0.113.7") == "203.0.113.7"
