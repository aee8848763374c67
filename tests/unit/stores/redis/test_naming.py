"""Names of counters: those that docs/redis-layout.md shows, and no two alike."""

from __future__ import annotations

import pytest

from headgate.limits import TokenBucket
from headgate.stores.base import group_name
from headgate.stores.redis.naming import CLUSTER_SLOTS, TAGS, Names, prefix, slot_of, tags

SINGLE = Names(has_tags=False)
CLUSTER = Names(has_tags=True)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (group_name("headgate", 0), b":"),
        (group_name("headgate", 1), b"#1:"),
        (group_name("shop", 0), b"shop:"),
        (group_name("shop", 2), b"shop#2:"),
        (group_name("shop", "org-rate"), b"shop=org-rate:"),
        (group_name("shop", TokenBucket(10, 10)), b"shop/10%2Fs:"),
        (group_name("a:b", 0), b"a%3Ab:"),
        (group_name("a#1", 0), b"a%231:"),
        (group_name("a~", 0), b"a%7E:"),
        (group_name("", 0), b"%:"),
        ("anything else", b"@anything else:"),
        ("5:shop:x", b"@5%3Ashop%3Ax:"),
    ],
)
def test_the_prefix_says_whose_counter_it_is(group: str, expected: bytes) -> None:
    assert prefix(group) == expected


def test_the_key_follows_as_it_is() -> None:
    assert SINGLE.counter(group_name("headgate", 0), "user:42") == b":user:42"
    assert SINGLE.counter(group_name("shop", 1), "user:42", "~") == b"shop#1~:user:42"
    assert SINGLE.counter(group_name("shop", 0), "{a}:%") == b"shop:{a}:%"


def test_a_long_key_is_replaced_by_its_digest() -> None:
    group = group_name("shop", 0)
    long, longer = SINGLE.counter(group, "x" * 201), SINGLE.counter(group, "x" * 202)
    assert long != longer
    assert long.startswith(b"shop!:")
    assert len(long) == len(b"shop!:") + 32
    assert SINGLE.counter(group, long.decode().partition(":")[2]) != long


def test_the_quick_way_to_a_name_is_the_same_name() -> None:
    for names in (SINGLE, CLUSTER):
        for group in (group_name("headgate", 0), group_name("shop", 3)):
            name = names.of_group(group)
            for key in ("user:42", "x" * 500, "\ud800", "\N{WATER WAVE}" * 60, "{}"):
                assert name(key) == names.counter(group, key), key[:10]


def test_tags_are_spread_evenly_over_the_slots() -> None:
    slots = [slot_of(tag + b"shop:user") for tag in tags()]
    assert len(slots) == TAGS
    assert [slot * TAGS // CLUSTER_SLOTS for slot in slots] == list(range(TAGS))


def test_all_counters_of_a_key_share_a_slot_in_a_cluster() -> None:
    groups = [group_name("headgate", 0), group_name("shop", 3), group_name("shop", "name")]
    for key in ("user:42", "{a}", "x" * 1_000):
        slots = {
            slot_of(CLUSTER.counter(g, key, mark))
            for g in groups
            for mark in ("", "+", "~", "^", "<", ">")
        }
        assert len(slots) == 1
    used = {CLUSTER.tag(CLUSTER.counter(groups[0], f"user:{n}")) for n in range(2_000)}
    assert len(used) == TAGS


@pytest.mark.parametrize(
    ("name", "slot"),
    [(b"123456789", 12_739), (b"{user1000}.following", 3_443), (b"foo{}{bar}", 8_363)],
)
def test_slots_are_those_that_redis_computes(name: bytes, slot: int) -> None:
    assert slot_of(name) == slot
