"""Random histories, and how an algorithm is compared with its oracle along one.

The examples are the same in every run. `HEADGATE_EXPLORE=20 pytest tests/property` looks further:
many times as many, different ones each time. What it finds becomes an `@example`.
"""

from __future__ import annotations

from copy import deepcopy
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.examples import EXPLORE, example_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.algorithms import Algorithm
    from tests.support.oracles import Oracle

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
LATELY = 1_800_000_000 * SECOND + 123_456_789


def examples(count: int) -> settings:
    """Settings for *count* examples; for an eighth of them in an ordinary run."""
    return settings(
        max_examples=example_count(count),
        deadline=None,
        derandomize=not EXPLORE,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Step(NamedTuple):
    """Let *later* nanoseconds pass, then do *verb* with *amount*."""

    verb: str
    later: int
    amount: int


VERBS = ("hit", "hit", "hit", "peek", "charge", "refund")
STARTS = st.sampled_from([0, 1, 999, 59 * SECOND, LATELY]) | st.integers(0, 2 * LATELY)


def delays(period: int, most: int = 3) -> st.SearchStrategy[int]:
    """Delays up to *most* periods, with a liking for the edges."""
    edges = {0, 1, period // 3, period // 2, period - 1, period, period + 1, 2 * period}
    return st.sampled_from(sorted(edges)) | st.integers(0, most * period)


def steps(
    quota: int, period: int, *, verbs: tuple[str, ...] = VERBS, periods: int = 3, debt: int = 3
) -> st.SearchStrategy[list[Step]]:
    """Histories with costs around *quota* and charges up to *debt* times that."""
    hits = st.integers(0, quota + 2) | st.sampled_from([1, 1, quota, quota + 1])
    charges = st.integers(1, debt * quota)
    amounts = {"charge": charges, "refund": charges}
    one = st.one_of(
        [
            st.builds(Step, st.just(verb), delays(period, periods), amounts.get(verb, hits))
            for verb in verbs
        ]
    )
    return st.lists(one, max_size=14)


def follow(algorithm: Algorithm[Any], oracle: Oracle, start: int, history: Iterable[Step]) -> Any:
    """Play *history* to both and compare them after each step; the last state."""
    state, now = None, start
    check_figures(algorithm, state, oracle, now)
    for verb, later, amount in history:
        now += later
        if verb == "hit":
            state = _hit(algorithm, state, oracle, amount, now)
        elif verb == "peek":
            check_wait(algorithm, state, oracle, max(1, amount), now)
        elif verb == "charge":
            state = algorithm.charge(state, amount, now)
            oracle.add(amount, now)
        elif state is not None:
            state = algorithm.refund(state, amount, now)
            oracle.give_back(amount, now)
        check_figures(algorithm, state, oracle, now)
    return state


def _hit(algorithm: Algorithm[Any], state: Any, oracle: Oracle, cost: int, now: int) -> Any:
    fits = cost == 0 or (cost <= oracle.quota and oracle.fits(cost, now))
    before = figures(algorithm, state, now)
    if cost:
        check_wait(algorithm, state, oracle, cost, now)
    state, outcome = algorithm.take(state, cost, now)
    assert outcome.allowed == fits
    assert (outcome.retry_after_ns == 0) == fits
    if fits and cost:
        oracle.add(cost, now)
    else:
        assert figures(algorithm, state, now) == before
    assert outcome.remaining == algorithm.remaining(state, now)
    assert outcome.reset_after_ns == algorithm.fresh_in(state, now)
    return state


def figures(algorithm: Algorithm[Any], state: Any, now: int) -> tuple[object, ...]:
    """All that can be seen of a counter."""
    waits = [algorithm.wait(state, cost, now) for cost in {1, algorithm.quota}]
    return (
        algorithm.remaining(state, now),
        algorithm.used(state, now),
        algorithm.fresh_in(state, now),
        *waits,
    )


def check_figures(algorithm: Algorithm[Any], state: Any, oracle: Oracle, now: int) -> None:
    assert algorithm.used(state, now) == ceil(oracle.used(now))
    check_remaining(algorithm.remaining(state, now), oracle, now)
    fresh_in = algorithm.fresh_in(state, now)
    assert oracle.used(now + fresh_in) == 0
    assert fresh_in == 0 or oracle.used(now + fresh_in - 1) > 0
    if fresh_in:
        as_new = algorithm.remaining(deepcopy(state), now + fresh_in)
        assert as_new == algorithm.quota


def check_remaining(remaining: int, oracle: Oracle, now: int) -> None:
    if oracle.quota <= 50:
        assert remaining == oracle.largest_fitting(now)
        return
    assert remaining == 0 or oracle.fits(remaining, now)
    assert remaining == oracle.quota or not oracle.fits(remaining + 1, now)


def check_wait(algorithm: Algorithm[Any], state: Any, oracle: Oracle, cost: int, now: int) -> None:
    wait = algorithm.wait(state, cost, now)
    assert (wait is None) == (cost > oracle.quota)
    if wait is None:
        return
    assert oracle.fits(cost, now + wait)
    assert wait == 0 or not oracle.fits(cost, now + wait - 1)
    assert algorithm.take(deepcopy(state), cost, now + wait)[1].allowed
    if wait:
        assert not algorithm.take(deepcopy(state), cost, now + wait - 1)[1].allowed
