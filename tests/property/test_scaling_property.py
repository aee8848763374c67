"""Limits that go down and up again mint nothing: what was admitted meanwhile, the limit as it was
before would have admitted too."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.limits import LeakyQueue, Limit, scaled
from headgate.stores import MemoryStore
from headgate.stores.operations import Check, Take
from headgate.testing import ManualClock
from tests.support.histories import MINUTE, SECOND, examples
from tests.support.limit_kinds import KIND, limit_of

Hits = list[tuple[int, Fraction, int]]
"""How much later each comes, in nanoseconds, the factor then, and its cost."""

_FACTOR = st.sampled_from([Fraction(n, 64) for n in (7, 20, 32, 45, 63, 64, 64)])
_HITS = st.lists(
    st.tuples(st.integers(0, 3 * SECOND), _FACTOR, st.integers(1, 4)), min_size=2, max_size=40
)


def _admitted(limit: Limit, hits: Hits) -> list[tuple[int, int, int]]:
    """When each came, its cost and its turn, of those that were admitted on one counter."""
    clock, found = ManualClock(1_700_000_000), []
    store = MemoryStore(clock=clock)
    for later, factor, cost in hits:
        clock.advance_ns(later)
        check = Check("group", "key", scaled(limit, factor), cost)
        (outcome,) = store.run(Take((check,)))
        if outcome.allowed:
            found.append((clock(), cost, outcome.place_ns or clock()))
    return found


@examples(200)
@given(KIND, st.integers(3, 20), st.sampled_from([SECOND, 7 * SECOND, MINUTE]), _HITS)
@example("token_bucket", 10, MINUTE, [(0, Fraction(1), 4), (0, Fraction(7, 64), 1)] * 6)
def test_going_down_and_up_again_never_mints(
    kind: str, quota: int, window: int, hits: Hits
) -> None:
    limit = limit_of(kind, quota, window)
    clock = ManualClock()
    full = MemoryStore(clock=clock)
    for now, cost, _ in _admitted(limit, hits):
        clock.advance_ns(now - clock())
        (outcome,) = full.run(Take((Check("group", "key", limit, cost),)))
        assert outcome.allowed, f"{cost} at {now} is more than {limit} admits"


@examples(100)
@given(st.integers(1, 20), st.integers(0, 30), _HITS)
def test_turns_of_a_queue_stay_as_far_apart_as_without_pressure(
    rate: int, queue: int, hits: Hits
) -> None:
    free_ns = Fraction(0)
    for _, cost, place_ns in _admitted(LeakyQueue(rate, queue), hits):
        assert place_ns >= free_ns - 1  # turns are told in whole nanoseconds
        free_ns = place_ns + Fraction(cost * SECOND, rate)
