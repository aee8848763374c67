"""Demand and use, from reports; what is charged ahead of them is put right."""

from __future__ import annotations

from headgate.service.rlqs.gateway import Tally
from headgate.service.rlqs.rates import MILLION
from headgate.service.rlqs.reports import Usage
from headgate.units import SECOND

BUCKET = (("user", "ada"),)
START = 1_000 * SECOND


def _heard(tally: Tally, seconds: int, allowed: int, denied: int = 0, *, elapsed: int = 5) -> int:
    usage = Usage(BUCKET, elapsed * SECOND, allowed, denied)
    return tally.heard(usage, START + seconds * SECOND)


def test_the_first_report_is_for_no_time_and_says_nothing_of_demand() -> None:
    tally = Tally(START, START)
    assert _heard(tally, 0, 1, elapsed=0) == 1
    assert tally.demand is None


def test_a_gateway_that_comes_back_says_at_once_what_it_wants() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 10, 40)
    assert tally.demand == 10 * MILLION
    assert tally.usage == 2 * MILLION


def test_time_is_that_between_reports_for_envoy_cuts_off_what_is_below_a_second() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 1, elapsed=0)
    _heard(tally, 5, 50, elapsed=4)
    assert tally.demand == 10 * MILLION


def test_demand_grows_at_once_and_falls_by_halves() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 50)
    _heard(tally, 5, 500)
    assert tally.demand == 100 * MILLION
    _heard(tally, 10, 0)
    assert tally.demand == 50 * MILLION


def test_what_was_charged_ahead_is_not_charged_again() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 50)
    ahead = [tally.expected(START + n * SECOND, 8 * MILLION) for n in (1, 2, 3)]
    assert ahead == [8, 8, 8]
    assert _heard(tally, 5, 40) == 16


def test_what_was_charged_ahead_and_not_used_is_given_back() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 50)
    assert tally.expected(START + 2 * SECOND, 100 * MILLION) == 20
    assert _heard(tally, 5, 3) == -17


def test_nothing_is_charged_ahead_for_long_when_reports_stay_away() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 50)
    assert tally.expected(START + 7 * SECOND, 100 * MILLION) == 0


def test_parts_of_requests_are_carried_on() -> None:
    tally = Tally(START, START)
    _heard(tally, 0, 2)
    assert [tally.expected(START + n * SECOND, MILLION) for n in range(1, 6)] == [0, 0, 1, 0, 1]


def test_only_requests_keep_a_bucket_from_being_idle() -> None:
    tally = Tally(START, START)
    _heard(tally, 5, 0)
    assert tally.asked_ns == START
    _heard(tally, 10, 0, 1)
    assert tally.asked_ns == START + 10 * SECOND
