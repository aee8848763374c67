"""Reports of usage to a store that is back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.limits import FixedWindow
from headgate.runtime.drivers import drive
from headgate.runtime.reconciliation import BATCH, UnreportedUsage, report_batch
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Check, Take, TakeEach
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import StoreFault

TEN = FixedWindow(10, 3_600)


def unreported(**amounts: int) -> UnreportedUsage:
    made = UnreportedUsage()
    made.add([Check("g", key, TEN, amount) for key, amount in amounts.items()])
    return made


def store(**used: int) -> MemoryStore:
    made = MemoryStore(clock=ManualClock(1_200))
    for key, amount in used.items():
        made.run(Take((Check("g", key, TEN, amount),)))
    return made


class Replies(Store):
    """A store whose reply to each report is that of *reply*."""

    def __init__(self, reply: Callable[[TakeEach], Any]) -> None:
        self._reply = reply

    def run(self, operation: Any) -> Any:
        reply = self._reply(operation)
        if isinstance(reply, StoreError):
            raise reply
        return reply


def report(
    usage: UnreportedUsage,
    reply: Callable[[TakeEach], Any],
    used: Callable[[str, str], int] = lambda _group, _key: 10**6,
) -> bool:
    """Report batches until there is nothing left or the store has failed; False if it has."""
    while len(usage):
        if not drive(report_batch(Replies(reply), usage, used)):
            return False
    return True


@pytest.mark.parametrize(
    ("used", "unreported_amount", "after"), [(0, 4, 4), (3, 4, 7), (8, 4, 10), (10, 4, 10)]
)
def test_the_store_is_charged_the_unreported_usage_or_what_is_left(
    used: int, unreported_amount: int, after: int
) -> None:
    there = store(a=used) if used else store()
    report(unreported(a=unreported_amount), there.run)
    assert there.used_in("g", "a") == after


def test_only_usage_that_still_counts_here_is_reported() -> None:
    there = store()
    here = {"a": 2, "b": 0}
    report(unreported(a=5, b=5), there.run, lambda _, key: here[key])
    assert (there.used_in("g", "a"), there.used_in("g", "b")) == (2, 0)


def test_usage_is_reported_in_small_batches() -> None:
    usage = UnreportedUsage()
    usage.add([Check("g", str(n), TEN, 1) for n in range(2 * BATCH + 1)])
    sizes: list[int] = []
    there = store()

    def reply(each: TakeEach) -> object:
        sizes.append(len(each.takes))
        return there.run(each)

    assert report(usage, reply)
    assert sizes == [BATCH, BATCH, 1]


@pytest.mark.parametrize(
    ("reason", "kept"), [("circuit_open", 3), ("loading", 3), ("timeout", 0), ("unreachable", 0)]
)
def test_a_report_that_fails_is_repeated_only_if_it_was_surely_not_done(
    reason: StoreFault, kept: int
) -> None:
    usage = unreported(a=1, b=2, c=3)
    assert not report(usage, lambda _: StoreError("gone", reason=reason))
    assert len(usage) == kept


def test_one_of_a_batch_may_fail_alone() -> None:
    usage = unreported(a=1, b=2, c=3)
    there = store()
    asked = 0

    def reply(each: TakeEach) -> object:
        nonlocal asked
        asked += 1
        replies: list[Any] = [there.run(take) for take in each.takes]
        if asked == 1:
            replies[1] = StoreError("down", reason="cluster_down")
            replies[2] = StoreError("slow", reason="timeout")
        return tuple(replies)

    there.run(Take((Check("g", "b", TEN, 9),)))  # so that it was not charged there
    report(usage, reply)
    assert there.used_in("g", "a") == 1
    assert there.used_in("g", "b") == 10
    assert there.used_in("g", "c") == 3
    assert len(usage) == 0


def test_a_rest_whose_reply_is_lost_is_not_reported_again() -> None:
    usage = unreported(a=5)
    there = store(a=8)
    calls: list[TakeEach] = []

    def reply(each: TakeEach) -> object:
        calls.append(each)
        return there.run(each) if len(calls) == 1 else StoreError("gone", reason="circuit_open")

    assert not report(usage, reply)
    assert [call.takes[0].checks[0].cost for call in calls] == [5, 2]
    assert len(usage) == 0
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
def test_after_a_timeout_it_is_unknown_whether_the_operation_was_done(
    reason: StoreFault, *, undone: bool
) -> None:
    assert StoreError("x", reason=reason).is_undone == undone
