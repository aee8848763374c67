"""Prepared takes and decisions decide and charge as `run` does."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores import MemoryStore
from headgate.stores.base import conclude
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Operation,
    Reset,
    Settle,
    Take,
)
from headgate.testing import ManualClock
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decision import Decision
    from headgate.stores.base import Place, Prepared
    from headgate.stores.operations import Outcomes

LIMITS: list[Limit] = [
    TokenBucket(5, 1),
    TokenBucket(7, 1.67),
    GCRA(2, 3),
    LeakyBucket(4, 0.5),
    FixedWindow(5, 3),
    SlidingWindowLog(3, 2),
    SlidingWindowCounter(6, 4, 2),
    LeakyQueue(2, 3),
]
GROUPS = ("a", "b", "c")

CHECK = st.tuples(
    st.sampled_from(GROUPS),
    st.sampled_from("kkkl"),
    st.sampled_from((0, 0, 0, 0, 1)),
    st.sampled_from((0, 1, 1, 1, 1, 2, 3, 8)),
)
SAME_KEY = st.lists(CHECK, min_size=1, max_size=3, unique_by=lambda one: one[0]).map(
    lambda checks: [(group, checks[0][1], shift, cost) for group, _, shift, cost in checks]
)
SAME_COST = SAME_KEY.map(
    lambda checks: [(group, key, shift, checks[0][3]) for group, key, shift, _ in checks]
)
CHECKS = SAME_KEY | SAME_COST | st.lists(CHECK, min_size=1, max_size=4)
HOUR = 3_600 * SECOND
TIMES = st.sampled_from(
    (0, 0, 0, 1, SECOND // 7, SECOND // 7, SECOND, 2 * SECOND, -SECOND // 2, -HOUR, 61 * SECOND)
)
STEPS = st.lists(st.tuples(TIMES, CHECKS, st.sampled_from("ttttttthsecr")), min_size=5, max_size=30)


class Taker:
    """A store whose takes are all prepared; those of one key and cost decide at once."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._prepared: dict[tuple[Place, ...], Prepared] = {}

    def take(self, checks: tuple[Check, ...]) -> Outcomes:
        keys, costs = [check.key for check in checks], [check.cost for check in checks]
        return self._prepare(checks).take(keys, costs)

    def decide(self, checks: tuple[Check, ...]) -> Decision:
        decide = self._prepare(checks).decide
        if decide is None or len({(check.key, check.cost) for check in checks}) > 1:
            return conclude(checks, self.take(checks))
        return decide(checks[0].key, checks[0].cost)

    def _prepare(self, checks: tuple[Check, ...]) -> Prepared:
        places = tuple([(check.group, check.limit) for check in checks])
        prepared = self._prepared.get(places)
        if prepared is None:
            prepared = self._prepared[places] = self.store.prepare(places)
        return prepared


@given(st.lists(st.sampled_from(LIMITS), min_size=3, max_size=3), STEPS)
def test_prepared_takes_are_those_of_run(
    limits: list[Limit], steps: list[tuple[int, list[tuple[str, str, int, int]], str]]
) -> None:
    clock = ManualClock(10_000)
    quick, slow, deciding = [MemoryStore(clock=clock) for _ in range(3)]
    taker, decider = Taker(quick), Taker(deciding)
    for later_ns, asked, verb in steps:
        clock.set((clock() + later_ns) / SECOND)
        # A group has its own limit, at times that of another, as after a change of the policy.
        checks = tuple(
            Check(group, key, limits[(GROUPS.index(group) + shift) % 3], cost)
            for group, key, shift, cost in asked
        )
        others: dict[str, Operation[Any]] = {
            "h": Hold(checks[:1], "name", SECOND),
            "s": Settle(checks[:1], "name", charge_lapsed=False),
            "c": Charge(checks[:1]),
            "r": Reset(checks[:1]),
        }
        if verb in others:
            expected = slow.run(others[verb])
            assert quick.run(others[verb]) == expected
            assert deciding.run(others[verb]) == expected
        elif verb == "e":  # equal limits that are other objects
            checks = tuple(
                Check(one.group, one.key, type(one.limit)(*_fields(one.limit)), one.cost)
                for one in checks
            )
        for _ in range(2):
            outcomes = slow.run(Take(checks))
            assert taker.take(checks) == outcomes
            assert decider.decide(checks) == conclude(checks, outcomes)
        assert len(quick) == len(deciding) == len(slow)


def _fields(limit: Limit) -> list[object]:
    return [getattr(limit, field.name) for field in fields(limit)]  # type: ignore[arg-type]


def test_a_prepared_take_goes_on_when_its_idle_counters_were_swept() -> None:
    clock = ManualClock(1_000)
    store = MemoryStore(clock=clock)
    places = [("a", TokenBucket(5, 5)), ("b", TokenBucket(5, 5))]
    one, two = store.prepare(places[:1]), store.prepare(places)
    for _ in range(3):
        for _ in range(2):
            assert two.take(("k", "k"), (2, 2))[1].allowed
        assert [outcome.remaining for outcome in two.take(("k", "k"), (1, 1))] == [0, 0]
        assert not one.take(("k",), (1,))[0].allowed
        clock.advance(3_600)
        for _ in range(9):
            store.run(Take((Check("c", "k", TokenBucket(5, 5)),)))
        assert store.groups() == ["c"]


def test_a_prepared_decision_names_the_limit_that_a_cost_never_fits() -> None:
    store = MemoryStore(clock=ManualClock(1_000))
    decide = store.prepare([("a", TokenBucket(5, 1)), ("b", TokenBucket(2, 1))]).decide
    assert decide is not None
    assert [decide("k", 1).remaining, decide("k", 1).remaining] == [1, 0]
    decision = decide("k", 4)
    assert (decision.limit, decision.retry_after) == (TokenBucket(2, 1), None)
    assert [part.retry_after for part in decision.limits] == [1.0, None]
    assert [part.remaining for part in decision.limits] == [3, 0]


def test_a_prepared_decision_sees_reservations() -> None:
    store = MemoryStore(clock=ManualClock(1_000))
    places = [("a", TokenBucket(5, 1)), ("b", TokenBucket(9, 1))]
    one, two = store.prepare(places[:1]).decide, store.prepare(places).decide
    assert one is not None
    assert two is not None
    assert one("k", 1)
    assert two("k", 1)
    assert two("k", 1).remaining == 2
    store.run(Hold((Check("a", "k", TokenBucket(5, 1), 2),), "name", SECOND))
    assert not two("k", 1)
    assert not one("k", 1)
