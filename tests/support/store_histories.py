"""One history told to a store and to a book that knows only the pure algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from headgate.algorithms import Outcome
from headgate.limits import Concurrency
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Outcomes,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from tests.support.histories import MINUTE, SECOND
from tests.support.limit_kinds import KINDS, limit_of
from tests.support.reference_store import Book

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.stores.base import Place, Prepared, Store
    from headgate.testing import ManualClock

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


def calls(verbs: tuple[str, ...], limits: list[int]) -> st.SearchStrategy[list[Call]]:
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
    """A store and the book, asked the same. All times are whole ticks of *tick_ns*."""

    def __init__(self, store: Store, clock: ManualClock, *, tick_ns: int = 1) -> None:
        self.store = store
        self.clock = clock
        self.tick_ns = tick_ns
        self.book = Book()
        self.group = "g"
        self._prepared: dict[tuple[Place, ...], Prepared] = {}

    def hit(self, check: Check, now: int) -> None:
        outcomes = self._take((check.group, check.limit), key=check.key, cost=check.cost)
        assert outcomes == self.rounded(self.book.take([check], now))

    def hit_stacked(self, check: Check, other: Limit, now: int) -> None:
        """Hit two limits of the same key together."""
        beside = Check(f"{self.group} beside", check.key, other, check.cost)
        places = (check.group, check.limit), (beside.group, beside.limit)
        outcomes = self._take(*places, key=check.key, cost=check.cost)
        assert outcomes == self.rounded(self.book.take([check, beside], now))

    def _take(self, *places: Place, key: str, cost: int) -> Outcomes:
        """Take by a handle that was prepared once."""
        if places not in self._prepared:
            self._prepared[places] = self.store.prepare(places)
        return self._prepared[places].take((key,) * len(places), (cost,) * len(places))

    def rounded(self, outcomes: Outcomes) -> Outcomes:
        """*outcomes* as a store can tell them whose clock has ticks of *tick_ns*."""
        return tuple(
            Outcome(
                outcome.allowed,
                outcome.remaining,
                None if outcome.retry_after_ns is None else self._up(outcome.retry_after_ns),
                self._up(outcome.reset_after_ns),
            )
            for outcome in outcomes
        )

    def _up(self, nanoseconds: int) -> int:
        return -(-nanoseconds // self.tick_ns) * self.tick_ns

    def call(self, call: Call, limit: Limit) -> None:
        self.clock.advance_ns(self._up(call.later))
        now, store, book, up = self.clock(), self.store, self.book, self.rounded
        check = Check(self.group, call.key, limit, call.amount)
        other = call.key if call.verb == "twice" else call.key + "'"
        beside = Check(self.group, other, limit, 1)
        match call.verb:
            case "hit":
                self.hit(check, now)
            case "stack":
                self.hit_stacked(check, LIMITS[(call.amount + 3) % len(LIMITS)], now)
            case "take":
                assert store.run(Take((check,))) == up(book.take([check], now))
            case "all" | "twice":
                assert store.run(Take((check, beside))) == up(book.take([check, beside], now))
            case "each":
                each = store.run(TakeEach((Take((check,)), Take((beside,)))))
                assert each == (up(book.take([check], now)), up(book.take([beside], now)))
            case "peek":
                assert store.run(Take((check,), consume=False)) == up(book.look([check], now))
            case "charge":
                assert store.run(Charge((check,))) == up(book.charge(check, now))
            case "refund":
                assert store.run(Refund((check,))) == up(book.refund(check, now))
            case "reset":
                store.run(Reset((check,)))
                book.reset(check)
            case _:
                self._reserve_or_visit(call, check, now)

    def _reserve_or_visit(self, call: Call, check: Check, now: int) -> None:
        store, book, name = self.store, self.book, call.name
        match call.verb:
            case "hold" | "hold_to_charge":
                charges = call.verb == "hold_to_charge"
                held = store.run(Hold((check,), name, 2 * SECOND, charges))
                expected = book.hold(check, name, 2 * SECOND, now, charges_expired=charges)
                assert held == self.rounded(expected)
            case "settle":
                late = call.limit % 2 == 0
                settled = store.run(Settle((check,), name, late))
                assert settled == book.settle(check, name, now, charge_lapsed=late)
            case "enter":
                one = Check(check.group, check.key, check.limit)
                assert store.run(Take((one,), lease=name)) == self.rounded(
                    book.enter(one, name, now)
                )
            case "renew":
                assert store.run(RenewSlot((check,), name)) == book.renew(check, name, now)
            case "leave":
                assert store.run(ReleaseSlot((check,), name)) == book.leave(check, name, now)


VERBS = (
    "hit",
    "hit",
    "take",
    "all",
    "twice",
    "each",
    "peek",
    "charge",
    "refund",
    "reset",
    "hold",
    "hold_to_charge",
    "settle",
)
SAME = st.sampled_from(range(len(LIMITS))).flatmap(lambda n: calls((*VERBS, "stack"), [n]))
