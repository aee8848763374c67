"""The contract itself: it can be kept on a coarse clock, and stores that break it are caught."""

from collections.abc import Callable
from dataclasses import replace
from secrets import token_hex
from typing import Any, TypeVar, cast

import pytest

from headgate.algorithms import Outcome
from headgate.limits import EXACT, Accuracy
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Operation,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing import ManualClock, StoreContract
from headgate.testing.capabilities import Contract, needs
from tests.contract.constants import ConstantContract
from tests.contract.partial import PartialContract
from tests.contract.queues import QueueContract, QueueHistoryContract
from tests.contract.slot_shares import (
    KeepingContract,
    SharesContract,
    SharesHistoryContract,
)

R = TypeVar("R")

Change = Callable[[Any], Any]


def same(thing: Any) -> Any:
    return thing


class ChangedStore(Store):
    """A memory store that hears *asked* instead of each operation and answers *reply* instead."""

    def __init__(
        self, clock: Callable[[], int], asked: Change = same, reply: Change = same
    ) -> None:
        self.store = MemoryStore(clock=clock)
        self.asked = asked
        self.reply = reply

    def run(self, operation: Operation[R]) -> R:
        return cast("R", self.reply(self.store.run(self.asked(operation))))


def to_microseconds(reply: Any) -> Any:
    """*reply* with its times rounded up to what a store that counts microseconds can say."""
    if isinstance(reply, Outcome):
        wait_ns = reply.retry_after_ns
        return reply._replace(
            retry_after_ns=None if wait_ns is None else -(-wait_ns // 1_000) * 1_000,
            reset_after_ns=-(-reply.reset_after_ns // 1_000) * 1_000,
            delay_ns=-(-reply.delay_ns // 1_000) * 1_000,
            place_ns=-(-reply.place_ns // 1_000) * 1_000,
        )
    return tuple(map(to_microseconds, reply)) if isinstance(reply, tuple) else reply


class ExactTurns:
    """The turns that a store promised to the nanosecond, by what was told of them."""

    def __init__(self) -> None:
        self.told: dict[tuple[str, str, int], list[int]] = {}
        self.takes: list[Check] = []

    def asked(self, operation: Any) -> Any:
        takes = operation.takes if isinstance(operation, TakeEach) else (operation,)
        self.takes = [check for take in takes for check in getattr(take, "checks", ())]
        if not isinstance(operation, CancelQueued):
            return operation
        turns = []
        for check, told in zip(operation.checks, operation.places_ns, strict=True):
            known = self.told.get((check.group, check.key, told))
            turns.append(known.pop() if known else told)
        return CancelQueued(operation.checks, tuple(turns))

    def reply(self, reply: Any) -> Any:
        for check, outcome in zip(self.takes, _outcomes(reply), strict=False):
            told = to_microseconds(outcome).place_ns
            place = check.group, check.key, told
            self.told.setdefault(place, []).append(outcome.place_ns)
        return to_microseconds(reply)


def _outcomes(reply: Any) -> list[Outcome]:
    if isinstance(reply, Outcome):
        return [reply]
    return [one for part in reply for one in _outcomes(part)] if isinstance(reply, tuple) else []


class TestStoreThatCountsMicroseconds(
    StoreContract,
    ConstantContract,
    PartialContract,
    QueueContract,
    QueueHistoryContract,
    SharesContract,
    SharesHistoryContract,
    KeepingContract,
):
    tick_ns = 1_000

    def make_store(self, clock: ManualClock) -> ChangedStore:
        turns = ExactTurns()
        return ChangedStore(lambda: clock() // 1_000 * 1_000, turns.asked, turns.reply)

    def test_retry_after_is_exact_when_only_a_vacant_place_fits(self) -> None:
        """Not here: the store inside counts nanoseconds, and does not know that its clock goes in
        steps of a thousand. To it a vacancy that begins between two of them has passed."""


def each_check(key: Callable[[str], str] = same, group: Callable[[str], str] = same) -> Change:
    """A change of every check in an operation."""

    def change(check: Check) -> Check:
        return replace(check, key=key(check.key), group=group(check.group))

    def changed(operation: Any) -> Any:
        if isinstance(operation, TakeEach):
            return TakeEach(tuple(map(changed, operation.takes)))
        return replace(operation, checks=tuple(map(change, operation.checks)))

    return changed


def ignored(kind: type) -> Change:
    """Operations of *kind* are about another key than the one they name."""
    elsewhere = each_check(key=lambda _: "elsewhere")
    return lambda operation: elsewhere(operation) if type(operation) is kind else operation


def charge_instead_of_take(operation: Any) -> Any:
    is_hit = isinstance(operation, Take) and operation.consume and operation.lease is None
    return Charge(operation.checks) if is_hit else operation


def consume_when_peeking(operation: Any) -> Any:
    return replace(operation, consume=True) if isinstance(operation, Take) else operation


def half_of_a_stack(operation: Any) -> Any:
    first_again = replace(operation, checks=operation.checks[:1] * len(operation.checks))
    return first_again if isinstance(operation, Take) else operation


def held_for_ever(operation: Any) -> Any:
    return replace(operation, ttl_ns=10**18) if isinstance(operation, Hold) else operation


def backwards(operation: Any) -> Any:
    return TakeEach(operation.takes[::-1]) if isinstance(operation, TakeEach) else operation


def later(by_ns: int) -> Change:
    def changed(reply: Any) -> Any:
        if isinstance(reply, Outcome):
            wait_ns = reply.retry_after_ns
            return reply._replace(retry_after_ns=wait_ns + by_ns if wait_ns else wait_ns)
        return tuple(map(changed, reply)) if isinstance(reply, tuple) else reply

    return changed


@pytest.mark.parametrize(
    ("broken_promise", "asked"),
    [
        ("a_denied_cost_consumes_nothing", charge_instead_of_take),
        ("peek_returns_what_a_hit_would_and_changes_nothing", consume_when_peeking),
        ("stacked_limits_do_not_share_a_counter", half_of_a_stack),
        ("a_denial_by_one_limit_charges_no_other", half_of_a_stack),
        ("every_key_has_a_counter_of_its_own", each_check(key=str.strip)),
        ("every_key_has_a_counter_of_its_own", each_check(key=lambda key: key[:65_536])),
        ("namespaces_do_not_share_counters", each_check(group=lambda _: "one")),
        ("namespaces_do_not_share_counters", each_check(group=str.lower)),
        ("hit_many_is_in_order_and_each_for_itself", backwards),
        ("a_reservation_expires", held_for_ever),
        ("a_commit_charges_what_was_used", ignored(Settle)),
        ("a_charge_is_recorded_beyond_the_limit", ignored(Charge)),
        ("a_refund_returns_units", ignored(Refund)),
        ("reset_makes_a_key_as_new", ignored(Reset)),
        ("a_released_slot_is_free_at_once", ignored(ReleaseSlot)),
        ("a_renewed_slot_lasts_longer", ignored(RenewSlot)),
        (
            "nodes_allow_at_most_the_limit_and_the_bound_in_any_interval",
            each_check(key=lambda key: key + token_hex(2)),
        ),
        *[("a_random_history_is_that_of_the_memory_store", ignored(one)) for one in (Take, Refund)],
        *[
            ("a_random_history_of_a_queue_is_that_of_the_memory_store", ignored(one))
            for one in (Take, Charge, CancelQueued)
        ],
        *[
            ("a_random_history_of_slots_is_that_of_the_memory_store", ignored(one))
            for one in (RenewSlot, ReleaseSlot, Reset)
        ],
    ],
)
def test_a_store_that_does_something_else_is_caught(broken_promise: str, asked: Change) -> None:
    assert not is_kept(broken_promise, lambda clock: ChangedStore(clock, asked=asked))
    assert is_kept(broken_promise, ChangedStore)


@pytest.mark.parametrize("by_ns", [-1, 1])
def test_a_store_whose_waits_are_a_nanosecond_off_is_caught(by_ns: int) -> None:
    promise = "retry_after_is_exact_to_the_tick"
    assert not is_kept(promise, lambda clock: ChangedStore(clock, reply=later(by_ns)))


def test_a_store_on_a_clock_of_its_own_is_caught() -> None:
    own_clock = ManualClock(1_700_000_000)
    assert not is_kept("retry_after_is_exact_to_the_tick", lambda _: ChangedStore(own_clock))


def test_what_a_store_does_not_promise_is_not_collected() -> None:
    class Approximate(StoreContract):
        accuracy = Accuracy(batch=3)

    class Exact(Approximate):
        accuracy = EXACT

    def is_collected(cls: type[StoreContract], promise: str) -> bool:
        return getattr(cls, f"test_{promise}") is not None

    for cls, is_exact in ((Approximate, False), (Exact, True)):
        assert is_collected(cls, "retry_after_is_exact_to_the_tick") == is_exact
        assert is_collected(cls, "a_denied_cost_consumes_nothing")


def test_a_test_that_its_own_class_excludes_is_collected_where_it_applies() -> None:
    class Unable(Contract):
        is_able = False

        @needs("is_able")
        def test_it(self) -> None:
            pass

    class Able(Unable):
        is_able = True

    class Neither(Able):
        is_able = False

    assert [one.test_it is not None for one in (Unable, Able, Neither)] == [False, True, False]


def is_kept(promise: str, make: Callable[[ManualClock], Store]) -> bool:
    class Case(StoreContract):
        def make_store(self, clock: ManualClock) -> Store:
            return make(clock)

    case = Case()
    case.setup_method()
    try:
        getattr(case, f"test_{promise}")()
    except AssertionError:
        return False
    finally:
        case.teardown_method()
    return True
