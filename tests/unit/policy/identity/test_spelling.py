"""How values stand in keys."""

from __future__ import annotations

import pytest

from headgate.policy.identity import hashed
from headgate.policy.identity.parts import LONGEST_VALUE, spelled


@pytest.mark.parametrize("value", ["", "acme", "Acme", "/api/v1/x.json", "1.2.3.4", "a_b-c@d:8080"])
def test_plain_values_stand_as_they_are(value: str) -> None:
    assert spelled(value) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a&b", "a%26b"),
        ("a=b", "a%3Db"),
        ("100%", "100%25"),
        ("{user}", "%7Buser%7D"),
        ("~0", "%7E0"),
        ("#0", "%230"),
        ("!shared", "%21shared"),
        ("a\x00b\r\n", "a%00b%0D%0A"),
        (" ", "%20"),
        ("é", "%C3%A9"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_other_characters_are_percent_encoded(value: str, text: str) -> None:
    assert spelled(value) == text


@pytest.mark.parametrize("value", ["x" * 129, "x" * 65536, "{" * 43, "\ud800" * 100])
def test_long_values_become_digests(value: str) -> None:
    text = spelled(value)
    assert text[0] == "#"
    assert len(text) == 33
    assert text != spelled(value + "x")


def test_the_longest_value_that_is_plain() -> None:
    assert spelled("x" * LONGEST_VALUE) == "x" * LONGEST_VALUE


def test_no_plain_value_looks_like_a_digest() -> None:
    assert spelled(spelled("x" * 200)) != spelled("x" * 200)
    assert spelled(hashed("x")) != hashed("x")


def test_a_secret_is_hashed_with_the_salt_and_without_one() -> None:
    salted, other, plain = hashed("k", b"salt"), hashed("k", b"other"), hashed("k")
    assert len({salted, other, plain}) == 3
    assert all(len(text) == 33 and text[0] == "~" for text in (salted, other, plain))
    assert hashed("k", b"salt") == salted


def test_a_hash_stays_the_same_from_release_to_release() -> None:
    assert hashed("key-1", b"salt") == "~f5670fcb6e7fa80e8b3c34d3032b99a4"
    assert hashed("key-1") == "~59c8ffd43fdf5c49abb57d0bbe9e1185"


@pytest.mark.parametrize("salt", [b"x" * 64, b"x" * 65, b"x" * 1000])
def test_a_salt_may_have_any_length(salt: bytes) -> None:
    assert hashed("k", salt) != hashed("k", salt + b"x")


@pytest.mark.parametrize("value", ["", "\x00", "\ud800", "x" * 65536])
def test_any_text_can_be_a_secret(value: str) -> None:
    assert len(hashed(value)) == 33
