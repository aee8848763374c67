"""Three regions with a Redis server each and slow links: what is lost or late is reported again."""

from __future__ import annotations

import time
from contextlib import closing
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from headgate import RateLimiter
from headgate.limits import Accuracy, FixedWindow, TokenBucket
from headgate.observability import METRICS
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.redis import RedisStore
from headgate.units import MINUTE, SECOND
from tests.support.regions import NAMES, Regions, World
from tests.support.servers import is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.clock import Clock

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

SLOW = TokenBucket(30, 0.001)
"""So slow that nothing comes back while a test runs."""


@pytest.fixture(scope="module")
def regions() -> Iterator[Regions]:
    with Regions() as regions:
        yield regions


def skewed(skew_ns: int) -> Clock:
    return lambda: time.time_ns() + skew_ns


def failed_reports(peer: str) -> float:
    return METRICS.value("region_failures", peer=peer)


def test_what_one_region_allows_counts_in_all(regions: Regions) -> None:
    with World(regions, SLOW, key="together") as world:
        assert world.hit("eu", 10)
        assert world.hit("us", 5)
        world.wait_until_reported()
        assert [world.used(name) for name in NAMES] == [15, 15, 15]
        assert not world.hit("ap", 16)
        assert world.hit("ap", 15)


def test_the_overshoot_is_what_others_allow_before_they_report(regions: Regions) -> None:
    limit = TokenBucket(40, 40)
    with World(regions, limit, key="flooded") as world:
        for _ in range(70):
            for name in NAMES:
                world.hit(name)
                world.hit(name)
            time.sleep(0.02)
        world.wait_until_reported()
        delay = world.longest_delay()
        assert world.excess(delay=delay) <= 0
        assert world.excess(delay=0) > 0  # or the delay was no matter
        assert len({one.region for one in world.allowed}) == len(NAMES)


def test_a_partition_costs_a_limit_for_each_region_and_is_paid_back(regions: Regions) -> None:
    with World(regions, SLOW, key="parted") as world:
        regions.part()
        assert [world.exhaust(name) for name in NAMES] == [30, 30, 30]  # the worst case: G x C
        regions.heal()
        world.wait_until_reported()
        assert [world.used(name) for name in NAMES] == [90, 90, 90]
        assert not any(world.hit(name) for name in NAMES)


def test_after_a_partition_callers_are_denied_until_the_debt_is_worked_off(
    regions: Regions,
) -> None:
    limit = TokenBucket(20, 4)
    with World(regions, limit, key="debt") as world:
        regions.part()
        began = time.monotonic()
        for _ in range(5):
            for name in NAMES:
                world.exhaust(name)
            time.sleep(0.1)
        assert len(world.allowed) <= 3 * (20 + 4 * (time.monotonic() - began))
        regions.heal()
        world.wait_until_reported()
        for store in world.stores.values():
            (outcome,) = store.run(world.look())
            assert not outcome.allowed
            assert outcome.retry_after_ns is not None
            assert outcome.retry_after_ns <= (len(world.allowed) - 20 + 1) * SECOND / 4


@pytest.mark.parametrize(("max_debt", "used"), [(Fraction(1), 60), (Fraction(1, 10), 33)])
def test_a_partition_leaves_no_more_debt_than_it_may(
    regions: Regions, max_debt: Fraction, used: int
) -> None:
    with World(regions, SLOW, key=f"capped-{used}", max_debt=max_debt) as world:
        regions.part()
        assert all(world.hit(name) for name in NAMES)
        wait_until(lambda: world.lag() > 2 * SECOND, "all nodes to see that reports fail")
        assert [world.exhaust(name) for name in NAMES] == [29, 29, 29]
        wait_until(lambda: world.lag() > 4 * SECOND, "reports of all of it to fail")
        regions.heal()
        world.wait_until_reported()
        in_flight = len(NAMES) - 1  # the first reports, each of one unit, may arrive late
        assert all(used <= world.used(name) <= used + in_flight for name in NAMES)


def test_reports_whose_replies_are_lost_are_repeated_and_counted_once(regions: Regions) -> None:
    with World(regions, SLOW, key="unanswered", timeout=1) as world:
        link = regions.links["eu", "us"]
        for _ in range(3):
            assert world.hit("eu", 2)
            world.wait_until_reported()
            failures = failed_reports("us")
            link.swallow_replies()
            assert world.hit("eu", 1)
            wait_until(lambda: failed_reports("us") > failures, "a report to fail")  # noqa: B023 (at once)
            assert world.used("us") == world.used("eu")  # it was merged, but no reply came
            assert world.lag() > 0
            regions.heal()
            world.wait_until_reported()
        assert [world.used(name) for name in NAMES] == [9, 9, 9]


def test_a_region_that_hangs_delays_no_decision(regions: Regions) -> None:
    with World(regions, SLOW, key="hanging", timeout=60) as world:  # waiting for it fails the test
        regions.part()
        for name in NAMES:
            assert world.hit(name, 5)
            assert world.hit(name, 5)
        assert world.lag() > 0
        regions.heal()
        world.wait_until_reported()
        assert [world.used(name) for name in NAMES] == [30, 30, 30]


def test_a_region_that_comes_back_empty_gets_all_that_still_counts(regions: Regions) -> None:
    with World(regions, SLOW, key="restarted") as world:
        assert world.hit("eu", 7)
        world.wait_until_reported()
        regions.part()  # or it may be told before it is emptied
        regions.servers["us"].kill()
        assert world.hit("eu", 2)
        assert world.hit("ap", 1)
        regions.servers["us"].restart()
        regions.servers["us"].cli("flushall")
        regions.heal()
        world.wait_until_reported()
        wait_until(lambda: world.used("us") == 10, "the region to know what was used before")
        assert [world.used(name) for name in NAMES] == [10, 10, 10]


def test_regions_whose_clocks_are_minutes_apart_neither_lose_nor_repeat(regions: Regions) -> None:
    skews = {"eu": 7 * MINUTE, "us": -5 * MINUTE, "ap": 0}
    clocks = {name: skewed(skew) for name, skew in skews.items()}
    with World(regions, SLOW, key="skewed", clocks=clocks) as world:
        for n, name in enumerate(NAMES):
            assert world.hit(name, 4 + n)
            world.wait_until_reported()
        assert [world.used(name) for name in NAMES] == [15, 15, 15]
        assert world.hit("us", 15)
        world.wait_until_reported()
        assert not any(world.hit(name) for name in NAMES)


def test_windows_of_regions_whose_clocks_differ_allow_a_limit_all_the_same(
    regions: Regions,
) -> None:
    skews = {"eu": 25 * MINUTE, "us": -25 * MINUTE, "ap": 0}
    clocks = {name: skewed(skew) for name, skew in skews.items()}
    with World(regions, FixedWindow(20, 86_400 * 7), key="windows", clocks=clocks) as world:
        assert world.hit("eu", 12)
        world.wait_until_reported()
        assert not world.hit("us", 9)
        assert world.hit("us", 8)
        world.wait_until_reported()
        assert not any(world.hit(name) for name in NAMES)


def test_leases_count_in_other_regions_when_they_are_taken(regions: Regions) -> None:
    regions.heal()
    limit, batch = "10000/week", 50
    peer = RedisStore(regions.link_url("eu", "us", timeout=5))
    here = ReplicatedStore(RedisStore(regions.servers["eu"].url), region="eu", peers={"us": peer})
    limiter = RateLimiter(
        limit, store=here, name="api", accuracy=Accuracy(batch=batch), namespace="leased"
    )
    sources = [limiter.hit("a").source for _ in range(1_000)]
    assert "lease" in sources
    limiter.close()
    with closing(
        RateLimiter(limit, store=regions.servers["us"].url, name="api", namespace="leased")
    ) as there:
        used = 10_000 - there.peek("a").remaining
    assert 1_000 <= used <= 1_000 + 2 * batch  # units reported before they were returned
