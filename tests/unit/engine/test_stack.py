"""What the limiters ask of a store: the operations, as values."""

from typing import Any, TypeVar, cast

import pytest

from headgate import Concurrency, FixedWindow, RateLimiter, Store, TokenBucket
from headgate.algorithms import Outcome
from headgate.stores.operations import (
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

R = TypeVar("R")

FITS = Outcome(allowed=True, remaining=1, retry_after_ns=0, reset_after_ns=0)


class RecordingStore(Store):
    """A store that allows everything and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def run(self, operation: Operation[R]) -> R:
        self.asked.append(operation)
        return cast("R", self._reply(operation))

    def _reply(self, operation: Any) -> Any:
        if isinstance(operation, TakeEach):
            return tuple(self._reply(take) for take in operation.takes)
        if isinstance(operation, Take | Hold | Charge | Refund):
            return (FITS,) * len(operation.checks)
        return True


@pytest.fixture
def store() -> RecordingStore:
    return RecordingStore()


BUCKET, WINDOW, SLOTS = TokenBucket(10, 1), FixedWindow(5, 60), Concurrency(2, 60)


def test_each_limit_of_a_stack_is_a_check_in_a_group_of_its_own(store: RecordingStore) -> None:
    RateLimiter([BUCKET, WINDOW], store=store, namespace="api").hit("key", 3)
    (take,) = store.asked
    assert isinstance(take, Take)
    assert take.consume
    assert take.checks[0] == Check(take.checks[0].group, "key", BUCKET, 3)
    assert take.checks[1] == Check(take.checks[1].group, "key", WINDOW, 3)
    assert len({check.group for check in take.checks}) == 2


def test_a_changed_limit_asks_for_the_same_counters(store: RecordingStore) -> None:
    RateLimiter(BUCKET, store=store).hit("key")
    RateLimiter(WINDOW, store=store).hit("key")
    before, after = store.asked
    assert before.checks[0].group == after.checks[0].group


def test_every_verb_is_one_operation(store: RecordingStore) -> None:
    limiter = RateLimiter(BUCKET, store=store)
    limiter.hit("key")
    limiter.peek("key")
    limiter.hit_many(["a", ("b", 2)])
    limiter.reserve("key", 2, ttl=5).commit(1)
    limiter.charge("key", 1)
    limiter.refund("key", 1)
    limiter.reset("key")
    kinds = [Take, Take, TakeEach, Hold, Settle, Charge, Refund, Reset]
    assert [type(operation) for operation in store.asked] == kinds
    assert not store.asked[1].consume
    assert [take.checks[0].cost for take in store.asked[2].takes] == [1, 2]
    assert store.asked[3].ttl_ns == 5_000_000_000
    assert store.asked[4].name == store.asked[3].name


def test_a_slot_is_taken_renewed_and_left_under_one_name(store: RecordingStore) -> None:
    with RateLimiter([BUCKET, SLOTS], store=store).slot("key") as slot:
        slot.renew()
    take, renew, leave = store.asked
    assert [type(operation) for operation in store.asked] == [Take, RenewSlot, ReleaseSlot]
    assert take.lease == renew.lease == leave.lease
    assert [check.limit for check in take.checks] == [BUCKET, SLOTS]
    assert [check.limit for check in renew.checks] == [SLOTS]


def test_no_two_reservations_or_slots_have_the_same_name(store: RecordingStore) -> None:
    limiter, slots = RateLimiter(BUCKET, store=store), RateLimiter(SLOTS, store=store)
    names = {limiter.reserve("key", 1).name for _ in range(100)}
    names |= {slots.slot("key").name for _ in range(100)}
    assert len(names) == 200
