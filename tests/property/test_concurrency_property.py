"""Concurrency does what a list of leases does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import ConcurrencyAlgorithm
from headgate.limits import Concurrency
from tests.support.histories import LATELY, SECOND, STARTS, delays, examples
from tests.support.oracles import ConcurrencyOracle

if TYPE_CHECKING:
    from headgate.algorithms.concurrency import Slots


class Visit(NamedTuple):
    """After *later*, *lease* comes in (if there is room), renews or leaves."""

    verb: str
    later: int
    lease: str


_VISITS = st.lists(
    st.builds(
        Visit,
        st.sampled_from(["enter", "enter", "renew", "leave"]),
        delays(SECOND, 1),
        st.sampled_from("abcde"),
    ),
    max_size=20,
)


@examples(150)
@given(st.integers(1, 4), STARTS, _VISITS)
@example(1, LATELY, [Visit("enter", 0, "a"), Visit("enter", SECOND, "b")])
@example(1, LATELY, [Visit("enter", 0, "a"), Visit("enter", SECOND - 1, "b")])
def test_every_answer_is_that_of_a_list_of_leases(
    limit: int, now: int, visits: list[Visit]
) -> None:
    algorithm = ConcurrencyAlgorithm(Concurrency(limit, 1))
    oracle = ConcurrencyOracle(limit, SECOND)
    state: Slots | None = None
    for visit in visits:
        now += visit.later
        state = _visit(algorithm, state, oracle, visit, now)
        _compare(algorithm, state, oracle, now)


def _visit(
    algorithm: ConcurrencyAlgorithm,
    state: Slots | None,
    oracle: ConcurrencyOracle,
    visit: Visit,
    now: int,
) -> Slots | None:
    lease = visit.lease
    has = oracle.has(lease, now)
    assert algorithm.holds(state, lease, now) == has
    if visit.verb == "leave":
        oracle.leave(lease)
        return algorithm.leave(state, lease, now)
    comes_in = visit.verb == "enter" and algorithm.wait(state, 1, now) == 0
    if has or comes_in:
        oracle.enter(lease, now)
        return algorithm.enter(state, lease, now)
    return state


def _compare(
    algorithm: ConcurrencyAlgorithm, state: Slots | None, oracle: ConcurrencyOracle, now: int
) -> None:
    live = oracle.live(now)
    assert algorithm.used(state, now) == len(live)
    assert algorithm.remaining(state, now) == oracle.quota - len(live)
    fresh_in = algorithm.fresh_in(state, now)
    assert not oracle.live(now + fresh_in)
    assert fresh_in == 0 or oracle.live(now + fresh_in - 1)
    for cost in range(1, oracle.quota + 2):
        wait = algorithm.wait(state, cost, now)
        assert (wait is None) == (cost > oracle.quota)
        if wait is not None:
            assert oracle.fits(cost, now + wait)
            assert wait == 0 or not oracle.fits(cost, now + wait - 1)


@examples(60)
@given(_VISITS, st.integers(0, 3 * SECOND))
def test_a_clock_that_steps_back_frees_no_slot(visits: list[Visit], back: int) -> None:
    algorithm = ConcurrencyAlgorithm(Concurrency(3, 1))
    state: Slots | None = None
    now = LATELY
    for visit in visits:
        now += visit.later
        if algorithm.wait(state, 1, now) == 0:
            state = algorithm.enter(state, visit.lease, now)
    assert algorithm.used(state, now - back) >= algorithm.used(state, now)
