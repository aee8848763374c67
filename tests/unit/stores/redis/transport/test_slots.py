"""Slots, owners and redirections of a cluster, as the servers write them."""

from __future__ import annotations

import pytest

from headgate.server_urls import Address
from headgate.stores.redis.transport.redirection import (
    SLOTS,
    Redirection,
    owners,
    redirection,
    slot_of,
)

ASKED = Address("10.0.0.1", 7000)


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"", 0),
        (b"123456789", 0x31C3),
        (b"foo", 12182),
        (b"{foo}bar", 12182),
        (b"x{foo}{y}", 12182),
    ],
)
def test_a_key_has_the_slot_of_its_tag(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_what_is_no_tag_counts_as_it_stands() -> None:
    assert len({slot_of(key) for key in (b"{}foo", b"foo", b"{foo", b"foo}", b"}foo{")}) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MOVED 3999 10.0.0.2:7001", Redirection(3999, Address("10.0.0.2", 7001), asking=False)),
        ("ASK 3999 10.0.0.2:7001", Redirection(3999, Address("10.0.0.2", 7001), asking=True)),
        ("MOVED 3999 :7001", Redirection(3999, Address("10.0.0.1", 7001), asking=False)),
        ("MOVED 3999 ?:7001", Redirection(3999, Address("10.0.0.1", 7001), asking=False)),
        ("MOVED 3999 ::1:7001", Redirection(3999, Address("::1", 7001), asking=False)),
        ("MOVED 3999 node.example:7001", Redirection(3999, Address("node.example", 7001), False)),
        ("MOVED 3999", None),
        ("MOVED x y", None),
        ("MOVED", None),
    ],
)
def test_redirections_are_read(text: str, expected: Redirection | None) -> None:
    assert redirection(text, ASKED) == expected


def test_the_map_names_the_primary_of_each_slot() -> None:
    replica = [b"10.0.0.9", 7009, b"id"]
    reply = [
        [0, 99, [b"10.0.0.2", 7001, b"id", []], replica],
        [100, 100, [b"", 7002, b"id"]],
        [200, SLOTS - 1, [None, 7003, b"id"], replica],
    ]
    found = owners(reply, ASKED)
    assert len(found) == SLOTS
    assert set(found[:100]) == {Address("10.0.0.2", 7001)}
    assert found[100] == Address("10.0.0.1", 7002)
    assert set(found[101:200]) == {None}
    assert set(found[200:]) == {Address("10.0.0.1", 7003)}
