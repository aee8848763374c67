"""A full store: idle counters make room, those in use stay, further keys share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headgate import RateLimiter
from headgate.errors import StoreError
from headgate.limits import FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Check, Hold, Take
from headgate.stores.shm import file
from headgate.stores.shm.table import OVERFLOW_COUNTERS
from headgate.testing import ManualClock
from tests.support.shm_stores import fresh_store

if TYPE_CHECKING:
    from headgate.stores import Store
    from headgate.stores.shm import ShmStore

MANY = 1_400
"""More than there are cells in a store of 512 KB, which is smaller than any URL may ask for."""


@pytest.fixture(autouse=True)
def small_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MIN_SIZE", 512 << 10)


def limiter(store: Store, limit: Limit) -> RateLimiter:
    return RateLimiter(limit, store=store, name="api", on_store_failure="fail_closed")


def used_cells(store: ShmStore) -> list[int]:
    """The cells that hold the counter of one key."""
    opened = store._files.current
    assert opened is not None
    return [cell for bucket in range(len(opened.own)) for cell in opened.own.used_cells(bucket)]


@pytest.mark.parametrize("limit", [FixedWindow(3, 1_000), TokenBucket(3, 0.001)], ids=str)
def test_spraying_keys_frees_nobody_and_gives_no_fresh_counters(limit: Limit) -> None:
    with fresh_store(ManualClock(1_700_000_000), "size=512KB") as store:
        shared = limiter(store, limit)
        assert shared.hit("victim", 3).allowed
        admitted = sum(shared.hit(f"key {n}").allowed for n in range(MANY))
        own = len(used_cells(store))
        assert own < MANY - 300
        assert not shared.hit("victim"), "its counter is still there"
        assert own <= admitted <= own + 3 * OVERFLOW_COUNTERS
        again = sum(shared.hit(f"new key {n}").allowed for n in range(500))
        assert admitted + again <= own + 3 * OVERFLOW_COUNTERS


def test_nearly_all_cells_are_used_before_keys_share() -> None:
    with fresh_store(ManualClock(1_700_000_000), "size=512KB") as store:
        shared = limiter(store, FixedWindow(3, 1_000))
        shared.hit("first")
        opened = store._files.current
        assert opened is not None
        room = len(opened.own) * 16
        for n in range(room * 8 // 10):
            shared.hit(f"key {n}")
        assert len(used_cells(store)) > room * 79 // 100


def test_idle_counters_make_room() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, FixedWindow(1, 10))
        for n in range(MANY):
            shared.hit(f"key {n}")
        late = [shared.hit(f"late key {n}").allowed for n in range(300)]
        assert not all(late), "most share a counter that is used up"
        clock.advance_ns(10 * 10**9)
        assert all(shared.hit(f"fresh key {n}") for n in range(200))


def test_idle_counters_vanish_while_others_are_used() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, SlidingWindowLog(50, 10))
        for n in range(100):
            for _ in range(12):
                shared.hit(f"key {n}")
                clock.advance_ns(1)
        assert len(used_cells(store)) == 100
        clock.advance_ns(11 * 10**9)
        for _ in range(150):
            clock.advance_ns(20 * 10**6)
            shared.hit("still here")
        assert len(used_cells(store)) == 1


def test_an_expired_hold_is_kept_while_its_charge_counts() -> None:
    clock, limit = ManualClock(1_700_000_000), FixedWindow(10, 3_600)
    with fresh_store(clock, "size=512KB") as store:
        check = Check("group", "held", limit, 10)
        store.run(Hold((check,), "name", 60 * 10**9, charges_expired=True))
        clock.advance(121)  # not even a record would be left
        shared = limiter(store, FixedWindow(50, 10))
        for _ in range(300):
            clock.advance_ns(20 * 10**6)
            shared.hit("busy")
        assert not store.run(Take((check.with_cost(1),)))[0].allowed
        clock.advance(3_600)
        for _ in range(150):
            clock.advance_ns(20 * 10**6)
            shared.hit("busy")
        assert len(used_cells(store)) == 1, "it is gone when it counts no more"


def test_blocks_that_were_freed_are_used_again() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, SlidingWindowLog(100, 1_000))
        for round_number in range(12):
            for _ in range(90):
                assert shared.hit("key"), round_number
                clock.advance_ns(1)
            shared.reset("key")


def test_records_that_have_no_room_to_grow_are_an_error_not_a_pass() -> None:
    with fresh_store(ManualClock(1_700_000_000), "size=512KB") as store:
        limit = TokenBucket(100, 1)

        def hold_all() -> None:
            for n in range(1_000):
                store.run(Hold((Check("group", f"key {n}", limit),), "x" * 5_000, 10**15))

        with pytest.raises(StoreError, match="full") as caught:
            hold_all()
        assert caught.value.reason == "out_of_memory"
        store.run(Take((Check("group", "another key", limit),)))


def test_new_counters_of_one_operation_do_not_take_the_same_cell() -> None:
    with fresh_store(ManualClock(1_700_000_000), "size=512KB") as store:
        limit = FixedWindow(1_000, 1_000)
        checks = tuple(Check("group", f"key {n}", limit, n) for n in range(1, 200))
        store.run(Take(checks))
        left = [outcome.remaining for outcome in store.run(Take(checks, consume=False))]
        assert left == [1_000 - n for n in range(1, 200)]


def test_who_shared_a_used_up_counter_gains_nothing_when_there_is_room_again() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, FixedWindow(1, 10_000))
        for n in range(MANY):
            shared.hit(f"key {n}")
        late = [f"late key {n}" for n in range(100)]
        for key in late:
            shared.hit(key)
        for n in range(250):
            shared.reset(f"key {n}")
        clock.advance_ns(2 * 10**9)
        assert not any(shared.hit(key).allowed for key in late)


def test_who_shared_a_counter_has_one_of_its_own_when_there_is_room_again() -> None:
    """A counter that many share is never idle; whoever stayed with it would be refused for ever."""
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, TokenBucket(10, 1))
        for n in range(MANY):
            shared.hit(f"sprayed {n}", 10)
        regular = [f"regular {n}" for n in range(150)]
        for _ in range(40):
            clock.advance_ns(10**9)
            admitted = [shared.hit(key).allowed for key in regular]
        assert all(admitted), "each asks no more than it may"
        assert len(used_cells(store)) >= len(regular)


def test_a_key_that_was_reset_does_not_go_on_with_what_others_used() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, FixedWindow(1, 10_000))
        for n in range(MANY):
            shared.hit(f"key {n}")
        early = [f"key {n}" for n in range(100)]
        for key in early:
            shared.reset(key)
        for n in range(150):
            clock.advance_ns(20 * 10**6)
            shared.hit(f"new key {n}")  # looks for a cell, and sweeps a bucket
        assert all(shared.hit(key).allowed for key in early)
        assert not any(shared.hit(key).allowed for key in early)


def test_keys_that_were_reset_do_not_share_a_counter_with_each_other() -> None:
    with fresh_store(ManualClock(1_700_000_000), "size=512KB") as store:
        shared = limiter(store, FixedWindow(1, 10_000))
        full = 0
        while shared.hit(f"key {full}"):
            full += 1
        early = [f"key {n}" for n in range(full)]
        for key in early:
            shared.reset(key)
        assert all(shared.hit(key).allowed for key in early)


def test_the_cell_of_a_key_that_was_reset_is_free_after_a_period_of_its_limit() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, FixedWindow(1, 1))
        assert shared.hit("key")
        shared.reset("key")
        clock.advance_ns(10**9)
        for _ in range(150):
            clock.advance_ns(20 * 10**6)
            shared.hit("other")
        assert len(used_cells(store)) == 1


def test_a_clock_set_back_past_a_sweep_mints_nothing() -> None:
    clock = ManualClock(1_700_000_000)
    with fresh_store(clock, "size=512KB") as store:
        shared = limiter(store, FixedWindow(10, 10))
        assert shared.hit("key", 10)
        clock.advance_ns(10 * 10**9)
        for _ in range(150):
            clock.advance_ns(20 * 10**6)
            store.run(Take((Check("group", "other", FixedWindow(10, 10), 0),)))
        assert not used_cells(store)
        clock.set(1_700_000_005)
        assert shared.hit("key", 10), "the time has passed: it was thrown away"
        assert not shared.hit("key")
        clock.set(1_700_000_009)
        assert not shared.hit("key")
