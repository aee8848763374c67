"""Split counters: K sub-counters with 1/K of the limit each, one picked per request."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter, RateLimiter
from headgate.limits import (
    GCRA,
    Accuracy,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores.factory import unwrapped, wrapped
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.split import MARKS, SplitStore
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    Hold,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)
from headgate.stores.redis.naming import CLUSTER_SLOTS, Names, slot_of
from headgate.testing import ManualClock
from headgate.testing.store_contract.bounds import Referee
from headgate.units import MILLISECOND, SECOND
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from headgate.limits import Limit

GROUP = "api"
SPLIT = {GROUP: Accuracy(split=4)}
HUNDRED: tuple[Limit, ...] = (
    TokenBucket(100, 10),
    GCRA(rate=10, burst=100),
    LeakyBucket(100, 10),
    FixedWindow(100, 10),
    SlidingWindowLog(100, 10),
    SlidingWindowCounter(100, 10),
)


class Split:
    """A split store that picks one sub-counter after the other, and what is behind it."""

    def __init__(self, parts: int = 4, limit: Limit = HUNDRED[0]) -> None:
        self.clock = ManualClock(1_000.0)
        self.memory = LeaseGrantingStore(clock=self.clock)
        numbers = count()
        self.store = SplitStore(self.memory, pick=lambda below: next(numbers) % below)
        self.store.set_accuracies({GROUP: Accuracy(split=parts)})
        self.limit = limit

    def check(self, cost: int = 1, key: str = "k", group: str = GROUP) -> Check:
        return Check(group, key, self.limit, cost)

    def take(self, cost: int = 1) -> bool:
        return self.store.run(Take((self.check(cost),)))[0].allowed

    def left(self) -> int:
        return self.store.run(Take((self.check(0),), consume=False))[0].remaining

    def used(self) -> list[int]:
        """The units that are used in each sub-counter, beginning with the first."""
        group = f"split:{GROUP}"
        return [self.memory.used_in(group, f"k{mark}") for mark in MARKS[:4]]


@pytest.mark.parametrize("limit", HUNDRED)
def test_each_request_takes_from_one_sub_counter_and_all_have_the_limit(limit: Limit) -> None:
    split = Split(limit=limit)
    assert split.left() == 100
    assert [split.take(2) for _ in range(5)] == [True] * 5
    assert split.used() == [4, 2, 2, 2]
    assert split.left() == 90
    assert sum(split.take() for _ in range(200)) == 90
    assert split.left() == 0
    assert split.memory.used_in(GROUP, "k") == 0


@pytest.mark.parametrize("limit", HUNDRED[:3])
def test_random_picks_never_allow_more_than_the_limit_in_any_interval(limit: Limit) -> None:
    clock, random = ManualClock(1_000.0), Random(7)
    store = SplitStore(LeaseGrantingStore(clock=clock), pick=random.randrange)
    store.set_accuracies(SPLIT)
    referee = Referee(limit)
    for _ in range(3_000):
        clock.advance_ns(random.choice((1, 10, 60)) * MILLISECOND)
        cost = random.choice((1, 1, 5))
        if store.run(Take((Check(GROUP, "k", limit, cost),)))[0].allowed:
            referee.record(cost, clock())
    assert referee.excess <= 0
    assert referee.total > 500


def test_a_request_sees_the_figures_of_one_sub_counter() -> None:
    split = Split()
    (outcome,) = split.store.run(Take((split.check(5),)))
    assert (outcome.remaining, outcome.reset_after_ns) == (20, 2 * SECOND)
    split.store.run(Charge((split.check(100),)))
    (denied,) = split.store.run(Take((split.check(2),)))
    assert (denied.allowed, denied.retry_after_ns) == (False, 800 * MILLISECOND)


def test_a_cost_above_one_part_of_the_limit_never_fits() -> None:
    split = Split()
    assert split.take(25)
    (outcome,) = split.store.run(Take((split.check(26),)))
    assert (outcome.allowed, outcome.retry_after_ns) == (False, None)


def test_a_part_of_a_cost_is_taken_from_one_sub_counter() -> None:
    split = Split()
    granted, (outcome,) = split.store.run(TakeUpTo((split.check(30),)))
    assert (granted, outcome.allowed, outcome.remaining) == (25, False, 0)
    assert split.store.run(Take((split.check(),), consume=False))[0].remaining == 75
    parts = [split.store.run(TakeUpTo((split.check(30),)))[0] for _ in range(8)]
    assert sum(parts) == 75


def test_a_limit_with_fewer_units_than_parts_is_not_split() -> None:
    split = Split(parts=8, limit=TokenBucket(7, 1))
    assert sum(split.take() for _ in range(20)) == 7
    assert split.memory.used_in(GROUP, "k") == 7


def test_limits_that_cannot_be_divided_and_other_groups_are_not_split() -> None:
    split = Split()
    slot = Check(GROUP, "k", Concurrency(8, 60))
    assert split.store.run(Take((slot, split.check(group="other")), lease="a"))[0].allowed
    assert split.memory.run(Take((slot,), consume=False))[0].remaining == 7
    assert split.memory.used_in("other", "k") == 1


def test_a_peek_sums_up_all_sub_counters_and_takes_nothing() -> None:
    split = Split()
    split.take(25)
    look = Take((split.check(10), split.check(10, group="other")), consume=False)
    for outcomes in (split.store.run(look), split.store.run(TakeEach((look,)))[0]):
        assert isinstance(outcomes, tuple)
        assert [one.remaining for one in outcomes] == [75, 100]
        assert [one.allowed for one in outcomes] == [True, True]
        assert outcomes[0].reset_after_ns == 10 * SECOND
    assert [split.take(25) for _ in range(3)] == [True] * 3
    (outcome,) = split.store.run(Take((split.check(2),), consume=False))
    assert (outcome.allowed, outcome.retry_after_ns) == (False, 800 * MILLISECOND)


def test_charges_are_spread_in_full_as_debt_if_need_be() -> None:
    split = Split()
    split.store.run(Charge((split.check(10),)))
    assert sorted(split.used()) == [2, 2, 3, 3]
    split.store.run(Charge((split.check(150),)))
    assert sum(split.used()) == 160
    assert not split.take()


def test_a_refund_never_gives_back_more_than_was_used() -> None:
    for used, refund in ((40, 12), (3, 2), (8, 100)):
        split = Split()
        for _ in range(used):
            assert split.take()
        split.store.run(Refund((split.check(refund),)))
        assert split.left() <= 100
        assert split.left() >= 100 - used
        assert sum(split.take() for _ in range(200)) <= 100
    assert split.left() == 0


def test_a_reservation_is_settled_in_its_own_sub_counter() -> None:
    split = Split()
    for n in range(20):
        hold, settle = f"hold-{n}", (split.check(1),)
        before = split.used()
        assert split.store.run(Hold((split.check(5),), hold, SECOND))[0].allowed
        assert split.store.run(Settle(settle, hold, charge_lapsed=False))
        changes = [now - then for now, then in zip(split.used(), before, strict=True)]
        assert sorted(changes) == [0, 0, 0, 1]
    assert split.left() == 80


def test_an_expired_reservation_is_charged_and_corrected_in_its_own_sub_counter() -> None:
    split = Split()
    assert split.store.run(Hold((split.check(5),), "hold", SECOND, charges_expired=True))[0].allowed
    split.clock.advance_ns(SECOND)
    assert sorted(split.used()) == [0, 0, 0, 5]
    assert not split.store.run(Settle((split.check(2),), "hold", charge_lapsed=True))
    assert sorted(split.used()) == [0, 0, 0, 2]


def test_a_reset_resets_all_sub_counters() -> None:
    split = Split()
    split.store.run(Charge((split.check(80),)))
    split.store.run(Reset((split.check(0),)))
    assert split.left() == 100


def test_a_changed_number_of_parts_keeps_what_the_common_ones_used() -> None:
    split = Split()
    while split.take():
        pass
    split.store.set_accuracies({GROUP: Accuracy(split=8)})
    assert sum(split.take() for _ in range(200)) <= 100 // 8 * 4


def test_leases_of_a_split_counter_stay_within_the_bound() -> None:
    limit, clock = TokenBucket(400, 1), ManualClock(1_000.0)
    memory = LeaseGrantingStore(clock=clock)
    accuracies = {GROUP: Accuracy(max_overshoot=Fraction(1, 10), split=4)}
    nodes = [LeasedStore(SplitStore(memory), clock=clock, keeps=False) for _ in range(3)]
    for node in nodes:
        node.set_accuracies(accuracies)
    allowed = 0
    for _ in range(600):
        for node in nodes:
            allowed += node.run(Take((Check(GROUP, "k", limit),)))[0].allowed
            assert sum(one.units_held() for one in nodes) <= 40
        clock.advance_ns(MILLISECOND)
    for node in nodes:
        node.close()
    assert 300 < allowed <= 402
    grant = SplitStore(memory)
    grant.set_accuracies(accuracies)
    other = GrantLease(Check(GROUP, "new", limit, 1), "node", 100, SECOND, cap=40)
    assert grant.run(other).amount == 10


def test_a_handle_notices_that_its_group_is_split_or_no_longer() -> None:
    split = Split()
    split.store.set_accuracies({})
    prepared = split.store.prepare([(GROUP, split.limit), ("other", split.limit)])

    def remaining() -> list[int]:
        return [one.remaining for one in prepared.take(("k", "k"), (1, 1))]

    assert remaining() == [99, 99]
    split.store.set_accuracies(SPLIT)
    assert remaining() == [24, 98]
    split.store.set_accuracies({})
    assert remaining() == [98, 97]


def test_sub_counters_of_any_key_are_on_different_tags_of_a_cluster() -> None:
    names = Names(has_tags=True)
    assert len(set(MARKS)) == len(MARKS) == 64
    for key in ("k", "user:42", "", "x" * 300, "ключ", "{tag}"):
        for parts in (2, 8, 16):
            counters = [names.counter("split:g", key + mark) for mark in MARKS[:parts]]
            assert len({names.tag(name) for name in counters}) == parts
            sections = {slot_of(name) * parts // CLUSTER_SLOTS for name in counters}
            assert len(sections) == parts, "each part of the slots has one"


class Far(LeaseGrantingStore):
    """A memory store that is used like one on a server."""

    waits = True
    may_fail = True

    async def arun(self, operation):  # type: ignore[no-untyped-def]
        return self.run(operation)


def test_the_layer_is_there_once_some_group_is_split() -> None:
    far = Far()
    plain = RateLimiter("100/minute", store=far, namespace="plain")
    store = wrapped(far, None)
    assert isinstance(store, LeasedStore)
    assert not isinstance(store.inner, SplitStore)
    limiter = RateLimiter("100/minute", store=far, namespace="split", accuracy=Accuracy(split=4))
    assert isinstance(store.inner, SplitStore)
    assert unwrapped(store) is far
    assert limiter.hit("k").remaining == 24
    assert limiter.peek("k").remaining == 99
    assert plain.hit("k").remaining == 99


def test_a_limiter_in_an_event_loop_splits_its_counters() -> None:
    async def main() -> int:
        limiter = AsyncRateLimiter("100/minute", store=Far(), accuracy=Accuracy(split=4))
        allowed = 0
        for _ in range(400):
            allowed += bool(await limiter.hit("k"))
        return allowed

    assert asyncio.run(main()) <= 100


def test_outcomes_of_several_takes_keep_their_order() -> None:
    split = Split()
    costs = ((3, True), (0, False), (30, True))
    takes = [Take((split.check(cost),), consume=consume) for cost, consume in costs]
    replies = split.store.run(TakeEach(tuple(takes)))
    outcomes = [reply[0] for reply in replies if isinstance(reply, tuple)]
    assert [one.allowed for one in outcomes] == [True, True, False]
    assert outcomes[1].remaining == 97
