"""Addresses as people write them."""

from __future__ import annotations

import pytest

from headgate.config import Address, parse_address
from headgate.errors import OptionError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8090", Address("127.0.0.1", 8090)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8090", Address("::1", 8090)),
        ("unix:/run/headgate/http.sock", Address(path="/run/headgate/http.sock")),
    ],
)
def test_are_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "8090", ":8090", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:1e3"),
        *("::1:80", "[127.0.0.1]:80", "unix:", "unix:relative", "unix:/" + "x" * 107),
        *("127.0.0.1:-1", "h:\N{ARABIC-INDIC DIGIT THREE}"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_address(text)


def test_each_worker_may_have_one_of_its_own() -> None:
    assert [str(Address("::1", 80).nth(n)) for n in range(3)] == [
        "[::1]:80",
        "[::1]:81",
        "[::1]:82",
    ]
    assert [str(Address(path="/s").nth(n)) for n in range(2)] == ["unix:/s", "unix:/s.1"]
    assert Address("::1", 0).nth(2) == Address("::1", 0)


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [
        ("127.0.0.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/s", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("example.org:1", False),
    ],
)
def test_whether_only_this_machine_reaches_it_can_be_told(text: str, is_loopback: bool) -> None:
    assert parse_address(text).is_loopback is is_loopback
