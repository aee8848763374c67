"""Demand and use, from reports; what is charged ahead of them is put right."""

from __future__ import annotations

from headgate.service.rlqs.gateway import DemandEstimate
from headgate.service.rlqs.rates import MILLION
from headgate.service.rlqs.reports import Usage
from headgate.units import SECOND

BUCKET = (("user", "ada"),)
START = 1_000 * SECOND


def _record(
    estimate: DemandEstimate, seconds: int, allowed: int, denied: int = 0, *, elapsed: int = 5
) -> int:
    usage = Usage(BUCKET, elapsed * SECOND, allowed, denied)
    return estimate.record_report(usage, START + seconds * SECOND)


def test_the_first_report_is_for_no_time_and_says_nothing_of_demand() -> None:
    estimate = DemandEstimate(START, START)
    assert _record(estimate, 0, 1, elapsed=0) == 1
    assert estimate.demand is None


def test_a_gateway_that_comes_back_says_at_once_what_it_wants() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 10, 40)
    assert estimate.demand == 10 * MILLION
    assert estimate.usage == 2 * MILLION


def test_the_second_report_of_a_new_bucket_says_all_of_its_usage() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 1, elapsed=0)
    _record(estimate, 5, 100)
    assert estimate.usage == 20 * MILLION


def test_time_is_that_between_reports_for_envoy_cuts_off_what_is_below_a_second() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 1, elapsed=0)
    _record(estimate, 5, 50, elapsed=4)
    assert estimate.demand == 10 * MILLION


def test_demand_grows_at_once_and_falls_by_halves() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 50)
    _record(estimate, 5, 500)
    assert estimate.demand == 100 * MILLION
    _record(estimate, 10, 0)
    assert estimate.demand == 50 * MILLION


def test_what_was_charged_ahead_is_not_charged_again() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 50)
    ahead = [estimate.expected(START + n * SECOND, 8 * MILLION) for n in (1, 2, 3)]
    assert ahead == [8, 8, 8]
    assert _record(estimate, 5, 40) == 16


def test_what_was_charged_ahead_and_not_used_is_given_back() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 50)
    assert estimate.expected(START + 2 * SECOND, 100 * MILLION) == 20
    assert _record(estimate, 5, 3) == -17


def test_nothing_is_charged_ahead_for_long_when_reports_stay_away() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 50)
    assert estimate.expected(START + 7 * SECOND, 100 * MILLION) == 0


def test_parts_of_requests_are_carried_on() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 0, 2)
    assert [estimate.expected(START + n * SECOND, MILLION) for n in range(1, 6)] == [0, 0, 1, 0, 1]


def test_only_requests_keep_a_bucket_from_being_idle() -> None:
    estimate = DemandEstimate(START, START)
    _record(estimate, 5, 0)
    assert estimate.requested_ns == START
    _record(estimate, 10, 0, 1)
    assert estimate.requested_ns == START + 10 * SECOND
