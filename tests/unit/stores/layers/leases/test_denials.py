"""`Denials`: what is remembered of denials, for how long, and what a caller receives of it."""

from __future__ import annotations

from headgate.algorithms import Outcome
from headgate.limits import FixedWindow, TokenBucket
from headgate.stores.layers.leases.denials import (
    LONGEST_KEY,
    MOST_COSTS,
    Denials,
    denial_of,
)
from headgate.units import SECOND

KEEP = SECOND
LIMIT = TokenBucket(60, 1)


def denied(wait_ns: int | None, remaining: int = 0, reset_ns: int = 60 * SECOND) -> Outcome:
    return Outcome(
        allowed=False,
        remaining=remaining,
        retry_after_ns=wait_ns,
        reset_after_ns=reset_ns,
        source="cache",
    )


def remember(
    denials: Denials,
    cost: int,
    wait_ns: int | None,
    *,
    key: str = "a",
    now_ns: int = 0,
    keep_ns: int = KEEP,
) -> None:
    denial = denial_of(cost, denied(wait_ns), LIMIT, keep_ns, now_ns, now_ns)
    denials.remember("g", key, denial, now_ns)


def remembered(*denials: tuple[int, int | None]) -> Denials:
    """The denials of some costs of `a` at time 0, each with its wait."""
    found = Denials(10)
    for cost, wait_ns in denials:
        remember(found, cost, wait_ns)
    return found


def find(denials: Denials, cost: int, now_ns: int, key: str = "a") -> Outcome | None:
    return denials.find("g", key, cost, None, now_ns)


def test_a_denial_holds_until_its_end_and_not_at_it() -> None:
    denials = remembered((1, 500))
    assert find(denials, 1, 499) == denied(1, reset_ns=60 * SECOND - 499)
    assert find(denials, 1, 500) is None


def test_a_denial_is_kept_no_longer_than_the_accuracy_says() -> None:
    denials = remembered((1, 10 * SECOND))
    assert find(denials, 1, KEEP - 1) == denied(9 * SECOND + 1, reset_ns=59 * SECOND + 1)
    assert find(denials, 1, KEEP) is None


def test_a_cost_that_can_never_fit_is_known_for_larger_ones_and_only_kept_for_a_while() -> None:
    denials = remembered((1000, None))
    found = find(denials, 1001, KEEP - 1)
    assert found is not None
    assert found.retry_after_ns is None
    assert find(denials, 1000, KEEP) is None


def test_a_denial_holds_for_its_own_cost_alone() -> None:
    denials = remembered((5, 500), (9, 700))
    waits = {cost: find(denials, cost, 0) for cost in (1, 4, 5, 6, 9, 10)}
    assert [cost for cost, outcome in waits.items() if outcome is not None] == [5, 9]


def test_a_denial_counts_its_end_from_the_request_and_its_figures_from_the_reply() -> None:
    """So it never outlives its cause, and a retry after the wait is not too early."""
    denial = denial_of(1, denied(500), LIMIT, KEEP, 1_000, 1_100)
    assert (denial.until_ns, denial.retry_at_ns) == (1_500, 1_600)


def test_a_denial_of_a_fixed_window_ends_with_the_window() -> None:
    """Debt is worked off then, so that `remaining` changes."""
    outcome = denied(25 * SECOND, reset_ns=25 * SECOND)
    denial = denial_of(1, outcome, FixedWindow(10, 10), 60 * SECOND, 0, 0)
    assert denial.until_ns == 5 * SECOND


def test_the_remaining_units_of_a_paced_limit_are_counted_forward() -> None:
    outcome = denied(5 * SECOND, remaining=5, reset_ns=55 * SECOND)
    denials = Denials(10)
    denials.remember("g", "a", denial_of(10, outcome, LIMIT, 2 * SECOND, 0, 0), 0)
    times = (0, SECOND - 1, SECOND)
    paced = [denials.find("g", "a", 10, LIMIT.pace, now_ns) for now_ns in times]
    assert [one.remaining for one in paced if one is not None] == [5, 5, 6]
    unpaced = denials.find("g", "a", 10, None, SECOND)
    assert unpaced is not None
    assert unpaced.remaining == 5


def test_a_newer_denial_of_a_cost_replaces_the_older() -> None:
    denials = remembered((1, 500))
    remember(denials, 1, 100)
    assert find(denials, 1, 100) is None


def test_of_one_key_a_few_costs_are_kept_the_ones_that_last() -> None:
    denials = remembered(*((cost, 100 * cost) for cost in range(1, MOST_COSTS + 3)))
    assert find(denials, 2, 0) is None
    assert find(denials, 3, 0) is not None
    assert len(denials) == 1


def test_a_denial_without_time_to_last_is_not_remembered() -> None:
    denials = Denials(10)
    remember(denials, 1, 10, keep_ns=0)
    remember(denials, 1, 0)
    assert len(denials) == 0


def test_a_counter_that_changes_is_forgotten_alone() -> None:
    denials = remembered((1, 500), (5, 900))
    denials.forget("g", "b")
    assert find(denials, 5, 0) is not None
    denials.forget("g", "a")
    assert find(denials, 5, 0) is None


def test_sprayed_keys_displace_the_oldest_and_never_more_than_the_most_are_kept() -> None:
    denials = Denials(100)
    remember(denials, 1, 500, key="first")
    for n in range(99):
        remember(denials, 1, 500, key=f"key-{n}")
    assert find(denials, 1, 0, "first") is not None
    remember(denials, 1, 500, key="last")
    assert find(denials, 1, 0, "first") is None
    assert find(denials, 1, 0, "key-0") is not None
    for n in range(5000):
        remember(denials, 1, 500, key=f"more-{n}")
    assert len(denials) == 100


def test_a_key_that_is_denied_again_and_again_takes_one_place() -> None:
    denials = Denials(3)
    for now_ns in range(50):
        remember(denials, 1, 500, now_ns=now_ns)
    assert len(denials) == 1
    assert find(denials, 1, 50) is not None


def test_expired_denials_make_room() -> None:
    denials = Denials(1000)
    for n in range(500):
        remember(denials, 1, 500, key=f"key-{n}")
    for n in range(500):
        remember(denials, 1, 500, key=f"later-{n}", now_ns=10_000)
    assert len(denials) == 500


def test_keys_too_long_to_keep_are_not_remembered() -> None:
    denials = Denials(10)
    remember(denials, 1, 500, key="x" * (LONGEST_KEY + 1))
    assert len(denials) == 0
