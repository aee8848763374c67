"""The memory store is a dict of counters: sweeps, rotation and the fast path do not show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.limits import Concurrency
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Leave,
    Refund,
    Renew,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing import ManualClock

from .bookkeeping import Book
from .histories import LATELY, MINUTE, SECOND, examples
from .kinds import KINDS, limit_of

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.port import Hitter

LIMITS: list[Limit] = [
    *(limit_of(kind, 4, SECOND) for kind in KINDS),
    limit_of("token_bucket", 7, SECOND),
    limit_of("token_bucket", 3, 2 * MINUTE),
    limit_of("log", 2, SECOND),
    limit_of("counter", 9, SECOND),
    limit_of("fixed_window", 2, MINUTE),
]
SLOTS = [Concurrency(2, 1), Concurrency(1, 1), Concurrency(2, 90)]


class Call(NamedTuple):
    """After *later*, *verb* on *key* under the limit number *limit*."""

    verb: str
    later: int
    key: str
    limit: int = 0
    amount: int = 1
    name: str = "r"


def _calls(verbs: tuple[str, ...], limits: list[int]) -> st.SearchStrategy[list[Call]]:
    later = st.sampled_from([0, 0, 0, 1, SECOND // 4, SECOND // 3, SECOND]) | st.sampled_from(
        [SECOND + 1, 3 * SECOND, 30 * SECOND, MINUTE, 11 * MINUTE, 86_400 * SECOND]
    )
    call = st.builds(
        Call,
        st.sampled_from(verbs),
        later,
        st.sampled_from("abcdefghij"),
        st.sampled_from(limits),
        st.integers(0, 5) | st.just(1) | st.integers(0, 30),
        st.sampled_from("rs"),
    )
    return st.lists(call, max_size=60)


class Pair:
    """The store and the book, asked the same."""

    def __init__(self, *, max_keys: int = 1_000_000) -> None:
        self.clock = ManualClock()
        self.clock.advance_ns(LATELY)
        self.store = MemoryStore(clock=self.clock, max_keys=max_keys)
        self.book = Book()
        self._hitters: dict[Any, Hitter] = {}

    def hit(self, check: Check, now: int) -> None:
        decision = self._hitter((check.group, check.limit))(check.key, check.cost)
        (outcome,) = self.book.take([check], now)
        assert _figures(decision) == tuple(outcome)

    def hit_stacked(self, check: Check, other: Limit, now: int) -> None:
        """Hit two limits of the same key together."""
        beside = Check("beside", check.key, other, check.cost)
        hitter = self._hitter((check.group, check.limit), (beside.group, beside.limit))
        decision = hitter(check.key, check.cost)
        outcomes = self.book.take([check, beside], now)
        assert decision.allowed == all(outcome.allowed for outcome in outcomes)
        assert [_figures(part) for part in decision.limits] == [tuple(o) for o in outcomes]

    def _hitter(self, *places: tuple[str, Limit]) -> Hitter:
        if places not in self._hitters:
            hitter = self.store.hitter(places)
            assert hitter is not None
            self._hitters[places] = hitter
        return self._hitters[places]

    def call(self, call: Call, limit: Limit) -> None:
        self.clock.advance_ns(call.later)
        now, store, book = self.clock(), self.store, self.book
        check = Check("g", call.key, limit, call.amount)
        beside = Check("g", call.key + "'", limit, 1)
        match call.verb:
            case "hit":
                self.hit(check, now)
            case "stack":
                self.hit_stacked(check, LIMITS[(call.amount + 3) % len(LIMITS)], now)
            case "take":
                assert store.run(Take((check,))) == book.take([check], now)
            case "all":
                assert store.run(Take((check, beside))) == book.take([check, beside], now)
            case "each":
                each = store.run(TakeEach((Take((check,)), Take((beside,)))))
                assert each == (book.take([check], now), book.take([beside], now))
            case "peek":
                assert store.run(Take((check,), consume=False)) == book.look([check], now)
            case "charge":
                assert store.run(Charge((check,))) == book.charge(check, now)
            case "refund":
                assert store.run(Refund((check,))) == book.refund(check, now)
            case "reset":
                store.run(Reset((check,)))
                book.reset(check)
            case _:
                self._reserve_or_visit(call, check, now)

    def _reserve_or_visit(self, call: Call, check: Check, now: int) -> None:
        store, book, name = self.store, self.book, call.name
        match call.verb:
            case "hold":
                held = store.run(Hold((check,), name, 2 * SECOND))
                assert held == book.hold(check, name, 2 * SECOND, now)
            case "settle":
                late = call.limit % 2 == 0
                settled = store.run(Settle((check,), name, late))
                assert settled == book.settle(check, name, now, charge_lapsed=late)
            case "enter":
                one = Check(check.group, check.key, check.limit)
                assert store.run(Take((one,), lease=name)) == book.enter(one, name, now)
            case "renew":
                assert store.run(Renew((check,), name)) == book.renew(check, name, now)
            case "leave":
                assert store.run(Leave((check,), name)) == book.leave(check, name, now)


def _figures(decision: Decision) -> tuple[object, ...]:
    return (
        decision.allowed,
        decision.remaining,
        decision.retry_after_ns,
        decision.reset_after_ns,
    )


VERBS = ("hit", "hit", "take", "all", "each", "peek", "charge", "refund", "reset", "hold", "settle")
SAME = st.sampled_from(range(len(LIMITS))).flatmap(lambda n: _calls((*VERBS, "stack"), [n]))


def _play(calls: list[Call], limits: list[Limit]) -> Pair:
    pair = Pair()
    for call in calls:
        pair.call(call, limits[call.limit])
    return pair


@examples(250)
@given(SAME)
def test_every_reply_is_that_of_the_pure_algorithm(calls: list[Call]) -> None:
    _play(calls, LIMITS)


@examples(150)
@given(_calls(("hit", "hit", "hit", "hold"), [0, 7]))
@example([Call("hold", 0, "a", 0, 2), Call("hit", 0, "a", 0), Call("hit", 3 * SECOND, "a", 0)])
def test_the_fast_path_is_the_pure_algorithm(calls: list[Call]) -> None:
    _play(calls, LIMITS)


@examples(250)
@given(_calls(VERBS, list(range(len(LIMITS)))))
@example([Call("hold", 0, "a", 0, 2), Call("settle", 0, "a", 3, 3)])
@example([Call("hold", 0, "a", 0, 2), Call("hold", 0, "a", 3, 2, "s"), Call("hit", 0, "a", 0)])
def test_counters_are_carried_from_limit_to_limit(calls: list[Call]) -> None:
    _play(calls, LIMITS)


@examples(150)
@given(_calls(("enter", "enter", "renew", "leave", "peek", "reset"), [0, 1, 2]))
def test_slots_are_leased_as_the_pure_algorithm_says(calls: list[Call]) -> None:
    _play(calls, list(SLOTS))


@examples(60)
@given(_calls(VERBS, list(range(len(LIMITS)))))
def test_idle_counters_vanish_while_others_are_asked(calls: list[Call]) -> None:
    pair = _play(calls, LIMITS)
    pair.clock.advance_ns(366 * 86_400 * SECOND)
    for _ in range(100):
        pair.store.run(Take((Check("another", "z", LIMITS[0]),), consume=False))
    assert len(pair.store) == 0


def test_a_look_under_another_limit_takes_nothing_away() -> None:
    store = MemoryStore(clock=ManualClock(1000))
    five, three = limit_of("fixed_window", 5, MINUTE), limit_of("fixed_window", 3, MINUTE)
    admitted = 0
    for _ in range(20):
        admitted += store.run(Take((Check("g", "k", five),)))[0].allowed
        store.run(Take((Check("g", "k", three),), consume=False))
    assert admitted == 5
