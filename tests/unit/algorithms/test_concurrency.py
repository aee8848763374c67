"""Concurrency: slots on lease."""

from __future__ import annotations

import pytest

from headgate.algorithms import ConcurrencyAlgorithm
from headgate.algorithms.concurrency import GRAIN_NS, KEEP_NS
from headgate.errors import UsageError
from headgate.limits import Concurrency
from headgate.units import SECOND

TWO = ConcurrencyAlgorithm(Concurrency(2, ttl=10))


def test_a_third_has_to_wait_for_the_first_lease_to_end() -> None:
    state = TWO.enter(None, "a", 0)
    state = TWO.enter(state, "b", 4 * SECOND)
    assert TWO.remaining(state, 5 * SECOND) == 0
    assert TWO.wait(state, 1, 5 * SECOND) == 5 * SECOND
    assert TWO.wait(state, 2, 5 * SECOND) == 9 * SECOND
    assert TWO.wait(state, 3, 5 * SECOND) is None


def test_a_slot_given_back_is_free_at_once() -> None:
    state = TWO.enter(TWO.enter(None, "a", 0), "b", 0)
    left = TWO.leave(state, "a", 1)
    assert TWO.remaining(left, 1) == 1
    assert TWO.leave(left, "b", 1) is None


def test_a_lease_that_nobody_renews_ends_after_its_ttl() -> None:
    state = TWO.enter(None, "a", 0)
    assert TWO.holds(state, "a", 10 * SECOND - 1)
    assert not TWO.holds(state, "a", 10 * SECOND)
    assert TWO.fresh_in(state, SECOND) == 9 * SECOND


def test_a_renewed_lease_runs_from_its_renewal_and_takes_no_second_slot() -> None:
    state = TWO.enter(None, "a", 0)
    state = TWO.enter(state, "a", 9 * SECOND)
    assert TWO.used(state, 9 * SECOND) == 1
    assert TWO.holds(state, "a", 19 * SECOND - 1)
    assert not TWO.holds(state, "a", 19 * SECOND)


def test_leaving_without_a_slot_changes_nothing() -> None:
    state = TWO.enter(None, "a", 0)
    assert TWO.leave(state, "b", 0) == state
    assert TWO.leave(None, "b", 0) is None


def test_a_look_takes_no_slot() -> None:
    _, outcome = TWO.take(None, 0, 0)
    assert outcome.allowed
    assert outcome.remaining == 2


def test_slots_cannot_be_charged_or_refunded() -> None:
    with pytest.raises(UsageError, match=r"slot\(key\)"):
        TWO.charge(None, 1, 0)
    with pytest.raises(UsageError, match="leaving"):
        TWO.refund(TWO.enter(None, "a", 0), 1, 0)


def test_under_a_lowered_limit_the_leases_stay_and_nobody_else_comes_in() -> None:
    state = TWO.enter(TWO.enter(None, "a", 0), "b", SECOND)
    one = ConcurrencyAlgorithm(Concurrency(1, ttl=10))
    assert one.remaining(state, SECOND) == 0
    assert one.wait(state, 1, SECOND) == 10 * SECOND


def test_what_has_run_out_is_thrown_away_when_a_slot_is_taken() -> None:
    state = None
    for n in range(1_000):
        state = TWO.enter(state, f"lease {n}", n * 10 * SECOND)
    assert state is not None
    assert list(state.leases) == ["lease 999"]
    assert state.used_by_part(9_990 * SECOND) == {None: 1}


def test_a_part_that_asks_again_and_again_claims_what_it_lacks_and_no_more() -> None:
    shares = (("gold", 2), ("free", 1))
    gold, nobody = (
        ConcurrencyAlgorithm(Concurrency(3, 10, shares, part)) for part in ("gold", None)
    )
    state = None
    for n in range(3):
        state = nobody.enter(state, f"borrowed {n}", 0)
    for _ in range(5):
        state = gold.deny(state, 1, 0)
    for n in range(3):
        state = nobody.leave(state, f"borrowed {n}", 0)
    assert nobody.remaining(state, 0) == 1
    assert gold.remaining(state, 0) == 3
    assert nobody.wait(state, 2, 0) == SECOND
    assert nobody.fresh_in(state, 0) == SECOND
    assert nobody.remaining(state, SECOND) == 3


def test_a_lease_taken_before_a_step_back_expires_one_ttl_after_it() -> None:
    algorithm = ConcurrencyAlgorithm(Concurrency(1, 60))
    state = algorithm.enter(None, "a", 3_600 * SECOND)
    assert algorithm.wait(state, 1, 0) == 60 * SECOND
    assert state.leases["a"].ends_ns == 3_660 * SECOND
    moved = algorithm.rebase(state, 0)
    assert algorithm.wait(moved, 1, 59 * SECOND) == SECOND
    assert algorithm.rebase(moved, 1) is moved


def test_claims_and_kept_slots_of_before_a_step_back_end_as_soon_as_new_ones() -> None:
    shares = (("gold", 2), ("free", 1))
    gold = ConcurrencyAlgorithm(Concurrency(3, 60, shares, "gold"))
    state = gold.enter(None, "a", 3_600 * SECOND)
    state = gold.enter(state, "b", 3_600 * SECOND)
    left = gold.leave(state, "a", 3_600 * SECOND)
    assert left is not None
    moved = gold.rebase(left, 0)
    assert moved.kept_for("gold", KEEP_NS - 1) == 1
    assert moved.kept_for("gold", KEEP_NS + GRAIN_NS) == 0


def test_a_lease_that_is_taken_again_uses_up_no_slot_that_is_kept() -> None:
    gold = ConcurrencyAlgorithm(Concurrency(3, 60, (("gold", 2), ("free", 1)), "gold"))
    state = gold.enter(gold.enter(None, "a", 0), "b", 0)
    left = gold.leave(state, "a", 0)
    again = gold.enter(left, "b", 0)
    assert again.kept_for("gold", 0) == 1
    assert gold.enter(again, "c", 0).kept_for("gold", 0) == 0


def test_only_a_part_that_is_denied_slots_of_its_own_claims_them() -> None:
    shares = (("gold", 1), ("free", 1))
    gold, nobody = (
        ConcurrencyAlgorithm(Concurrency(2, 10, shares, part)) for part in ("gold", None)
    )
    state = nobody.enter(nobody.enter(None, "a", 0), "b", SECOND)
    assert gold.deny(None, 1, SECOND) is None
    assert nobody.deny(state, 1, SECOND) is state
    assert gold.deny(state, 3, SECOND) is state  # more than there are slots
    assert state.claimed_by("gold", SECOND) == 0
    claimed = gold.deny(state, 1, SECOND)
    assert claimed is not None
    assert claimed.claimed_by("gold", SECOND) == 1


def test_a_claim_that_ends_frees_no_slot_that_is_held() -> None:
    shares = (("gold", 1), ("free", 1))
    gold, nobody = (
        ConcurrencyAlgorithm(Concurrency(2, 10, shares, part)) for part in ("gold", None)
    )
    state = nobody.enter(nobody.enter(None, "a", 0), "b", SECOND)
    left = nobody.leave(gold.deny(state, 1, SECOND), "a", SECOND)
    assert nobody.remaining(left, SECOND) == 0
    assert nobody.wait(left, 1, SECOND) == SECOND
    assert nobody.wait(left, 2, SECOND) == 10 * SECOND
