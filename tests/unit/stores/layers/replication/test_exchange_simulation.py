"""Random schedules on virtual time: messages are lost, repeated and late, links cut, clocks wrong.

A failure prints the seed of its schedule.
"""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from headgate.limits import FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.units import MILLISECOND, SECOND
from tests.support.region_world import Faults, World

KEYS = ("a", "b", "c")
SEEDS = range(40)
LIMITS: dict[str, Limit] = {
    "bucket": TokenBucket(20, 0.5),
    "log": SlidingWindowLog(20, 60),
    "window": FixedWindow(20, 3_600),
}


def drive(world: World, *, for_ns: int, gap_ns: int, costs: tuple[int, ...] = (1, 2, 5)) -> None:
    """Requests at random places and times."""
    chance = world.chance
    end = world.now + for_ns
    while world.now < end:
        world.run_for(chance.randint(0, gap_ns))
        region = chance.choice(list(world.regions.values()))
        world.hit(region, chance.choice(KEYS), chance.choice(costs))


def settle(world: World) -> None:
    world.heal()
    for _ in range(60):
        world.run_for(SECOND)
        if world.is_quiet():
            return
    pytest.fail("the regions did not come to rest")


@pytest.mark.parametrize("seed", SEEDS)
def test_after_all_reports_every_region_has_counted_everything_once(seed: int) -> None:
    chance = random.Random(seed)
    limit = SlidingWindowLog(chance.choice([150, 100_000]), 120)
    names = ("eu", "us", "ap")[: chance.choice([2, 3])]
    faults = Faults(lost=0.2, unanswered=0.2, repeated=0.3, late=0.2)
    world = World(limit, chance, names=names, nodes=chance.choice([1, 3]), faults=faults)
    for _ in range(4):
        drive(world, for_ns=3 * SECOND, gap_ns=100 * MILLISECOND)
        world.cut = {(a, b) for a in names for b in names if chance.random() < 0.3}
    settle(world)
    world.run_for(10 * SECOND)  # what is late arrives
    for region in world.regions.values():
        for key in KEYS:
            assert region.merged.get(key, 0) == world.total(key, without=region.name), seed
            assert world.used(region, key) == world.total(key), seed


@pytest.mark.parametrize("seed", SEEDS)
def test_what_windows_pass_over_is_lost_and_nothing_is_ever_counted_twice(seed: int) -> None:
    chance = random.Random(seed)
    faults = Faults(lost=0.3, unanswered=0.3, repeated=0.3, late=0.3)
    world = World(SlidingWindowLog(1_000_000, 1), chance, nodes=2, faults=faults)
    for _ in range(4):
        drive(world, for_ns=2 * SECOND, gap_ns=50 * MILLISECOND)
        world.cut = {("eu", "us")} if chance.random() < 0.5 else set()
    settle(world)
    world.run_for(10 * SECOND)
    for region in world.regions.values():
        for key in KEYS:
            assert region.merged.get(key, 0) <= world.total(key, without=region.name), seed


def worst(world: World, limit: TokenBucket, *, delay_ns: int) -> float:
    """By how much, at the worst, what was allowed in any interval exceeds the bound.

    An interval that ends with an admission in one region may hold C + R t, and what the others have
    allowed within the delay before it, of which that region could not know.
    """
    found = float("-inf")
    for n, last in enumerate(world.allowed_units):
        unknown = sum(
            one.cost
            for one in world.allowed_units[: n + 1]
            if one.region != last.region and one.at > last.at - delay_ns
        )
        inside = 0
        for first in reversed(world.allowed_units[: n + 1]):
            inside += first.cost
            t = (last.at - first.at) / SECOND
            found = max(found, inside - unknown - limit.capacity - limit.refill_rate * t)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_without_a_partition_the_overshoot_is_what_regions_allow_within_the_delay(
    seed: int,
) -> None:
    chance = random.Random(seed)
    limit = TokenBucket(chance.choice([5, 40]), chance.choice([5, 20]))
    every, latency = 100 * MILLISECOND, chance.choice([5, 80]) * MILLISECOND
    names = ("eu", "us", "ap")[: chance.choice([2, 3])]
    world = World(limit, chance, names=names, every_ns=every, latency_ns=latency)
    for _ in range(3):
        end = world.now + SECOND
        while world.now < end:
            world.run_for(chance.randint(0, 20 * MILLISECOND))
            for region in world.regions.values():
                world.hit(region, "a", chance.choice([1, 1, 3]))
        world.run_for(chance.randint(0, SECOND))
    # Where a window ends there are two messages, and the second goes out when the first is heard.
    delay_ns = max(every * 5 // 4, 4 * latency) + 3 * latency + 1
    assert worst(world, limit, delay_ns=delay_ns) <= 0, seed
    assert worst(world, limit, delay_ns=0) > 0, seed  # or it is no test of the delay


@pytest.mark.parametrize("seed", range(10))
def test_a_partition_costs_at_most_a_limit_for_each_region_and_is_paid_back(seed: int) -> None:
    chance = random.Random(seed)
    limit = TokenBucket(40, 5)
    names = ("eu", "us", "ap")
    world = World(limit, chance, names=names)
    world.cut = {(a, b) for a in names for b in names}

    def flood(duration_ns: int) -> tuple[int, float]:
        began, before = world.now, len(world.allowed_units)
        while world.now < began + duration_ns:
            world.run_for(chance.randint(0, 50 * MILLISECOND))
            world.hit(chance.choice(list(world.regions.values())), "a")
        return len(world.allowed_units) - before, (world.now - began) / SECOND

    apart, t = flood(4 * SECOND)
    assert apart <= 3 * (40 + 5 * t), seed
    assert apart > 40 + 5 * t, seed  # or there was no partition
    world.heal()
    world.run_for(3 * SECOND)  # the longest pause of a link that failed, and its messages
    _, t_after = flood(30 * SECOND)
    t_all = t + 3 + t_after
    within_the_delay = 10
    assert len(world.allowed_units) <= 40 + 5 * t_all + within_the_delay, seed


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["bucket", "log", "window"])
def test_debt_after_a_partition_is_no_larger_than_it_may_be(seed: int, kind: str) -> None:
    limit = LIMITS[kind]
    names = ("eu", "us", "ap")
    share = Fraction(random.Random(seed).choice([0, 1, 2]), 2)
    forgiving = World(limit, random.Random(seed), names=names, max_debt=share)
    strict = World(limit, random.Random(seed), names=names)
    for world in (forgiving, strict):
        world.cut = {(a, b) for a in names for b in names}
        for _ in range(150):
            world.run_for(50 * MILLISECOND)
            for region in world.regions.values():
                world.hit(region, "a")
        world.heal()
        world.run_for(3 * SECOND)  # the longest pause of a link that failed, and its messages
    for name in names:
        debt = forgiving.used(forgiving.regions[name], "a") - limit.quota
        assert debt <= share * limit.quota, seed
        assert debt < strict.used(strict.regions[name], "a") - limit.quota, seed


def test_forgiven_usage_is_forgiven_once_and_for_all() -> None:
    limit = SlidingWindowLog(20, 600)
    world = World(limit, random.Random(1), max_debt=Fraction(0))
    world.cut = {("eu", "us"), ("us", "eu")}
    for region in world.regions.values():
        world.hit(region, "a", 20)
    world.run_for(10 * SECOND)
    settle(world)
    assert [world.used(region, "a") for region in world.regions.values()] == [20, 20]
    world.run_for(600 * SECOND)
    assert all(world.hit(region, "a", 3) for region in world.regions.values())
    settle(world)
    assert [world.used(region, "a") for region in world.regions.values()] == [6, 6]
