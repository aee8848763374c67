"""The memory store is a dict of counters: sweeps, rotation and the fast path do not show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import example, given

from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Take
from headgate.testing import ManualClock
from tests.support.histories import LATELY, MINUTE, SECOND, examples
from tests.support.limit_kinds import limit_of
from tests.support.store_histories import LIMITS, SAME, SLOTS, VERBS, Call, Pair, calls

if TYPE_CHECKING:
    from headgate.limits import Limit


def _play(history: list[Call], limits: list[Limit]) -> tuple[MemoryStore, ManualClock]:
    clock = ManualClock()
    clock.advance_ns(LATELY)
    store = MemoryStore(clock=clock)
    pair = Pair(store, clock)
    for call in history:
        pair.call(call, limits[call.limit])
    return store, clock


@examples(250)
@given(SAME)
def test_every_reply_is_that_of_the_pure_algorithm(history: list[Call]) -> None:
    _play(history, LIMITS)


@examples(150)
@given(calls(("hit", "hit", "hit", "hold"), [0, 7]))
@example([Call("hold", 0, "a", 0, 2), Call("hit", 0, "a", 0), Call("hit", 3 * SECOND, "a", 0)])
def test_the_fast_path_is_the_pure_algorithm(history: list[Call]) -> None:
    _play(history, LIMITS)


@examples(250)
@given(calls(VERBS, list(range(len(LIMITS)))))
@example([Call("hold", 0, "a", 0, 2), Call("settle", 0, "a", 3, 3)])
@example([Call("hold", 0, "a", 0, 2), Call("hold", 0, "a", 3, 2, "s"), Call("hit", 0, "a", 0)])
def test_counters_are_carried_from_limit_to_limit(history: list[Call]) -> None:
    _play(history, LIMITS)


@examples(150)
@given(calls(("enter", "enter", "renew", "leave", "peek", "reset"), [0, 1, 2]))
def test_slots_are_leased_as_the_pure_algorithm_says(history: list[Call]) -> None:
    _play(history, list(SLOTS))


@examples(60)
@given(calls(VERBS, list(range(len(LIMITS)))))
def test_idle_counters_vanish_while_others_are_asked(history: list[Call]) -> None:
    store, clock = _play(history, LIMITS)
    clock.advance_ns(366 * 86_400 * SECOND)
    for _ in range(100):
        store.run(Take((Check("another", "z", LIMITS[0]),)))
        clock.advance_ns(SECOND)
    assert len(store) <= 1


def test_a_look_under_another_limit_takes_nothing_away() -> None:
    store = MemoryStore(clock=ManualClock(1000))
    five, three = limit_of("fixed_window", 5, MINUTE), limit_of("fixed_window", 3, MINUTE)
    admitted = 0
    for _ in range(20):
        admitted += store.run(Take((Check("g", "k", five),)))[0].allowed
        store.run(Take((Check("g", "k", three),), consume=False))
    assert admitted == 5
