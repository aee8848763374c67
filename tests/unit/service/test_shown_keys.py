"""Keys are told as the settings say, and hashed ones tell nobody apart by name."""

from __future__ import annotations

import pytest

from headgate.config.service import Settings
from headgate.policy.identity import hashed
from headgate.policy.identity.parts import hashed_key
from headgate.service.core import key_hasher, key_shower


@pytest.mark.parametrize(
    "key",
    ["global", "method=GET", "tenant!shared", f"api_key={hashed('k')}", f"user_id=#{32 * '5'}"],
)
def test_what_tells_nobody_apart_or_is_hashed_stays(key: str) -> None:
    assert hashed_key(key) == key


@pytest.mark.parametrize(
    ("key", "hidden"),
    [
        ("ip=192.0.2.7", "192.0.2.7"),
        ("tenant=acme", "acme"),
        ("api_key!ip=192.0.2.7", "192.0.2.7"),
        ("endpoint=/users/42", "/users/42"),
        ("acme", "acme"),
    ],
)
def test_what_tells_callers_apart_is_hashed(key: str, hidden: str) -> None:
    shown = hashed_key(key)
    name, _, value = shown.rpartition("=")
    assert hidden not in shown
    assert name == key.rpartition("=")[0]
    assert hashed(hidden).startswith(value)
    assert len(value) == 13


@pytest.mark.parametrize("key", ["user=~ada", "mail=#ada@example.com", f"user=~{'A' * 32}"])
def test_what_only_begins_like_a_digest_is_hashed(key: str) -> None:
    assert "ada" not in hashed_key(key).lower()
    assert len(hashed_key(key).rpartition("=")[2]) == 13


def test_each_part_is_hashed_by_itself() -> None:
    first, second = hashed_key("tenant=acme&ip=192.0.2.7").split("&")
    assert (first, second) == (hashed_key("tenant=acme"), hashed_key("ip=192.0.2.7"))


def test_the_salt_counts() -> None:
    assert hashed_key("ip=192.0.2.7", b"a") != hashed_key("ip=192.0.2.7", b"b")


def test_the_settings_decide() -> None:
    clear = key_shower(Settings(rules="x", dashboard_keys="clear"))
    salted = key_shower(Settings(rules="x", salt=b"a"))
    clients = key_hasher(Settings(rules="x", dashboard_keys="clear", salt=b"a"))
    assert clients("ip=192.0.2.7") == hashed_key("ip=192.0.2.7", b"a")
    assert clear("ip=192.0.2.7") == "ip=192.0.2.7"
    assert salted("ip=192.0.2.7") == hashed_key("ip=192.0.2.7", b"a")


@pytest.mark.parametrize(
    "key",
    [
        "edge|authorization|Basic YWRhOnBhc3M=",
        "edge|path|/search?user=ada&page=2",
        "edge|x|method=GET|y|ada",
    ],
)
def test_of_the_descriptors_of_envoy_nothing_is_told(key: str) -> None:
    shown = hashed_key(key, b"salt")
    assert shown == hashed(key, b"salt")[:13]
