"""How much is sent, where to, and the bounds of that."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headgate.errors import OptionError
from headgate.loadtest.limit_under_test import limit_in_notation
from headgate.loadtest.report import Latency, latency_of
from headgate.loadtest.target import Load, Target, addresses_of, are_of_this_machine, load_for
from headgate.units import MINUTE, SECOND

AIM = limit_in_notation("100/s")


def test_twice_what_the_limit_allows_is_sent() -> None:
    assert load_for(AIM).rate == 220
    assert load_for(AIM, callers=5).rate == 1_100
    assert load_for(limit_in_notation("5/minute sliding_window_log")).requests == 120
    assert load_for(AIM, rate=Fraction(50)).rate == 50


def test_a_test_lasts_twice_the_refill_time_within_bounds() -> None:
    assert load_for(AIM).duration_ns == 10 * SECOND
    assert load_for(limit_in_notation("100/15s")).duration_ns == 30 * SECOND
    assert load_for(limit_in_notation("100/hour")).duration_ns == 60 * SECOND
    assert load_for(AIM, duration_ns=SECOND).duration_ns == SECOND


def test_requests_are_due_evenly() -> None:
    load = Load(Fraction(3), 2 * SECOND)
    assert load.requests == 6
    assert [load.due_ns(place) for place in (0, 1, 3)] == [0, 333_333_333, SECOND]


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(Fraction(5_001), SECOND), "the rate is 5,001/s"),
        (Load(Fraction(1), 2 * MINUTE), "the duration is 120 s"),
        (Load(Fraction(4_000), MINUTE), "the load is 240,000 requests"),
    ],
)
def test_the_usual_bounds_can_be_raised(load: Load, said: str) -> None:
    with pytest.raises(OptionError, match=said) as raised:
        load.check(is_confirmed=False)
    assert "--yes raises that to 20,000/s" in str(raised.value)
    load.check(is_confirmed=True)


@pytest.mark.parametrize(
    "load",
    [
        Load(Fraction(20_001), SECOND),
        Load(Fraction(1), 11 * MINUTE),
        Load(Fraction(20_000), 2 * MINUTE),
    ],
)
def test_the_hard_bounds_cannot(load: Load) -> None:
    with pytest.raises(OptionError, match="the bounds are 20,000/s, 600 s and 2,000,000 requests"):
        load.check(is_confirmed=True)


def test_callers_and_connections_have_bounds() -> None:
    with pytest.raises(OptionError, match="expected 1 to 10,000"):
        load_for(AIM, callers=10_001)
    with pytest.raises(OptionError, match="expected 1 to 1,000"):
        load_for(AIM, connections=1_001)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://a", "http://", "http://a:0/", "http://a:x/", "http://u:p@a"]
)
def test_a_url_that_cannot_be_asked_is_rejected(url: str) -> None:
    with pytest.raises(OptionError):
        Target(url)


@pytest.mark.parametrize("url", ["http://127.0.0.{n}/", "http://{run}.test:80/"])
def test_callers_do_not_have_hosts_of_their_own(url: str) -> None:
    with pytest.raises(OptionError, match="cannot be in the host"):
        Target(url)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "0"])  # noqa: S104
def test_where_a_server_listens_is_not_where_it_is(host: str) -> None:
    with pytest.raises(OptionError, match=r"expected 127\.0\.0\.1"):
        addresses_of(Target(f"http://{host}:80/"))


def test_each_caller_has_requests_of_its_own() -> None:
    target = Target("http://a/{n}", "POST", (("x-key", "k-{run}-{n}"),), '{"n": {n}}')
    assert target.has_callers
    assert target.of(1, "r") == Target("http://a/2", "POST", (("x-key", "k-r-2"),), '{"n": 2}')
    assert not Target("http://a/", headers=(("x", "{run}"), ("{n}", "y"))).has_callers


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("[::1]", True), ("192.0.2.1", False)],
)
def test_only_loopback_is_this_machine(host: str, is_here: bool) -> None:
    assert are_of_this_machine(addresses_of(Target(f"http://{host}:1/"))) == is_here


def test_a_name_with_one_address_elsewhere_is_not_this_machine() -> None:
    assert not are_of_this_machine(["127.0.0.1", "192.0.2.1"])
    assert not are_of_this_machine(["fe80::1%eth0"])


def test_an_address_of_ipv4_in_ipv6_is_of_this_machine_only_if_it_is_loopback() -> None:
    assert not are_of_this_machine(addresses_of(Target("http://[::ffff:192.0.2.1]:1/")))


def test_a_host_without_an_address_is_rejected() -> None:
    with pytest.raises(OptionError, match="has no address"):
        addresses_of(Target("http://no..where/"))


def test_percentiles_are_of_what_was_measured() -> None:
    assert latency_of([]) is None
    assert latency_of([7]) == Latency(1, 7, 7, 7, 7)
    assert latency_of(range(1, 101)) == Latency(100, 50, 90, 99, 100)
    assert latency_of([1, 2, 3]) == Latency(3, 2, 3, 3, 3)
