"""Slots, owners and redirections of a cluster, and the handling of error replies."""

from __future__ import annotations

import pytest

from headgate.server_urls import Address
from headgate.stores.redis.cluster import (
    MOST_DETOURS,
    Failure,
    Redirection,
    Retry,
    action_for,
    owners,
    pause,
    redirection,
)
from headgate.stores.redis.naming import CLUSTER_SLOTS, slot_of

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
        [200, CLUSTER_SLOTS - 1, [None, 7003, b"id"], replica],
    ]
    found = owners(reply, ASKED)
    assert len(found) == CLUSTER_SLOTS
    assert set(found[:100]) == {Address("10.0.0.2", 7001)}
    assert found[100] == Address("10.0.0.1", 7002)
    assert set(found[101:200]) == {None}
    assert set(found[200:]) == {Address("10.0.0.1", 7003)}


NODE = Address("a", 1)


def test_an_unknown_script_is_sent_whole_and_not_for_ever() -> None:
    assert action_for("NOSCRIPT No matching script", "a:1", 0) is Retry.SEND_SCRIPT
    action = action_for("NOSCRIPT No matching script", "a:1", MOST_DETOURS)
    assert isinstance(action, Failure)
    assert action.error.reason == "refused"


def test_a_node_of_a_cluster_may_send_elsewhere() -> None:
    assert action_for("MOVED 7 b:2", "a:1", 0, node=NODE) == Redirection(7, Address("b", 2), False)
    assert action_for("ASK 7 b:2", "a:1", 0, node=NODE) == Redirection(7, Address("b", 2), True)
    assert action_for("TRYAGAIN", "a:1", 0, node=NODE) is Retry.WAIT


def test_requests_are_not_sent_on_for_ever() -> None:
    action = action_for("MOVED 7 b:2", "a:1", MOST_DETOURS, node=NODE)
    assert isinstance(action, Failure)
    assert (action.error.reason, action.is_stale) == ("cluster_down", True)


@pytest.mark.parametrize("text", ["MOVED 7 b:2", "ASK 7 b:2", "TRYAGAIN", "ERR what"])
def test_a_single_server_has_nowhere_to_send_to(text: str) -> None:
    assert isinstance(action_for(text, "a:1", 0), Failure)


@pytest.mark.parametrize(
    ("text", "is_stale"),
    [("READONLY no", True), ("CLUSTERDOWN no", True), ("OOM no", False), ("ERR no", False)],
)
def test_a_server_that_is_no_primary_any_more_is_looked_for_anew(text: str, is_stale: bool) -> None:
    action = action_for(text, "a:1", 0, node=NODE)
    assert isinstance(action, Failure)
    assert action.is_stale is is_stale


def test_pauses_grow_with_the_time_spent() -> None:
    pauses = [pause(1.0, left) for left in (1.0, 0.9, 0.8, 0.5, 0.1)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.01
    assert pauses[-1] == 0.1
