"""The quick way to take from several counters says and does what the long way does."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from hypothesis import event, given
from hypothesis import strategies as st

from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores import MemoryStore
from headgate.stores.base import concluded
from headgate.stores.operations import Check, Hold, Settle, Take
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decision import Decision

PACED: list[Limit] = [TokenBucket(5, 1), TokenBucket(7, 1.67), GCRA(2, 3), LeakyBucket(4, 0.5)]
OTHERS: list[Limit] = [
    FixedWindow(5, 3),
    SlidingWindowLog(3, 2),
    SlidingWindowCounter(6, 4, 2),
]
GROUPS = ("a", "b", "c")

CHECK = st.tuples(
    st.sampled_from(GROUPS),
    st.sampled_from("kkkl"),
    st.sampled_from((0, 0, 0, 0, 1)),
    st.sampled_from((0, 1, 1, 1, 1, 2, 3, 8)),
)
CHECKS = st.lists(CHECK, min_size=1, max_size=3, unique_by=lambda one: one[0]) | st.lists(
    CHECK, min_size=1, max_size=4
)
TIMES = st.sampled_from((0, 0, 0, 1, SECOND // 7, SECOND // 7, SECOND, 2 * SECOND, -SECOND // 2))
STEPS = st.lists(st.tuples(TIMES, CHECKS, st.sampled_from("tttttthse")), min_size=5, max_size=30)


def run(store: MemoryStore, checks: tuple[Check, ...]) -> list[Decision]:
    outcomes = store.run(Take(checks))
    pairs = zip(checks, outcomes, strict=True)
    return [concluded(check.key, check.limit, outcome) for check, outcome in pairs]


def quickly(store: MemoryStore, checks: tuple[Check, ...]) -> list[Decision]:
    found = store.take_quickly(checks)
    event("quick" if found is not None else "long")
    return run(store, checks) if found is None else list(found)


@given(st.lists(st.sampled_from(PACED + OTHERS), min_size=3, max_size=3), STEPS)
def test_both_ways_decide_and_charge_alike(
    limits: list[Limit], steps: list[tuple[int, list[tuple[str, str, int, int]], str]]
) -> None:
    clock = ManualClock(1_000)
    quick, slow = MemoryStore(clock=clock), MemoryStore(clock=clock)
    for later_ns, asked, verb in steps:
        clock.set((clock() + later_ns) / SECOND)
        # A group has its own limit, at times that of another, as after a change of the policy.
        checks = tuple(
            Check(group, key, limits[(GROUPS.index(group) + shift) % 3], cost)
            for group, key, shift, cost in asked
        )
        if verb == "h":
            hold = Hold(checks[:1], "name", SECOND)
            assert quick.run(hold) == slow.run(hold)
        elif verb == "s":
            settle = Settle(checks[:1], "name", charge_lapsed=False)
            assert quick.run(settle) == slow.run(settle)
        elif verb == "e":  # equal limits that are other objects
            checks = tuple(
                Check(one.group, one.key, type(one.limit)(*_fields(one.limit)), one.cost)
                for one in checks
            )
        assert quickly(quick, checks) == run(slow, checks)
        assert len(quick) == len(slow)


def _fields(limit: Limit) -> list[object]:
    return [getattr(limit, field.name) for field in fields(limit)]  # type: ignore[arg-type]


def test_what_was_seen_lately_is_taken_quickly_whatever_the_algorithm() -> None:
    for limits in (PACED[:2], OTHERS[:2], [PACED[0], OTHERS[0]]):
        store = MemoryStore(clock=ManualClock(1_000))
        checks = tuple(Check(f"{limit}", "key", limit) for limit in limits)
        assert store.take_quickly(checks) is None
        store.run(Take(checks))
        assert store.take_quickly(checks) is not None


def test_a_table_that_was_dropped_is_found_again() -> None:
    clock = ManualClock(1_000)
    store = MemoryStore(clock=clock)
    checks = (Check("a", "k", TokenBucket(5, 5)), Check("b", "k", TokenBucket(5, 5)))
    for _ in range(3):
        store.run(Take(checks))
        assert store.take_quickly(checks) is not None
        clock.advance(3_600)
        for _ in range(9):
            store.run(Take((Check("c", "k", TokenBucket(5, 5)),)))
        assert store.take_quickly(checks) is None
