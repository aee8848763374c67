"""Beside reservations figures are exact; expired ones are charged as of their instant."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.algorithms.reservations import (
    Expiry,
    Hold,
    correct,
    expire,
    held_in,
    outcome_beside,
    wait_beside,
)
from tests.support.histories import LATELY, MICROSECOND, examples
from tests.support.limit_kinds import KIND, limit_of, oracle_of

if TYPE_CHECKING:
    from tests.support.oracles import Oracle

WINDOW = MICROSECOND

_EXPIRY = st.sampled_from([Expiry.VANISHES, Expiry.CHARGES])
_HOLDS = st.lists(
    st.builds(Hold, st.integers(1, 5), st.integers(1, 2 * WINDOW), st.just(0), _EXPIRY),
    min_size=1,
    max_size=4,
)
_EVENTS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 6)), max_size=4)


@examples(200)
@given(KIND, st.integers(1, 5), _EVENTS, _HOLDS, st.integers(1, 6))
@example("log", 3, [(0, 2)], [Hold(1, 500)], 1)
@example("fixed_window", 3, [(0, 3)], [Hold(3, 1_500)], 1)
@example("token_bucket", 3, [], [Hold(5, 2_000)], 3)
def test_the_wait_is_the_first_nanosecond_at_which_the_cost_fits(
    kind: str,
    quota: int,
    events: list[tuple[int, int]],
    lapsing: list[Hold],
    cost: int,
) -> None:
    algorithm, charges = algorithm_for(limit_of(kind, quota, WINDOW)), []
    state: Any = None
    now = LATELY
    for later, units in events:
        now += later
        state = algorithm.charge(state, units, now)
        charges.append((now, units))
    holds = {str(n): _from(now, hold) for n, hold in enumerate(lapsing)}
    charging = sorted([(h.expires_ns, h.amount) for h in holds.values() if h.expiry])
    oracles = [
        _oracle(kind, quota, [*charges, *charging[:count]]) for count in range(len(charging) + 1)
    ]
    wait = wait_beside(algorithm, state, holds, cost, now)
    assert (wait is None) == (cost > quota)
    if wait is None:
        return

    def fits(time: int) -> bool:
        held = sum(hold.amount for hold in holds.values() if time < hold.expires_ns)
        oracle = oracles[sum(expired <= time for expired, _ in charging)]
        return cost + held <= quota and oracle.fits(cost + held, time)

    assert fits(now + wait)
    # Every nanosecond of a window before that, then the edges where an answer can change at all.
    edges = {hold.expires_ns + edge for hold in holds.values() for edge in (-1, 0, 1)}
    assert not any(fits(time) for time in range(max(now, now + wait - 300), now + wait))
    assert not any(fits(time) for time in range(now, now + wait, 97))
    assert not any(fits(time) for time in edges if now <= time < now + wait)


@examples(100)
@given(KIND, st.integers(1, 9), st.integers(0, 9), _HOLDS)
def test_remaining_is_the_largest_cost_that_fits_beside_the_holds(
    kind: str, quota: int, units: int, lapsing: list[Hold]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    state = algorithm.charge(None, units, LATELY) if units else None
    holds = {str(n): _from(LATELY, hold) for n, hold in enumerate(lapsing)}
    outcome = outcome_beside(algorithm, state, holds, 0, LATELY)
    fitting = [
        cost
        for cost in range(1, quota + 1)
        if wait_beside(algorithm, state, holds, cost, LATELY) == 0
    ]
    assert outcome.remaining == max(fitting, default=0)
    end = LATELY + outcome.reset_after_ns

    def is_fresh(time: int) -> bool:
        after, left = expire(algorithm, state, holds, time)
        return not left and algorithm.used(after, time) == 0

    assert is_fresh(end)
    assert not outcome.reset_after_ns or not is_fresh(end - 1)


@examples(150)
@given(KIND, st.integers(1, 6), _HOLDS, st.lists(st.integers(1, 700), min_size=1, max_size=4))
@example("log", 5, [Hold(2, 100, 0, Expiry.CHARGES), Hold(3, 50, 0, Expiry.CHARGES)], [200])
def test_a_hold_is_charged_once_at_its_expiry_whoever_looks_when(
    kind: str, quota: int, lapsing: list[Hold], looks: list[int]
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    holds = {str(n): _from(LATELY, hold) for n, hold in enumerate(lapsing)}
    charging = sorted([(h.expires_ns, h.amount) for h in holds.values() if h.expiry])
    state: Any = None
    left, now = holds, LATELY
    for later in looks:
        now += later
        before = deepcopy(state)
        expire(algorithm, state, left, now)  # by a peek, which keeps nothing
        assert algorithm.used(state, now) == algorithm.used(before, now)
        state, left = expire(algorithm, state, left, now)
        oracle = _oracle(kind, quota, [charge for charge in charging if charge[0] <= now])
        assert held_in(left) == sum(h.amount for h in holds.values() if h.expires_ns > now)
        for cost in range(1, quota + 1):
            assert (algorithm.wait(state, cost, now) == 0) == oracle.fits(cost, now)


@examples(200)
@given(KIND, st.integers(1, 9), _EVENTS, st.integers(1, 9), st.integers(0, 9), _EVENTS)
@example("token_bucket", 9, [], 9, 0, [(990, 9), (0, 1)])
@example("log", 9, [], 5, 2, [(100, 3), (0, 1)])
def test_a_late_settlement_returns_no_more_than_the_charge_still_counts(
    kind: str,
    quota: int,
    before: list[tuple[int, int]],
    held: int,
    actual: int,
    after: list[tuple[int, int]],
) -> None:
    algorithm = algorithm_for(limit_of(kind, quota, WINDOW))
    states: list[Any] = [None, None]  # with what was held, and with what it was settled for
    now = LATELY

    def charge(first: int, second: int) -> None:
        for n, units in enumerate((first, second)):
            states[n] = algorithm.charge(states[n], units, now) if units else states[n]

    for later, units in before:
        now += later
        if algorithm.wait(states[0], units, now) == 0:
            charge(units, units)
    if algorithm.wait(states[0], held, now) != 0:
        return
    charge(held, min(actual, held))
    expired = now
    for later, units in after:
        now += later
        if algorithm.wait(states[0], units, now) == 0:
            charge(units, units)
    hold = Hold(held, expired, WINDOW, Expiry.CHARGED)
    charged, truth = states
    corrected = correct(algorithm, deepcopy(charged), hold, min(actual, held), now)
    for time in range(now, now + 2 * WINDOW, 101):
        left = algorithm.remaining(corrected, time)
        assert algorithm.remaining(charged, time) <= left <= algorithm.remaining(truth, time)
    more = correct(algorithm, deepcopy(charged), hold, held + 2, now)
    assert algorithm.used(more, now) == algorithm.used(charged, now) + 2


def _from(now: int, hold: Hold) -> Hold:
    return hold._replace(expires_ns=now + hold.expires_ns)


def _oracle(kind: str, quota: int, charges: list[tuple[int, int]]) -> Oracle:
    oracle = oracle_of(kind, quota, WINDOW)
    for time, units in charges:
        oracle.add(units, time)
    return oracle
