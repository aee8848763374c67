"""Leased stores whose hot counters are split: loans refilled from pots, sync and async."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from fractions import Fraction
from typing import Any, TypeVar

import pytest
from headgate.stores.layers.leases.async_store import LeasedStore

from headgate.errors import StoreError
from headgate.limits import Accuracy, TokenBucket
from headgate.stores.base import Store
from headgate.stores.layers.leases import pots as drawing
from headgate.stores.layers.leases.store import LeasedStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Draw, GrantLease, Operation, Pour, Take
from headgate.testing import ManualClock
from headgate.units import MILLISECOND

R = TypeVar("R")

LIMIT = TokenBucket(2000, 2000)
CAP = 400
SPLIT = Accuracy(max_overshoot=Fraction(1, 5), split=4)
WHOLE = Accuracy(max_overshoot=Fraction(1, 5))
CHECK = Check("g", "hot", LIMIT)


@pytest.fixture(autouse=True)
def _hot_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred requests make a key hot: thousands a second would take long to drive."""
    monkeypatch.setattr(drawing, "HOT_TRIPS", 1)
    monkeypatch.setattr(drawing, "WORTH", 0)


class Seen(Store):
    """A store that counts what is asked of it, and may fail."""

    grants_leases = True

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.verbs: Counter[str] = Counter()
        self.on_counter = 0
        self.fails_to: type[Operation[Any]] | None = None

    def run(self, operation: Operation[R]) -> R:
        self.verbs[type(operation).__name__] += 1
        self.on_counter += isinstance(operation, Take) and operation.checks[0] == CHECK
        if self.fails_to is not None and isinstance(operation, self.fails_to):
            raise StoreError("gone")
        return self.inner.run(operation)


class Fleet:
    """Nodes on one store, asked at random."""

    def __init__(self, terms: Accuracy, *, nodes: int = 8, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        self.seen = Seen(MemoryStore(clock=self.clock))
        self.nodes = [
            LeasedStore(self.seen, clock=self.clock, holder=f"node-{n}", keeps=False)
            for n in range(nodes)
        ]
        for node in self.nodes:
            node.adopt({"g": terms})

    def run(self, seconds: float, *, per_second: int) -> int:
        """How many of the requests were admitted."""
        admitted = 0
        for _ in range(int(seconds * per_second)):
            self.clock.advance(1 / per_second)
            node = self.rng.choice(self.nodes)
            admitted += node.run(Take((CHECK,)))[0].allowed
            if self.rng.random() < 0.01:
                node.keep()
        return admitted


@pytest.mark.parametrize("seed", range(2))
def test_a_split_counter_admits_what_a_whole_one_does_within_what_may_be_lent(seed: int) -> None:
    fleet = Fleet(SPLIT, seed=seed)
    admitted = fleet.run(1.0, per_second=5000)
    exact = LIMIT.quota + 2000
    assert exact - CAP <= admitted <= exact + CAP, f"seed {seed}"
    assert fleet.seen.verbs["Pour"] > 10


def test_the_counter_of_a_hot_key_is_asked_less_often_when_it_is_split() -> None:
    asked = {}
    for split in (4, 1):
        fleet = Fleet(Accuracy(max_overshoot=Fraction(1, 20), split=split), nodes=60)
        fleet.run(0.7, per_second=3000)
        fleet.seen.verbs.clear()
        fleet.seen.on_counter = 0
        fleet.run(0.7, per_second=1900)
        asked[split] = fleet.seen.verbs["GrantLease"] + fleet.seen.on_counter
    assert asked[4] < asked[1] / 2, asked


def test_a_counter_that_is_not_asked_too_often_is_not_drawn_from_pots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawing, "HOT_TRIPS", 1000)
    fleet = Fleet(SPLIT)
    fleet.run(0.5, per_second=3000)
    assert not {"Draw", "Pour"} & set(fleet.seen.verbs)


def test_a_pot_that_is_no_better_than_a_few_loans_is_not_drawn_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drawing, "WORTH", 4)
    fleet = Fleet(SPLIT, nodes=3)
    fleet.run(0.7, per_second=5000)  # loans begin small and grow
    fleet.seen.verbs.clear()
    fleet.run(0.5, per_second=5000)
    assert not {"Draw", "Pour"} & set(fleet.seen.verbs)


def test_a_counter_that_is_not_split_has_no_pots() -> None:
    fleet = Fleet(WHOLE)
    fleet.run(0.5, per_second=3000)
    assert not {"Draw", "Pour"} & set(fleet.seen.verbs)


def test_a_node_never_has_more_than_was_lent_to_it_and_pots_fill_it_up() -> None:
    fleet = Fleet(SPLIT, nodes=3)
    refilled = 0
    for _ in range(3000):
        before = [store._desk.units_held() for store in fleet.nodes]
        fleet.run(0.0004, per_second=2500)
        for node, held in zip(fleet.nodes, before, strict=True):
            for table in node._desk.book._tables:
                for loan in table.loans.values():
                    assert loan.left + loan.drawing <= loan.facts.lent
            refilled += node._desk.units_held() > held
    assert refilled
    assert fleet.seen.verbs["Draw"]


def test_an_admitted_request_tells_figures_that_can_be() -> None:
    fleet = Fleet(SPLIT)
    fleet.run(0.5, per_second=3500)
    for _ in range(300):
        fleet.clock.advance(0.0005)
        outcome = fleet.rng.choice(fleet.nodes).run(Take((CHECK,)))[0]
        assert 0 <= outcome.remaining <= LIMIT.quota
        assert outcome.reset_after_ns >= 0
        assert outcome.allowed == (outcome.retry_after_ns == 0)


def test_when_the_shard_of_a_pot_fails_one_request_fails_and_the_next_goes_to_the_counter() -> None:
    fleet = Fleet(SPLIT, nodes=1)
    fleet.run(0.6, per_second=3000)
    fleet.seen.fails_to = Draw
    failed = 0
    for _ in range(200):
        try:
            fleet.run(0.001, per_second=1000)
        except StoreError:
            failed += 1
    assert failed == 1
    (table,) = fleet.nodes[0]._desk.book._tables
    assert all(loan.drawing == 0 for loan in table.loans.values())


@pytest.mark.parametrize("verb", [GrantLease, Pour, Take])
def test_whatever_fails_nothing_is_left_set_aside(verb: type[Operation[Any]]) -> None:
    fleet = Fleet(SPLIT, nodes=2)
    fleet.run(0.6, per_second=3000)
    fleet.seen.fails_to = verb
    for _ in range(50):
        try:
            fleet.run(0.002, per_second=1000)
        except StoreError:
            continue
    for node in fleet.nodes:
        for table in node._desk.book._tables:
            assert all(loan.drawing == 0 for loan in table.loans.values())


def test_a_node_that_gets_no_loan_for_the_loans_of_others_draws_what_it_needs() -> None:
    terms = Accuracy(max_overshoot=Fraction(1, 100), split=4)
    fleet = Fleet(terms, nodes=60)
    fleet.run(0.7, per_second=2500)
    crowded = [table.crowded for node in fleet.nodes for table in node._desk.book._tables]
    assert any(crowded)
    assert fleet.seen.verbs["Draw"]


def test_hot_keys_are_told() -> None:
    fleet = Fleet(SPLIT, nodes=1)
    fleet.run(1.0, per_second=1000)
    fleet.nodes[0].run(Take((Check("g", "cold", LIMIT),)))
    (hot, *rest) = fleet.nodes[0].hot_keys(5)
    assert (hot.group, hot.key) == ("g", "hot")
    assert hot.per_second == pytest.approx(500, rel=0.2)
    assert [heavy.key for heavy in rest] == ["cold"]
    assert fleet.nodes[0]._desk.hot_count() == 1


def test_the_async_store_draws_too() -> None:
    clock = ManualClock(1_000_000)
    inner = MemoryStore(clock=clock)
    nodes = [
        LeasedStore(inner, clock=clock, holder=f"node-{n}", keeps=False) for n in range(6)
    ]
    for node in nodes:
        node.adopt({"g": SPLIT})
    rng = random.Random(3)
    drawn = []

    async def scenario() -> int:
        admitted = 0
        for _ in range(6000):
            clock.advance_ns(MILLISECOND // 5)
            node = rng.choice(nodes)
            admitted += (await node.arun(Take((CHECK,))))[0].allowed
            drawn.append(node._desk.pots)
        return admitted

    admitted = asyncio.run(scenario())
    exact = LIMIT.quota + 1.2 * 2000
    assert exact - CAP <= admitted <= exact + CAP
    assert any(pots._names for pots in drawn)
    assert nodes[0].hot_keys(1)[0].key == "hot"
