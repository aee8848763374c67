"""A memory store that is full shares counters: stricter for newcomers, the same for the rest."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.algorithms import Outcome, algorithm_for
from headgate.limits import FixedWindow, Limit, TokenBucket
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Charge, Check, Reset, Settle, Take
from headgate.testing import ManualClock
from tests.support.histories import LATELY, SECOND, examples
from tests.support.limit_kinds import KIND, KINDS, limit_of

DAY = 86_400 * SECOND
MAX_KEYS = 5
OWN = [f"own{n}" for n in range(MAX_KEYS)]
SHARED_COUNTERS = 1024


def _full_store(limit: Limit) -> tuple[ManualClock, MemoryStore]:
    """A store in which `OWN` have all counters there are."""
    clock = ManualClock()
    clock.advance_ns(LATELY)
    store = MemoryStore(clock=clock, max_keys=MAX_KEYS)
    for key in OWN:
        store.run(Take((Check("g", key, limit),)))
    return clock, store


def _take(store: MemoryStore, limit: Limit, *asked: tuple[str, int]) -> bool:
    checks = tuple(Check("g", key, limit, cost) for key, cost in asked)
    return all(outcome.allowed for outcome in store.run(Take(checks)))


def _number(key: str) -> int:
    return hash(key) % SHARED_COUNTERS


def _sharing_with(key: str) -> str:
    """Another key that would share its counter with *key*."""
    names = (f"other{n}" for n in range(10**6))
    return next(name for name in names if _number(name) == _number(key))


_ASKED = st.lists(
    st.tuples(
        st.sampled_from(OWN) | st.integers(0, 400).map("spray{}".format),
        st.integers(0, 5),
        st.sampled_from([0, 0, SECOND, 60 * SECOND]),
    ),
    max_size=120,
)


@examples(80)
@given(KIND, _ASKED)
def test_a_full_store_never_admits_more_and_keeps_every_counter_it_has(
    kind: str, asked: list[tuple[str, int, int]]
) -> None:
    limit = limit_of(kind, 4, 2 * DAY)
    algorithm = algorithm_for(limit)
    clock, store = _full_store(limit)
    states: dict[str, Any] = {key: algorithm.charge(None, 1, LATELY) for key in OWN}
    for key, cost, later in asked:
        clock.advance_ns(later)
        (outcome,) = store.run(Take((Check("g", key, limit, cost),)))
        state, expected = algorithm.take(states.get(key), cost, clock())
        if outcome.allowed:
            assert expected.allowed
            states[key] = state
        if key in OWN:
            assert outcome == expected
        assert len(store) <= MAX_KEYS + SHARED_COUNTERS


@examples(60)
@given(
    KIND, st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, SECOND, DAY])), max_size=150)
)
def test_a_store_that_empties_and_fills_again_never_admits_more(
    kind: str, asked: list[tuple[int, int]]
) -> None:
    limit = limit_of(kind, 2, 3 * SECOND)
    algorithm = algorithm_for(limit)
    clock, store = _full_store(limit)
    states: dict[str, Any] = {key: algorithm.charge(None, 1, LATELY) for key in OWN}
    for number, later in asked:
        clock.advance_ns(later)
        key = f"own{number}"
        state, expected = algorithm.take(states.get(key), 1, clock())
        if _take(store, limit, (key, 1)):
            assert expected.allowed
            states[key] = state


_NAMES = st.sampled_from(OWN) | st.integers(0, 20).map("spray{}".format)


@examples(80)
@given(KIND, st.lists(st.lists(_NAMES, min_size=2, max_size=3, unique=True), max_size=60))
def test_several_keys_in_one_take_are_all_charged_when_the_store_is_full(
    kind: str, asked: list[list[str]]
) -> None:
    limit = limit_of(kind, 4, 2 * DAY)
    _, store = _full_store(limit)
    taken = dict.fromkeys(OWN, 1)
    for keys in asked:
        if _take(store, limit, *((key, 1) for key in keys)):
            taken.update({key: taken.get(key, 0) + 1 for key in keys})
    assert all(units <= 4 for units in taken.values())


@pytest.mark.parametrize("kind", KINDS)
def test_spraying_keys_frees_nobody(kind: str) -> None:
    limit = limit_of(kind, 4, DAY)
    _, store = _full_store(limit)
    assert _take(store, limit, (OWN[0], 3))
    for n in range(5_000):
        store.run(Take((Check("g", f"spray{n}", limit),)))
    assert not _take(store, limit, (OWN[0], 1))
    assert len(store) <= MAX_KEYS + SHARED_COUNTERS


def test_two_keys_in_one_take_are_both_charged_when_the_store_is_full() -> None:
    limit = TokenBucket(5, Fraction(1, 1000))
    clock = ManualClock(1000)
    store = MemoryStore(clock=clock, max_keys=10)
    for n in range(10):
        store.run(Take((Check("g", f"own{n}", limit),)))
    taken = 1 + sum(_take(store, limit, (f"spray{n}", 1), ("own0", 1)) for n in range(100))
    assert taken <= 5


def test_two_keys_that_share_a_counter_are_both_charged_to_it() -> None:
    limit = TokenBucket(5, Fraction(1, 1000))
    _, store = _full_store(limit)
    other = _sharing_with("one")
    taken = sum(2 * _take(store, limit, ("one", 1), (other, 1)) for _ in range(10))
    assert taken <= 5


def test_a_key_that_moves_to_another_limit_keeps_what_others_share_there() -> None:
    before, after = TokenBucket(5, Fraction(1, 1000)), TokenBucket(6, Fraction(1, 1000))
    _, store = _full_store(before)
    other = _sharing_with(OWN[0])
    assert _take(store, after, (other, 6))
    _take(store, after, (OWN[0], 1))
    assert not _take(store, after, (other, 1))


def test_a_key_that_shares_a_counter_keeps_what_it_used_when_its_limit_changes() -> None:
    before, after = TokenBucket(5, Fraction(1, 1000)), TokenBucket(6, Fraction(1, 1000))
    _, store = _full_store(before)
    assert _take(store, before, ("new", 5))
    assert not _take(store, after, ("new", 2))


def test_the_reset_of_a_key_with_a_counter_of_its_own_leaves_the_shared_one() -> None:
    limit = TokenBucket(5, Fraction(1, 1000))
    _, store = _full_store(limit)
    other = _sharing_with(OWN[0])
    assert _take(store, limit, (other, 5))
    store.run(Reset((Check("g", OWN[0], limit),)))
    assert not _take(store, limit, (other, 1))


@pytest.mark.parametrize("group", ["g", "another"])
def test_idle_counters_of_a_limit_nobody_uses_any_more_make_room(group: str) -> None:
    clock, store = _full_store(TokenBucket(4, 4))
    clock.advance(10**7)
    limit = TokenBucket(5, Fraction(1, 1000))
    for _ in range(50):
        store.run(Take((Check(group, "new", limit),)))
        clock.advance(1)
    assert len(store) <= 1


def test_a_prepared_take_and_run_count_together_however_many_limits_come_and_go() -> None:
    limit = FixedWindow(3, 60)
    store = MemoryStore(clock=ManualClock(1000))
    take = store.prepare([("g", limit)]).take
    for n in range(40):
        store.run(Take((Check("g", "x", FixedWindow(100 + n, 60)),)))
    assert [take("k", (1,))[0].allowed for _ in range(4)] == [True, True, True, False]
    assert not _take(store, limit, ("k", 1))


class _Skewed:
    """A clock of somebody's own, with an attribute that has nothing to do with us."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __call__(self) -> int:
        return LATELY


@pytest.mark.parametrize("offset", [5 * SECOND, -5 * SECOND])
def test_a_clock_with_an_offset_of_its_own_is_a_clock_like_any_other(offset: int) -> None:
    take = MemoryStore(clock=_Skewed(offset)).prepare([("g", TokenBucket(1000, 1))]).take
    assert sum(take("k", (1,))[0].allowed for _ in range(1_100)) == 1_000


def test_a_time_before_the_epoch_is_charged_once() -> None:
    take = MemoryStore(clock=ManualClock(-1000)).prepare([("g", TokenBucket(10, 1))]).take
    assert [take("k", (1,))[0].remaining for _ in range(4)] == [9, 8, 7, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_debt_of_a_newcomer_is_kept_by_a_full_store(kind: str) -> None:
    limit = limit_of(kind, 4, DAY)
    _, store = _full_store(limit)
    store.run(Charge((Check("g", "new", limit, 100),)))
    store.run(Settle((Check("g", "new", limit, 100),), "late", charge_lapsed=True))
    outcome: Outcome = store.run(Take((Check("g", "new", limit),)))[0]
    assert not outcome.allowed
    assert outcome.reset_after_ns > DAY
