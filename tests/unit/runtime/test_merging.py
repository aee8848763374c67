"""What a store is told when it is back, step by step."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.limits import FixedWindow
from headgate.runtime.reconciliation import BATCH, LONGEST_START, PAUSE, Owing, merging
from headgate.stores import Check, MemoryStore, Take, TakeEach
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import StoreFault

TEN = FixedWindow(10, 3_600)


def owing(**amounts: int) -> Owing:
    made = Owing()
    made.add([Check("g", key, TEN, amount) for key, amount in amounts.items()])
    return made


def store(**used: int) -> MemoryStore:
    made = MemoryStore(clock=ManualClock(1_200))
    for key, amount in used.items():
        made.run(Take((Check("g", key, TEN, amount),)))
    return made


def merge(
    owed: Owing,
    told: Callable[[TakeEach], object],
    used: Callable[[str, str], int] = lambda _group, _key: 10**6,
) -> list[float]:
    """Run a whole merge; the pauses it made."""
    pauses: list[float] = []
    steps = merging(owed, used, Random(7))
    reply: object = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration:
            return pauses
        reply = None
        if isinstance(step, TakeEach):
            reply = told(step)
        else:
            pauses.append(step)


@pytest.mark.parametrize(("used", "owed", "after"), [(0, 4, 4), (3, 4, 7), (8, 4, 10), (10, 4, 10)])
def test_the_store_is_charged_what_is_owed_or_what_is_left(
    used: int, owed: int, after: int
) -> None:
    there = store(a=used) if used else store()
    merge(owing(a=owed), there.run)
    assert there.used_in("g", "a") == after


def test_only_what_still_counts_here_is_told() -> None:
    there = store()
    here = {"a": 2, "b": 0}
    merge(owing(a=5, b=5), there.run, lambda _, key: here[key])
    assert (there.used_in("g", "a"), there.used_in("g", "b")) == (2, 0)


def test_it_is_told_in_small_batches_with_pauses_between_after_a_time_of_ones_own() -> None:
    owed = Owing()
    owed.add([Check("g", str(n), TEN, 1) for n in range(2 * BATCH + 1)])
    sizes: list[int] = []
    there = store()

    def told(each: TakeEach) -> object:
        sizes.append(len(each.takes))
        return there.run(each)

    first, *pauses = merge(owed, told)
    assert sizes == [BATCH, BATCH, 1]
    assert 0 <= first <= LONGEST_START
    assert len(set(pauses)) == 3
    assert all(PAUSE / 2 <= pause <= 2 * PAUSE for pause in pauses)


@pytest.mark.parametrize(
    ("reason", "kept"), [("circuit_open", 3), ("loading", 3), ("timeout", 0), ("unreachable", 0)]
)
def test_when_the_store_goes_again_it_stops_and_what_may_have_been_done_is_not_repeated(
    reason: StoreFault, kept: int
) -> None:
    owed = owing(a=1, b=2, c=3)
    merge(owed, lambda _: StoreError("gone", reason=reason))
    assert len(owed) == kept


def test_one_of_a_batch_may_fail_alone() -> None:
    owed = owing(a=1, b=2, c=3)
    there = store()
    asked = 0

    def told(each: TakeEach) -> object:
        nonlocal asked
        asked += 1
        replies: list[Any] = [there.run(take) for take in each.takes]
        if asked == 1:
            replies[1] = StoreError("down", reason="cluster_down")
            replies[2] = StoreError("slow", reason="timeout")
        return tuple(replies)

    there.run(Take((Check("g", "b", TEN, 9),)))  # so that it was not charged there
    merge(owed, told)
    assert there.used_in("g", "a") == 1
    assert there.used_in("g", "b") == 10
    assert there.used_in("g", "c") == 3
    assert len(owed) == 0


def test_a_rest_that_gets_lost_is_not_told_again() -> None:
    owed = owing(a=5)
    there = store(a=8)
    calls: list[TakeEach] = []

    def told(each: TakeEach) -> object:
        calls.append(each)
        return there.run(each) if len(calls) == 1 else StoreError("gone", reason="circuit_open")

    merge(owed, told)
    assert [call.takes[0].checks[0].cost for call in calls] == [5, 2]
    assert len(owed) == 0
    assert there.used_in("g", "a") == 8


@pytest.mark.parametrize(
    ("reason", "undone"),
    [
        ("timeout", False),
        ("unreachable", False),
        ("unavailable", False),
        ("circuit_open", True),
        ("readonly", True),
    ],
)
def test_after_a_time_out_nobody_knows(reason: StoreFault, *, undone: bool) -> None:
    assert StoreError("x", reason=reason).is_undone == undone
