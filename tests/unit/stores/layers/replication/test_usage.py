"""The totals of one node: what is reported to a region, and what is forgotten."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.limits import Concurrency, Limit, TokenBucket, parse_limit
from headgate.stores.layers.replication.usage import (
    LATE_NS,
    MOST_CHECKS,
    RegionUsage,
    usage_of,
    window_length_ns,
)
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    Hold,
    LeaseGrant,
    MergeUsage,
    Operation,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)
from headgate.units import SECOND
from tests.support.region_fakes import totals_of

MINUTELY = TokenBucket(64, 1)
SECONDLY = TokenBucket(10, 10)
NOW = 6_400 * SECOND


def new_usage(*, max_keys: int = 1_000, max_debt: Fraction | None = None) -> RegionUsage:
    return RegionUsage("eu/1", max_keys=max_keys, max_debt=max_debt)


def use(
    one: RegionUsage, key: str, amount: int = 1, *, at: int = NOW, limit: Limit = MINUTELY
) -> bool:
    return one.record_take([("g", limit)], [key], [amount], at)


def report_from(one: RegionUsage, now: int = NOW) -> list[MergeUsage]:
    """Send all reports; the operations in them."""
    reports = one.next_reports(now)
    for report in reports:
        one.acknowledge(report)
    return [report.operation for report in reports]


def test_reports_have_totals_and_not_what_was_added() -> None:
    one = new_usage()
    use(one, "a", 3)
    assert totals_of(report_from(one)) == {"a": 3}
    use(one, "a", 4)
    (merge,) = report_from(one)
    assert [check.cost for check in merge.checks] == [7]


def test_what_was_not_acknowledged_is_reported_again() -> None:
    one = new_usage()
    use(one, "a", 3)
    one.next_reports(NOW)
    use(one, "a", 1)
    assert totals_of(report_from(one)) == {"a": 4}


def test_usage_while_a_report_is_in_flight_is_reported_next() -> None:
    one = new_usage()
    use(one, "a", 3)
    (report,) = one.next_reports(NOW)
    use(one, "a", 4)
    one.acknowledge(report)
    assert one.pending
    assert totals_of(report_from(one)) == {"a": 7}
    one.acknowledge(report)  # answered twice, late
    assert one.pending == 0


def test_all_counters_of_one_window_go_in_one_report_up_to_a_size() -> None:
    one = new_usage()
    for n in range(MOST_CHECKS):
        use(one, f"k{n}")
    assert len(one.next_reports(NOW)) == 1
    use(one, "another")
    assert one.pending == MOST_CHECKS + 1
    assert [len(report.totals) for report in one.next_reports(NOW)] == [MOST_CHECKS]


def test_a_new_window_starts_from_0_and_the_one_before_is_still_reported() -> None:
    one = new_usage()
    use(one, "a", 3)
    use(one, "a", 5, at=NOW + 64 * SECOND)
    sent = report_from(one, NOW + 64 * SECOND)
    assert [(merge.window, merge.checks[0].cost) for merge in sent] == [(100, 3), (101, 5)]


def test_a_window_that_has_ended_is_not_reported_and_counts_as_dropped() -> None:
    one = new_usage()
    use(one, "a", 3)
    use(one, "b", 3)
    later = NOW + 128 * SECOND
    assert one.next_reports(later) == []
    assert len(one) == 0
    assert one.pending == 0
    assert one.dropped == 2


def test_what_the_region_knows_does_not_count_as_dropped() -> None:
    one = new_usage()
    use(one, "a", 3)
    report_from(one)
    assert report_from(one, NOW + 128 * SECOND) == []
    assert len(one) == 0
    assert one.dropped == 0


def test_a_clock_that_steps_back_does_not_repeat_the_numbers_of_windows() -> None:
    one = new_usage()
    use(one, "a", 3, at=NOW)
    use(one, "a", 3, at=NOW - 640 * SECOND)
    (merge,) = report_from(one, NOW - 640 * SECOND)
    assert (merge.window, merge.checks[0].cost) == (100, 6)


def test_a_limit_with_other_windows_has_another_origin() -> None:
    one = new_usage()
    use(one, "a", 3)
    use(one, "a", 4, limit=SECONDLY)
    sent = report_from(one)
    assert len({merge.origin for merge in sent}) == 2
    assert totals_of(sent) == {"a": 7}


def test_what_is_refunded_before_a_report_is_not_reported() -> None:
    one = new_usage()
    use(one, "a", 5)
    use(one, "a", -2)
    assert totals_of(report_from(one)) == {"a": 3}
    use(one, "b", 1)
    use(one, "b", -1)
    assert report_from(one) == []


def test_a_refund_after_its_window_ended_finds_the_total_of_that_window() -> None:
    one = new_usage()
    use(one, "a", 5)
    later = NOW + 64 * SECOND
    use(one, "a", 1, at=later)
    use(one, "a", -4, at=later)
    merges = report_from(one, later)
    assert [(merge.window, merge.checks[0].cost) for merge in merges] == [(100, 2)]


def test_what_was_reported_once_is_never_taken_back() -> None:
    one = new_usage()
    use(one, "a", 5)
    one.next_reports(NOW)
    use(one, "a", -5)
    assert totals_of(report_from(one)) == {"a": 5}


def test_counters_that_are_not_shared_are_not_reported() -> None:
    one = new_usage()
    one.share({"g"})
    assert not one.record_take([("other", MINUTELY)], ["a"], [1], NOW)
    assert use(one, "b")
    one.share({"other"})
    assert not use(one, "c")
    assert one.record_take([("other", MINUTELY)], ["d"], [1], NOW)
    one.share(None)
    assert use(one, "e")
    assert totals_of(report_from(one)) == {"b": 1, "d": 1, "e": 1}


def test_only_the_first_use_after_all_was_reported_needs_a_report() -> None:
    one = new_usage()
    assert use(one, "a")
    assert not use(one, "a")
    report_from(one)
    assert use(one, "a")
    assert not use(one, "a")


def test_slots_are_never_shared() -> None:
    one = new_usage()
    assert not use(one, "a", limit=Concurrency(3, 10))


def test_the_lag_is_the_age_of_the_oldest_unreported_usage() -> None:
    one = new_usage()
    assert one.lag_ns(NOW) == 0
    use(one, "a", at=NOW)
    use(one, "b", at=NOW + 5)
    use(one, "a", at=NOW + 6)
    assert one.lag_ns(NOW + 10) == 10
    (report,) = one.next_reports(NOW + 7)
    use(one, "b", at=NOW + 8)
    one.acknowledge(report)
    assert one.lag_ns(NOW + 10) <= 3


def test_of_too_many_counters_those_go_first_that_the_region_knows() -> None:
    one = new_usage(max_keys=10)
    for n in range(10):
        use(one, f"k{n}", 1 + n)
    report_from(one)
    use(one, "k0", 1)
    use(one, "new", 1)
    assert len(one) <= 10
    assert one.dropped == 0
    assert totals_of(report_from(one)) == {"k0": 2, "new": 1}


def test_of_too_many_counters_that_the_region_does_not_know_the_largest_are_kept() -> None:
    one = new_usage(max_keys=10)
    for n in range(10):
        use(one, f"k{n}", 1 + n)
    use(one, "new", 1)
    assert one.dropped == 5
    assert totals_of(report_from(one)) == {"new": 1} | {f"k{n}": 1 + n for n in range(5, 10)}


def test_a_counter_that_was_forgotten_starts_under_another_name() -> None:
    one = new_usage(max_keys=2)
    merged: list[MergeUsage] = []
    chance = random.Random(1)
    used: dict[str, int] = {}
    for _ in range(200):
        key = f"k{chance.randrange(6)}"
        used[key] = used.get(key, 0) + 1
        use(one, key)
        merged += report_from(one)
        assert len(one) <= 2
    assert one.dropped == 0
    assert totals_of(merged) == used


LATER = NOW + LATE_NS + 1


def test_usage_that_is_late_says_how_large_the_debt_may_be() -> None:
    one = new_usage(max_debt=Fraction(1, 2))
    use(one, "a", 200)
    (merge,) = report_from(one, LATER)
    assert (merge.checks[0].cost, merge.max_debt) == (200, Fraction(1, 2))
    use(one, "a", 10, at=LATER)
    (merge,) = report_from(one, LATER)
    assert (merge.checks[0].cost, merge.max_debt) == (210, None), "it is in time again"


def test_usage_in_time_makes_any_debt() -> None:
    one = new_usage(max_debt=Fraction(1, 2))
    use(one, "a", 200)
    (merge,) = report_from(one)
    assert merge.max_debt is None


def test_late_and_timely_usage_of_one_window_go_in_two_reports() -> None:
    one = new_usage(max_debt=Fraction(1))
    use(one, "a", 3)
    use(one, "b", 4, at=LATER)
    sent = {merge.checks[0].key: merge.max_debt for merge in report_from(one, LATER)}
    assert sent == {"a": Fraction(1), "b": None}


def test_after_a_failure_all_usage_is_late() -> None:
    one = new_usage(max_debt=Fraction(1))
    use(one, "a", 3)
    (report,) = one.next_reports(NOW, is_late=True)
    assert report.operation.max_debt == 1


def test_groups_may_have_a_debt_of_their_own() -> None:
    one = new_usage(max_debt=Fraction(1))
    one.share(["g", "h"], {"h": Fraction(0)})
    for group in ("g", "h"):
        one.record_take([(group, MINUTELY)], ["a"], [3], NOW)
    sent = {merge.checks[0].group: merge.max_debt for merge in report_from(one, LATER)}
    assert sent == {"g": Fraction(1), "h": Fraction(0)}


def test_what_is_never_acknowledged_does_not_hold_up_the_rest() -> None:
    one = new_usage()
    for n in range(3 * MOST_CHECKS):
        use(one, f"k{n}")
    tried: set[str] = set()
    for _ in range(3):
        for report in one.next_reports(NOW):  # none of them arrives
            tried |= {check.key for check in report.operation.checks}
    assert len(tried) == 3 * MOST_CHECKS
    assert one.lag_ns(NOW + SECOND) == SECOND


def test_a_counter_that_is_used_much_keeps_its_name_while_keys_are_sprayed() -> None:
    one = new_usage(max_keys=100)
    origins = set()
    for n in range(2_000):
        if n % 10 == 0:
            use(one, "hot", 5)
        use(one, f"k{n}")
        for report in one.next_reports(NOW):
            one.acknowledge(report)
            if any(check.key == "hot" for check in report.operation.checks):
                origins.add(report.operation.origin)
    assert len(origins) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1000/s", 1),
        ("10/100ms fixed_window", 1),
        ("100/s burst 250", 3),
        ("7 per 7s", 7),
        ("9 per 9s", 10),
        ("100/minute", 64),
        ("5/hour sliding_window_log", 4096),
        ("1000/day fixed_window", 98304),
    ],
)
def test_a_window_is_as_long_as_a_limit_takes_to_refill_or_a_little_longer(
    text: str, seconds: int
) -> None:
    limit: Limit = parse_limit(text)
    length = window_length_ns(limit)
    assert length == seconds * SECOND
    assert limit.period_ns <= length
    assert length <= max(limit.period_ns * 5 // 4, limit.period_ns + SECOND)


A = Check("g", "a", MINUTELY, 2)
B = Check("g", "b", MINUTELY, 3)
YES = Outcome(allowed=True, remaining=1, retry_after_ns=0, reset_after_ns=1)
NO = Outcome(allowed=False, remaining=0, retry_after_ns=1, reset_after_ns=1)


def used(operation: Operation[Any], result: Any) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for check, amount in usage_of(operation, result):
        amounts[check.key] = amounts.get(check.key, 0) + amount
    return {key: amount for key, amount in amounts.items() if amount}


def granted(outcome: Outcome, amount: int) -> LeaseGrant:
    return LeaseGrant(outcome, amount, lasts_ns=1, holders=1, leased=amount, wait_ns=0)


@pytest.mark.parametrize(
    ("operation", "result", "expected"),
    [
        (Take((A, B)), (YES, YES), {"a": 2, "b": 3}),
        (TakeUpTo((A,)), (1, (NO,)), {"a": 1}),
        (TakeUpTo((A,)), (0, (NO,)), {}),
        (Take((A, B)), (YES, NO), {}),
        (Take((A,), consume=False), (YES,), {}),
        (TakeEach((Take((A,)), Take((B,)))), ((YES,), (NO,)), {"a": 2}),
        (TakeEach((Take((A,)), Take((B,)))), (StoreError("gone"), (YES,)), {"b": 3}),
        (Charge((A, A)), (NO, NO), {"a": 4}),
        (Refund((A,)), (YES,), {"a": -2}),
        (Reset((A,)), None, {}),
        (MergeUsage((A,), "us/1", 1, 1), (YES,), {}),
    ],
)
def test_what_is_allowed_or_charged_counts(
    operation: Operation[Any], result: Any, expected: dict[str, int]
) -> None:
    assert used(operation, result) == expected


def test_a_hold_counts_when_it_is_settled_by_its_actual_cost() -> None:
    assert used(Hold((A,), "h", 1), (YES,)) == {}
    assert used(Settle((B,), "h", charge_lapsed=False), True) == {"b": 3}
    assert used(Settle((B,), "h", charge_lapsed=True), False) == {"b": 3}
    assert used(Settle((B,), "h", charge_lapsed=False), False) == {}


def test_a_lease_counts_when_it_is_granted_less_what_is_returned() -> None:
    request = GrantLease(A, "node", most=10, ttl_ns=1, unused=4)
    assert used(request, granted(YES, 10)) == {"a": 2 + 10 - 4}
    assert used(request, granted(NO, 0)) == {"a": -4}


def test_a_lease_that_is_not_charged_counts_when_its_usage_is_reported() -> None:
    request = GrantLease(A, "node", most=10, ttl_ns=1, used=12, reported=5, is_charged=False)
    assert used(request, granted(YES, 10)) == {"a": 2 + 7}
    assert used(request, granted(NO, 0)) == {"a": 7}
