"""Slots, owners and redirections of a cluster, and the handling of error replies."""

from __future__ import annotations

import pytest

from headgate.server_urls import Address
from headgate.stores.redis.cluster import (
    MOST_DETOURS,
    Attempt,
    Failure,
    Nodes,
    owners,
    pause,
    redirection,
)
from headgate.stores.redis.naming import CLUSTER_SLOTS, slot_of
from headgate.stores.redis.url import parse_redis_url
from tests.support.redis_transport import Bundle, Script

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
        ("MOVED 3999 10.0.0.2:7001", (3999, Address("10.0.0.2", 7001))),
        ("ASK 3999 10.0.0.2:7001", (3999, Address("10.0.0.2", 7001))),
        ("MOVED 3999 :7001", (3999, Address("10.0.0.1", 7001))),
        ("MOVED 3999 ?:7001", (3999, Address("10.0.0.1", 7001))),
        ("MOVED 3999 ::1:7001", (3999, Address("::1", 7001))),
        ("MOVED 3999 node.example:7001", (3999, Address("node.example", 7001))),
        ("MOVED 3999", None),
        ("MOVED x y", None),
        ("MOVED", None),
        ("OTHER 3999 10.0.0.2:7001", None),
    ],
)
def test_redirections_are_read(text: str, expected: tuple[int, Address] | None) -> None:
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
REQUEST = Script("key")
SINGLE, CLUSTER = "redis://a:1", "redis+cluster://a:1"


def react(text: str, url: str = CLUSTER, detours: int = 0) -> Failure | list[Attempt]:
    nodes = Nodes(parse_redis_url(url))
    return nodes.react(Attempt(REQUEST, None, detours), NODE, "a:1", text)


def test_an_unknown_script_is_sent_whole_and_not_for_ever() -> None:
    assert react("NOSCRIPT none", SINGLE) == [Attempt(REQUEST, NODE, 1, is_whole=True)]
    failure = react("NOSCRIPT none", SINGLE, MOST_DETOURS)
    assert isinstance(failure, Failure)
    assert failure.error.reason == "refused"


def test_an_unknown_script_after_a_redirection_is_sent_after_asking() -> None:
    expected = Attempt(REQUEST, NODE, 2, asking=True, is_whole=True)
    assert react("NOSCRIPT none", CLUSTER, 1) == [expected]


def test_a_node_of_a_cluster_may_send_elsewhere() -> None:
    other = Address("b", 2)
    assert react("MOVED 7 b:2") == [Attempt(REQUEST, other, 1)]
    assert react("ASK 7 b:2") == [Attempt(REQUEST, other, 1, asking=True)]
    assert react("TRYAGAIN") == [Attempt(REQUEST, waits=True)]


def test_a_moved_slot_has_its_new_owner_at_once() -> None:
    nodes = Nodes(parse_redis_url(CLUSTER))
    nodes.is_stale = False
    nodes.react(Attempt(REQUEST), NODE, "a:1", "ASK 7 b:2")
    assert (nodes.owner_of(7), nodes.is_stale) == ("", False)
    nodes.react(Attempt(REQUEST), NODE, "a:1", "MOVED 7 b:2")
    assert (nodes.owner_of(7), nodes.is_stale) == ("b:2", True)


def test_a_request_for_a_slot_that_moves_is_sent_in_parts_or_later() -> None:
    bundle = Bundle("x", "y")
    found = Nodes(parse_redis_url(CLUSTER)).react(Attempt(bundle), NODE, "a:1", "TRYAGAIN")
    assert found == [Attempt(part) for part in bundle.pieces]
    assert len(bundle.pieces) == 2


def test_requests_are_not_sent_on_for_ever() -> None:
    failure = react("MOVED 7 b:2", CLUSTER, MOST_DETOURS)
    assert isinstance(failure, Failure)
    assert (failure.error.reason, failure.is_stale) == ("cluster_down", True)


@pytest.mark.parametrize("text", ["MOVED 7 b:2", "ASK 7 b:2", "TRYAGAIN", "ERR what"])
def test_a_single_server_has_nowhere_to_send_to(text: str) -> None:
    assert isinstance(react(text, SINGLE), Failure)


@pytest.mark.parametrize(
    ("text", "is_stale"),
    [("READONLY no", True), ("CLUSTERDOWN no", True), ("OOM no", False), ("ERR no", False)],
)
def test_a_server_that_is_no_primary_any_more_is_looked_for_anew(text: str, is_stale: bool) -> None:
    failure = react(text)
    assert isinstance(failure, Failure)
    assert failure.is_stale is is_stale


def test_pauses_grow_with_the_time_spent() -> None:
    pauses = [pause(1.0, left) for left in (1.0, 0.9, 0.8, 0.5, 0.1)]
    assert pauses == sorted(pauses)
    assert pauses[0] == 0.01
    assert pauses[-1] == 0.1
