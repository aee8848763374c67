"""Reservations beside a limit, by example."""

from __future__ import annotations

from headgate.algorithms import algorithm_for
from headgate.algorithms.reservations import (
    Expiry,
    Hold,
    expire,
    idle_in,
    outcome_beside,
    rebase_holds,
    wait_beside,
)
from headgate.limits import FixedWindow, TokenBucket
from headgate.units import MINUTE, SECOND

TEN = algorithm_for(TokenBucket(10, 1))
HELD = {"a": Hold(6, 30 * SECOND), "b": Hold(2, 5 * SECOND)}


def test_a_cost_has_to_leave_room_for_what_is_held() -> None:
    assert wait_beside(TEN, None, HELD, 2, 0) == 0
    assert wait_beside(TEN, None, HELD, 3, 0) == 5 * SECOND
    assert wait_beside(TEN, None, HELD, 5, 0) == 30 * SECOND
    assert wait_beside(TEN, None, HELD, 11, 0) is None


def test_used_and_held_add_up() -> None:
    state = TEN.charge(None, 2, 0)
    assert wait_beside(TEN, state, HELD, 1, 0) == SECOND
    assert wait_beside(TEN, state, HELD, 3, 0) == 5 * SECOND


def test_the_limit_may_come_back_before_the_hold_lapses() -> None:
    window = algorithm_for(FixedWindow(10, 60))
    state = window.charge(None, 9, 0)
    assert wait_beside(window, state, {"a": Hold(5, 2 * MINUTE)}, 5, 0) == MINUTE
    assert wait_beside(window, state, {"a": Hold(5, 2 * MINUTE)}, 6, 0) == 2 * MINUTE


def test_a_hold_has_lapsed_in_the_instant_it_expires() -> None:
    assert expire(TEN, None, HELD, 5 * SECOND - 1) == (None, HELD)
    assert expire(TEN, None, HELD, 5 * SECOND) == (None, {"a": HELD["a"]})


def test_what_is_held_is_not_remaining() -> None:
    outcome = outcome_beside(TEN, None, HELD, 0, 0)
    assert outcome.remaining == 2
    assert outcome.reset_after_ns == 30 * SECOND


def test_a_hold_made_before_a_step_back_expires_one_ttl_after_it() -> None:
    holds = {"a": Hold(3, 3_600 * SECOND, 60 * SECOND), "b": Hold(1, 30 * SECOND, 60 * SECOND)}
    moved = rebase_holds(holds, 0)
    assert moved == {"a": Hold(3, 60 * SECOND, 60 * SECOND), "b": holds["b"]}
    assert rebase_holds(moved, 0) is moved
    assert set(expire(TEN, None, moved, 30 * SECOND)[1]) == {"a"}


def test_a_hold_of_unknown_ttl_stays_as_it_is() -> None:
    holds = {"a": Hold(3, 3_600 * SECOND)}
    assert rebase_holds(holds, 0) is holds


def test_a_hold_that_charges_leaves_a_record_for_its_ttl_again() -> None:
    holds = {"a": Hold(6, 30 * SECOND, 20 * SECOND, Expiry.CHARGES)}
    state, left = expire(TEN, None, holds, 31 * SECOND)
    assert TEN.remaining(state, 31 * SECOND) == 5
    assert left == {"a": Hold(6, 30 * SECOND, 20 * SECOND, Expiry.CHARGED)}
    assert expire(TEN, state, left, 31 * SECOND) == (state, left), "it is charged once"
    assert idle_in(TEN, state, left, 31 * SECOND) == 19 * SECOND, "the bucket is full before"
    assert expire(TEN, state, left, 50 * SECOND) == (state, {})
    assert expire(TEN, None, holds, 50 * SECOND) == (state, {}), "nobody looked before"


def test_the_record_of_a_charge_in_the_future_of_the_clock_moves_to_now() -> None:
    holds = {"a": Hold(6, 30 * SECOND, 20 * SECOND, Expiry.CHARGED)}
    moved = rebase_holds(holds, 10 * SECOND)
    assert moved["a"].expires_ns == 10 * SECOND
    assert expire(TEN, None, holds, 10 * SECOND) == (None, moved)
    assert rebase_holds(holds, 40 * SECOND) is holds
