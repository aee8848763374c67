"""Pots: what is asked of the store, in which order, and what a fleet admits with them."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import pytest
from headgate.stores.layers.leases.pots import (
    AVOID_NS,
    FILL_WITHIN_NS,
    UNDER_WAY_NS,
    USELESS_NS,
    Drawn,
    Pots,
    Steps,
)

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.limits import Accuracy, FixedWindow, TokenBucket
from headgate.stores.layers.leases.lease import Split
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Draw, GrantLease, Operation, Pour, Reset, Take
from headgate.testing import ManualClock
from headgate.units import MILLISECOND
from tests.support.lease_pots import LIFE_NS, Fleet

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = TokenBucket(1000, 100)
SPLIT = Split(parts=4, share=8, cap=120)
USED = 500
CHECK = Check("g", "hot", LIMIT)


class Driven:
    """One node on one store, whose operations are kept."""

    def __init__(self) -> None:
        self.clock = ManualClock(1000)
        self.store = MemoryStore(clock=self.clock)
        self.pots = Pots("node", self.clock)
        self.seen: list[Operation[Any]] = []
        self.store.run(Take((Check("g", "hot", LIMIT, USED),)))

    def take(self, cost: int = 1, extra: int = 0, pots: Pots | None = None) -> Drawn:
        check = Check("g", "hot", LIMIT, cost)
        return self.drive((pots or self.pots).take(check, SPLIT, extra, LIFE_NS))

    def drive(
        self,
        steps: Steps,
        before: Callable[[Operation[Any]], None] | None = None,
        first: Operation[Any] | None = None,
    ) -> Drawn:
        self.seen = []
        try:
            operation = first or next(steps)
            while True:
                self.seen.append(operation)
                if before is not None:
                    before(operation)
                operation = steps.send(self.store.run(operation))
        except StopIteration as done:
            return cast("Drawn", done.value)

    @property
    def verbs(self) -> list[str]:
        return [type(operation).__name__ for operation in self.seen]

    def remaining(self) -> int:
        (outcome,) = self.store.run(Take((CHECK,), consume=False))
        return outcome.remaining


def test_an_empty_pot_is_filled_by_whoever_finds_it_and_the_counter_decides_its_request() -> None:
    driven = Driven()
    drawn = driven.take()
    assert driven.verbs == ["Draw", "Take", "Draw", "GrantLease", "Pour", "ReleaseSlot"]
    assert drawn.amount == 0
    assert drawn.outcome is not None
    assert drawn.outcome.allowed
    assert driven.remaining() == 1000 - USED - 1 - SPLIT.pour


def test_what_is_in_the_pot_is_drawn_in_one_round_trip() -> None:
    driven = Driven()
    driven.take()
    for _ in range(SPLIT.pour):
        assert driven.take() == Drawn(1)
        assert driven.verbs == ["Draw"]
    assert driven.remaining() == 1000 - USED - 1 - SPLIT.pour
    assert driven.take().outcome is not None


def test_more_than_the_request_is_drawn_for_the_loan_of_the_node_but_not_more_than_allowed() -> (
    None
):
    driven = Driven()
    driven.take()
    assert driven.take(cost=1, extra=1) == Drawn(2)
    assert driven.take(cost=1, extra=100) == Drawn(SPLIT.largest_draw)


def test_a_cost_that_no_pot_is_meant_for_goes_to_the_counter() -> None:
    driven = Driven()
    assert driven.take(cost=SPLIT.largest_draw + 1) == Drawn()
    assert driven.take(cost=0) == Drawn()
    assert driven.verbs == []


def test_a_pot_is_gone_before_its_loan_is() -> None:
    driven = Driven()
    driven.take()
    pour = next(operation for operation in driven.seen if isinstance(operation, Pour))
    assert pour.ttl_ns == LIFE_NS - UNDER_WAY_NS

    def slowly(operation: Operation[Any]) -> None:
        if isinstance(operation, GrantLease):
            driven.clock.advance_ns(40 * MILLISECOND)

    driven.clock.advance_ns(LIFE_NS)
    driven.drive(driven.pots.take(CHECK, SPLIT, 0, LIFE_NS), slowly)
    pour = next(operation for operation in driven.seen if isinstance(operation, Pour))
    assert pour.ttl_ns == LIFE_NS - UNDER_WAY_NS - 40 * MILLISECOND


def test_while_one_fills_a_pot_others_look_elsewhere_and_then_leave_it_to_the_counter() -> None:
    driven = Driven()
    first = driven.pots.take(CHECK, SPLIT, 0, LIFE_NS)
    operation = next(first)
    while not isinstance(operation, GrantLease):
        operation = first.send(driven.store.run(operation))
    assert driven.take() == Drawn()
    assert driven.verbs == ["Draw", "Take", "Draw"]
    draws = [operation.key for operation in driven.seen if isinstance(operation, Draw)]
    assert draws[0] != draws[1]


def test_who_gets_the_slot_after_the_pot_was_filled_draws_and_lends_nothing() -> None:
    driven = Driven()
    second = driven.pots.take(CHECK, SPLIT, 0, LIFE_NS)
    reply = driven.store.run(next(second))
    assert reply is None
    driven.take()
    assert driven.drive(second, first=second.send(reply)) == Drawn(1)
    assert driven.verbs == ["Take", "Draw", "ReleaseSlot"]


def test_before_the_counter_refuses_another_pot_is_tried() -> None:
    driven = Driven()
    others = [Pots(f"node-{n}", driven.clock) for n in range(40)]
    for pots in others:
        driven.take(pots=pots)
    driven.store.run(Take((Check("g", "hot", LIMIT, driven.remaining()),)))
    outcomes = [driven.take(pots=pots) for pots in others for _ in range(40)]
    refused = [drawn.outcome for drawn in outcomes if not drawn.amount]
    assert sum(drawn.amount for drawn in outcomes) > 0
    assert refused
    assert not any(outcome.allowed for outcome in refused if outcome is not None)
    pots_left = [
        driven.store.run(Draw("pots of g", key, 1)) for key in driven.pots._keys("hot", SPLIT.parts)
    ]
    assert pots_left == [None] * SPLIT.parts


def test_nodes_spread_over_the_pots() -> None:
    homes = Counter(Pots(f"node-{n}", ManualClock())._home("hot", 8) for n in range(400))
    assert len(homes) == 8
    assert max(homes.values()) < 2 * min(homes.values())


def test_a_pot_that_would_last_too_short_is_not_filled_and_left_alone_for_a_while() -> None:
    driven = Driven()
    driven.store.run(Reset((CHECK,)))
    drawn = driven.drive(driven.pots.take(CHECK, SPLIT, 0, UNDER_WAY_NS))
    assert drawn.outcome is not None
    assert driven.verbs == ["Draw", "Take", "Draw", "GrantLease", "GrantLease", "ReleaseSlot"]
    assert driven.remaining() == 1000 - 1
    assert driven.take() == Drawn()
    assert driven.verbs == []
    driven.clock.advance_ns(USELESS_NS)
    assert driven.take().outcome is not None


def test_who_had_the_slot_for_too_long_does_not_pour() -> None:
    driven = Driven()

    def slow_at(verb: type[Operation[Any]]) -> Callable[[Operation[Any]], None]:
        def pause(operation: Operation[Any]) -> None:
            if isinstance(operation, verb):
                driven.clock.advance_ns(FILL_WITHIN_NS)

        return pause

    drawn = driven.drive(driven.pots.take(CHECK, SPLIT, 0, LIFE_NS), slow_at(GrantLease))
    assert drawn.outcome is not None
    assert "Pour" not in driven.verbs
    driven = Driven()
    drawn = driven.drive(driven.pots.take(CHECK, SPLIT, 0, LIFE_NS), slow_at(Take))
    assert drawn == Drawn()
    assert "GrantLease" not in driven.verbs


def test_after_its_shard_has_failed_a_pot_is_left_alone_for_a_while() -> None:
    driven = Driven()
    steps = driven.pots.take(CHECK, SPLIT, 0, LIFE_NS)
    next(steps)
    with pytest.raises(StoreError, match="gone"):
        steps.throw(StoreError("gone"))
    assert driven.take() == Drawn()
    assert driven.verbs == []
    driven.clock.advance_ns(AVOID_NS)
    assert driven.take().outcome is not None


def test_when_the_answer_to_a_pour_is_lost_nobody_fills_the_pot_until_the_slot_lapses() -> None:
    driven = Driven()
    steps = driven.pots.take(CHECK, SPLIT, 0, LIFE_NS)
    operation = next(steps)
    while not isinstance(operation, Pour):
        operation = steps.send(driven.store.run(operation))
    with pytest.raises(StoreError):
        steps.throw(StoreError("no answer"))
    same_home = next(
        pots
        for pots in (Pots(f"node-{n}", driven.clock) for n in range(100))
        if pots._home("hot", 4) == driven.pots._home("hot", 4)
    )
    assert driven.take(pots=same_home) == Drawn()
    driven.clock.advance_ns(LIFE_NS)
    assert isinstance(driven.take(pots=same_home).outcome, Outcome)


def test_names_and_failures_of_ever_new_keys_take_no_memory() -> None:
    pots = Pots("node", ManualClock())
    for n in range(3000):
        steps = pots.take(Check("g", f"key-{n}", LIMIT), SPLIT, 0, LIFE_NS)
        next(steps)
        with pytest.raises(StoreError):
            steps.throw(StoreError("gone"))
    assert len(pots._names) <= 1024
    assert len(pots._avoided) <= 1024


BUCKET = TokenBucket(300, 1000)
TERMS = Accuracy(max_overshoot=Fraction(4, 5), split=4)
CAP = 240


def fleet(seed: int, *, nodes: int = 12, batch: int = 3) -> Fleet:
    split = Split.of(BUCKET, TERMS)
    assert split is not None
    return Fleet(BUCKET, split, seed=seed, nodes=nodes, batch=batch)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_no_interval_exceeds_the_bound(seed: int) -> None:
    """Bursts, with pots left full, and pauses that let the bucket fill before the next burst."""
    driven = fleet(seed, nodes=8 + seed * 2, batch=seed % 7)
    for _ in range(3):
        for seconds, per_second in (
            (0.03, driven.rng.choice([4000, 7000, 9000])),
            (driven.rng.uniform(0.02, 0.2), 1),
            (0.015, 30_000),
            (0.3, driven.rng.choice([1, 100])),
        ):
            driven.run(seconds, per_second=per_second, crashes=True, pauses=True)
    most = driven.most_in_any_interval(1000)
    assert most <= BUCKET.quota + CAP, f"seed {seed}: {most}"
    assert driven.most_held <= CAP, f"seed {seed}"
    assert driven.most_in_a_pot <= driven.split.share, f"seed {seed}"
    assert driven.operations["Pour"] > 1


@pytest.mark.parametrize("seed", range(4))
def test_in_saturation_no_more_is_lost_than_what_is_lent(seed: int) -> None:
    driven = fleet(seed)
    began_ns = driven.clock()
    driven.run(1.0, per_second=4000)
    exact = BUCKET.quota + 1000 * (driven.clock() - began_ns) / 10**9
    assert driven.refused
    assert exact - CAP <= len(driven.admitted) <= exact + CAP, f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_a_fixed_window_is_never_exceeded(seed: int) -> None:
    limit = FixedWindow(300, 0.3)
    split = Split.of(limit, TERMS)
    assert split is not None
    driven = Fleet(limit, split, seed=seed, nodes=10, batch=seed)
    driven.run(1.5, per_second=2500, crashes=True, pauses=True)
    windows = Counter(at_ns * 10 // (3 * 10**9) for at_ns in driven.admitted)
    assert max(windows.values()) <= 300, f"seed {seed}: {windows}"
    assert len(windows) > 3
    assert driven.operations["Pour"] > 5


def test_most_requests_are_decided_by_pots() -> None:
    driven = fleet(1, nodes=40, batch=0)
    driven.run(0.2, per_second=3000)
    driven.operations.clear()
    driven.admitted.clear()
    driven.run(1.0, per_second=990)
    asked = driven.operations
    assert asked["GrantLease"] < len(driven.admitted) / 3
    assert asked["Draw"] < 2 * len(driven.admitted)
