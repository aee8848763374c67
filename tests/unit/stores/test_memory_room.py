"""The memory store: what goes, what stays, and how much there can be."""

from collections.abc import Callable

import pytest

from headgate import Concurrency, Hit, MemoryStore, RateLimiter
from headgate.algorithms import GCRAAlgorithm
from headgate.limits import parse_limit
from headgate.stores.operations import Check, Hold, Take
from headgate.testing import ManualClock
from headgate.units import SECOND

LIMITS = [
    "10/m",
    "10/m gcra",
    "10/m leaky_bucket",
    "10/m fixed_window",
    "10/m sliding_window_log",
    "10/m sliding_window_counter",
    "10/m; 20/m fixed_window",
]
OVERFLOW = 1_024
"""Counters that keys share for which there is no room; README and docs may say more."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(3_600)


def fill(limiter: RateLimiter, count: int, name: str = "old") -> None:
    for n in range(count):
        limiter.hit(f"{name} {n}")


@pytest.mark.parametrize("limits", LIMITS)
def test_idle_counters_vanish_as_calls_go_on(limits: str, clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter(limits, store=store)
    fill(limiter, 300)
    assert len(store) >= 300
    clock.advance(600)
    fill(limiter, 300, "new")
    clock.advance(600)
    for _ in range(300):
        limiter.hit("key")
        clock.advance(10)
    assert len(store) < 10


@pytest.mark.parametrize("limits", LIMITS)
def test_idle_counters_vanish_when_all_calls_are_for_one_busy_key(
    limits: str, clock: ManualClock
) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter(limits, store=store)
    fill(limiter, 300)
    clock.advance(600)
    for _ in range(1_000):
        limiter.hit("busy")
        clock.advance(2)
    assert len(store) < 10


@pytest.mark.parametrize(
    "call",
    [
        lambda limiter: limiter.hit("key"),
        lambda limiter: limiter.hit_many(["key"]),
        lambda limiter: limiter.charge("key", 1),
        lambda limiter: limiter.refund("key", 1),
        lambda limiter: limiter.reserve("key", 1, ttl=1).cancel(),
    ],
)
def test_any_call_sweeps(call: Callable[[RateLimiter], object], clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("10/m", store=store)
    fill(limiter, 200)
    clock.advance(600)
    for _ in range(200):
        call(limiter)
        clock.advance(1)
    assert len(store) < 10


def test_counters_in_use_outlive_every_sweep(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("1000/h", store=store)
    limiter.hit("slow", 1_000)
    for _ in range(600):
        limiter.hit("busy")
        clock.advance(5)
    assert limiter.peek("slow").remaining == 833


def test_the_counters_of_a_limit_that_was_replaced_vanish(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    fill(RateLimiter("10/m", store=store), 300)
    changed = RateLimiter("20/m", store=store)
    for _ in range(500):
        changed.hit("key")
        clock.advance(4)
    assert len(store) < 10


def test_the_counters_of_a_limiter_that_is_gone_vanish(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    fill(RateLimiter("10/m", store=store, namespace="gone"), 300)
    other = RateLimiter("10/m", store=store, namespace="here")
    for _ in range(500):
        other.hit("key")
        clock.advance(4)
    assert len(store) < 10


def test_idle_counters_of_one_limiter_leave_room_for_another(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=10)
    fill(RateLimiter("1/s", store=store, namespace="gone"), 10)
    clock.advance(3_600)
    here = RateLimiter("100/h", store=store, namespace="here")
    for _ in range(100):
        here.hit("first", 0)
        clock.advance(60)
    here.hit("first", 10)
    fill(here, 5_000, "sprayed")
    assert here.peek("first").remaining == 90, "it had to share a counter with others"


def test_reservations_and_slots_that_lapsed_leave_nothing(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("10/m", store=store)
    slots = RateLimiter(Concurrency(5, 60), store=store, namespace="slots")
    for n in range(200):
        limiter.reserve(f"key {n}", 1, ttl=30)
        slots.slot(f"key {n}").take()
    clock.advance(120)
    for _ in range(200):
        limiter.hit("key", 0)
        clock.advance(1)
    assert len(store) == 0


def size_of(thing: object, seen: set[int]) -> int:
    """How many objects *thing* holds on to, all in all."""
    if id(thing) in seen or isinstance(thing, type):
        return 0
    seen.add(id(thing))
    inside: list[object] = []
    if isinstance(thing, dict):
        inside = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set):
        inside = [*thing]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    inside += [getattr(thing, name, None) for name in slots if not name.startswith("__")]
    inside += getattr(thing, "__dict__", {}).values()
    return 1 + sum(size_of(part, seen) for part in inside)


def test_reservations_that_were_settled_leave_nothing_behind(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("10/m", store=store)
    limiter.reserve("key", 1, ttl=86_400).cancel()
    before = size_of(store, set())
    for _ in range(100):
        limiter.reserve("key", 1, ttl=86_400).cancel()
    assert size_of(store, set()) < before + 200


@pytest.mark.parametrize("limits", ["10/d fixed_window", "10/d", "10/d sliding_window_log"])
def test_an_expired_hold_is_kept_while_its_charge_counts(limits: str, clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    check = Check("g", "held", parse_limit(limits))
    store.run(Hold((check.with_cost(10),), "name", 60 * SECOND, charges_expired=True))
    clock.advance(121)  # not even a record would be left
    busy = RateLimiter("1000/s", store=store)
    for _ in range(300):  # the sweep sees all counters, again and again
        busy.hit("key")
        clock.advance(10)
    assert not store.run(Take((check,)))[0].allowed
    clock.advance(2 * 86_400)
    for _ in range(300):
        busy.hit("key")
        clock.advance(10)
    assert len(store) == 1, "it is gone when it counts no more"


def test_limiters_that_are_gone_leave_nothing_behind(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    RateLimiter("10/m", store=store)
    before = size_of(store, set())
    for _ in range(100):
        RateLimiter("10/m", store=store)
    assert size_of(store, set()) < before + 200


@pytest.mark.parametrize("limits", LIMITS[:6])
def test_spraying_keys_neither_grows_the_store_nor_frees_anybody(
    limits: str, clock: ManualClock
) -> None:
    store = MemoryStore(clock=clock, max_keys=50)
    limiter = RateLimiter(limits, store=store)
    limiter.hit("victim", 9)
    limiter.hit("attacker", 10)
    fill(limiter, 2_000, "sprayed")
    assert len(store) <= 50 + OVERFLOW
    assert limiter.peek("victim").remaining == 1
    assert limiter.hit("victim")
    assert not limiter.hit("attacker")


def test_a_caller_gets_no_fresh_counter_by_spraying_in_a_full_store(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=1)
    limiter = RateLimiter("10/m", store=store)
    limiter.hit("first")
    admitted = sum(limiter.hit(f"sprayed {n}").allowed for n in range(15_000))
    assert admitted <= 10 * OVERFLOW
    assert not any(limiter.hit("late", 10) for _ in range(10))


def test_a_full_store_has_room_again_when_counters_are_idle(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=10)
    limiter = RateLimiter("1/m", store=store)
    fill(limiter, 3_000)
    clock.advance(3_600)
    for n in range(1_500):
        assert limiter.hit(f"key {n}")
        clock.advance(60)
    assert len(store) < 20 + OVERFLOW


def test_every_verb_works_in_a_full_store(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=1)
    limiter = RateLimiter("10/m", store=store)
    limiter.hit("first")
    assert limiter.hit("second", 4).remaining == 6
    assert limiter.charge("second", 1).remaining == 5
    assert limiter.refund("second", 2).remaining == 7
    reservation = limiter.reserve("second", 3)
    assert limiter.peek("second").remaining == 4
    assert reservation.commit(1)
    assert limiter.peek("second").remaining == 6
    limiter.reset("second")
    assert limiter.peek("second").remaining == 10
    assert limiter.peek("first").remaining == 9


def test_a_changed_limit_keeps_what_was_consumed_in_a_full_store(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=1)
    before, after = RateLimiter("10/h", store=store), RateLimiter("20/h", store=store)
    before.hit("first")
    before.hit("second", 10)
    assert after.peek("second").remaining == 10


def test_a_counter_that_is_carried_over_frees_nobody_in_a_full_store(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=1)
    before, after = RateLimiter("10/h", store=store), RateLimiter("20/h", store=store)
    before.hit("own")
    sharers = [f"sharer {n}" for n in range(2 * OVERFLOW)]
    for sharer in sharers:
        after.charge(sharer, 20)
    after.hit("own")
    assert [sharer for sharer in sharers if after.hit(sharer)] == []


def test_names_of_counters_come_and_go(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("10/m", store=store)
    for n in range(500):
        limiter.hit_all([Hit("key", "1/s", name=f"rule {n}")])
        clock.advance(60)
    assert len(store) < 50


def test_no_call_examines_more_than_a_few_counters(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock=clock, max_keys=1)
    limiter = RateLimiter("10/m", store=store)
    fill(limiter, 3_000)
    assert len(store) > 900  # nearly all of them sharing
    examined: list[int] = []
    fresh_in = GCRAAlgorithm.fresh_in

    def counted(self: GCRAAlgorithm, state: int | None, now: int) -> int:
        examined.append(now)
        return fresh_in(self, state, now)

    monkeypatch.setattr(GCRAAlgorithm, "fresh_in", counted)
    for n in range(200):
        examined.clear()
        limiter.hit(f"new {n}")
        clock.advance(1)
        assert len(examined) <= 50


@pytest.mark.parametrize("limits", LIMITS)
def test_a_key_that_was_reset_does_not_take_over_what_others_used(
    limits: str, clock: ManualClock
) -> None:
    store = MemoryStore(clock=clock, max_keys=100)
    limiter = RateLimiter(limits, store=store)
    early = [f"old {n}" for n in range(20)]
    fill(limiter, 100)
    fill(limiter, 3_000, "sharing")
    for key in early:
        limiter.reset(key)
    for n in range(3_000):
        limiter.hit(f"new {n}")
    assert all(limiter.hit(key, 10).allowed for key in early)
    assert not any(limiter.hit(key).allowed for key in early)


def test_the_room_of_a_key_that_was_reset_is_free_after_a_period_of_its_limit(
    clock: ManualClock,
) -> None:
    store = MemoryStore(clock=clock, max_keys=10)
    limiter = RateLimiter("10/m", store=store)
    fill(limiter, 10)
    for n in range(10):
        limiter.reset(f"old {n}")
    clock.advance(60)
    for _ in range(100):
        clock.advance(6)
        limiter.hit("other")
    assert len(store) == 1


@pytest.mark.parametrize("limits", LIMITS)
def test_a_new_key_is_counted_after_all_counters_of_its_limit_vanished(
    limits: str, clock: ManualClock
) -> None:
    store = MemoryStore(clock=clock)
    limiter, other = (
        RateLimiter(limits, store=store),
        RateLimiter("10/m", store=store, name="other"),
    )
    fill(limiter, 300)
    clock.advance(600)
    for _ in range(300):
        other.hit("key")
        clock.advance(10)
    assert len(store) < 10
    assert [limiter.hit("new").allowed for _ in range(11)] == [True] * 10 + [False]


@pytest.mark.parametrize("limits", LIMITS)
def test_new_keys_take_all_room_that_there_is(limits: str, clock: ManualClock) -> None:
    store = MemoryStore(clock=clock, max_keys=101)
    limiter = RateLimiter(limits, store=store)
    fill(limiter, 1_000)
    assert not limiter.hit("too much", 1_000)
    for n in range(1_000):
        limiter.reset(f"old {n}")
    clock.advance(600)
    fill(limiter, 50, "new")
    assert all(limiter.hit(f"new {n}", 9).allowed for n in range(50))
    assert not any(limiter.hit(f"new {n}").allowed for n in range(50))


def test_idle_counters_vanish_after_the_clock_was_set_back(clock: ManualClock) -> None:
    store = MemoryStore(clock=clock)
    limiter = RateLimiter("10/m", store=store)
    fill(limiter, 300)
    clock.advance(600)
    limiter.hit("key")
    clock.advance_ns(-3_600 * 10**9)
    for n in range(300):
        limiter.hit(f"new {n}")
        clock.advance(6)
    assert len(store) < 400, "the new ones"
