"""Leases and totals in the memory store: there is room for so many, and idle ones vanish."""

import pytest

from headgate.limits import FixedWindow, TokenBucket
from headgate.stores.operations import Check, GrantLease, MergeUsage, Take
from headgate.testing import ManualClock
from headgate.units import HOUR, MINUTE, SECOND
from tests.support.lease_store import MOST_HOLDERS, MOST_ORIGINS, LeaseGrantingStore

LIMIT = TokenBucket(1_000_000, 1_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(3_600)


def check(key: str, cost: int = 1) -> Check:
    return Check("g", key, LIMIT, cost)


def test_when_there_is_no_room_nothing_is_lent_and_the_check_is_taken(clock: ManualClock) -> None:
    store = LeaseGrantingStore(clock=clock, max_keys=2)
    assert store.run(GrantLease(check("a"), "n", 5, SECOND)).amount == 5
    assert store.run(GrantLease(check("b"), "n", 5, SECOND)).amount == 5
    third = store.run(GrantLease(check("c"), "n", 5, SECOND))
    assert (third.outcome.allowed, third.amount, third.holders) == (True, 0, 0)
    clock.advance(7_200)
    for _ in range(4):
        store.run(Take((check("d"),)))
        clock.advance(60)
    assert store.run(GrantLease(check("c"), "n", 5, SECOND)).amount == 5


def test_a_holder_too_many_gets_no_loan_and_its_check_is_taken(clock: ManualClock) -> None:
    store = LeaseGrantingStore(clock=clock)
    for n in range(MOST_HOLDERS):
        assert store.run(GrantLease(check("a"), f"n{n}", 1, MINUTE)).amount == 1
    late = store.run(GrantLease(check("a"), "late", 1, MINUTE, used=3))
    assert (late.outcome.allowed, late.amount, late.holders) == (True, 0, MOST_HOLDERS)
    assert late.outcome.remaining == LIMIT.capacity - 2 * MOST_HOLDERS - 1 - 3
    clock.advance(60)
    assert store.run(GrantLease(check("a"), "late", 1, MINUTE)).amount == 1


@pytest.mark.parametrize(
    ("ttl_ns", "kept_ns"), [(SECOND, MINUTE), (MINUTE, 10 * MINUTE), (HOUR, HOUR)]
)
def test_a_holder_is_remembered_for_ten_leases_within_bounds(
    ttl_ns: int, kept_ns: int, clock: ManualClock
) -> None:
    store = LeaseGrantingStore(clock=clock)

    def remaining(key: str) -> int:
        nothing = Check("g", key, FixedWindow(100, 86_400), 0)
        return store.run(GrantLease(nothing, "n", 0, ttl_ns, used=5)).outcome.remaining

    assert (remaining("early"), remaining("late")) == (95, 95)
    clock.advance_ns(kept_ns - 1)
    assert remaining("early") == 95, "reported twice, charged once"
    clock.advance_ns(1)
    assert remaining("late") == 90


def test_what_cannot_be_remembered_is_not_absorbed(clock: ManualClock) -> None:
    store = LeaseGrantingStore(clock=clock)
    for n in range(MOST_ORIGINS):
        store.run(MergeUsage((check("a"),), f"o{n}", 1, MINUTE))
    before = store.used_in("g", "a")
    store.run(MergeUsage((check("a", 100),), "another", 1, MINUTE))
    assert store.used_in("g", "a") == before
    clock.advance(60)
    (outcome,) = store.run(MergeUsage((check("a", 100),), "another", 1, MINUTE))
    assert outcome.remaining == LIMIT.capacity - 100


def test_a_key_that_shares_a_counter_gets_no_loan(clock: ManualClock) -> None:
    store = LeaseGrantingStore(clock=clock, max_keys=1)
    store.run(Take((check("a"),)))
    shared = store.run(GrantLease(check("b"), "n", 5, SECOND))
    assert (shared.outcome.allowed, shared.amount) == (True, 0)


def test_a_full_store_forgets_the_ledgers_of_idle_counters(clock: ManualClock) -> None:
    store = LeaseGrantingStore(clock=clock, max_keys=10)
    limit = FixedWindow(10, 10)
    for n in range(10):
        store.run(GrantLease(Check("lent", f"{n}", limit), "n", 5, SECOND, used=1))
    clock.advance(HOUR / SECOND)
    assert store.run(GrantLease(Check("lent", "another", limit), "n", 5, SECOND)).amount == 5


def test_the_loans_of_many_holders_never_exceed_the_cap(clock: ManualClock) -> None:
    store = LeaseGrantingStore(clock=clock)
    lent = [store.run(GrantLease(check("a"), f"{n}", 7, SECOND, cap=50)) for n in range(20)]
    assert sum(one.amount for one in lent) == 50
    assert max(one.leased for one in lent) == 50
