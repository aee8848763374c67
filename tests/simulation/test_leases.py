"""Random schedules of a fleet with leases: never more than the bound.

A failure names its seed; `play` with that seed does it again, step by step. There are some two
hundred, the same in every run; `HEADGATE_EXPLORE=5 pytest tests/simulation` plays ten times as
many.
"""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from headgate.limits import Accuracy, FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.testing.virtual_loop import run_virtually
from headgate.units import MILLISECOND, SECOND
from tests.examples import EXPLORE
from tests.support.fleet_bounds import most_in_a_window, most_in_any_span, most_over_bucket
from tests.support.fleet_nodes import Scene, play

SEEDS_EACH = 10 * EXPLORE or 5


def accuracy_of(draw: random.Random) -> Accuracy:
    """Leases or postpaid_leases, by share, by batch or both."""
    share = Fraction(draw.choice([2, 5, 10, 30, 100]), 100)
    batch = draw.choice([2, 5, 20])
    sync_ns = draw.choice([None, None, 20 * MILLISECOND, 100 * MILLISECOND, SECOND])
    return draw.choice([Accuracy(share, sync_ns=sync_ns), Accuracy(share, batch, sync_ns)])


def scene_of(draw: random.Random, limit: Limit, accuracy: Accuracy) -> Scene:
    return Scene(
        limit=limit,
        accuracy=accuracy,
        nodes=draw.choice([1, 2, 3, 8]),
        seconds=draw.choice([1.0, 1.0, 2.0]),
        demand=draw.choice([0.5, 1.0, 2.0, 4.0]),
        largest_cost=draw.choice([1, 1, 3]),
    )


@pytest.mark.parametrize("part", range(20))
def test_a_bucket_never_gives_more_than_its_bound(part: int) -> None:
    for seed in range(part * SEEDS_EACH, (part + 1) * SEEDS_EACH):
        draw = random.Random(seed)
        capacity, rate = draw.choice([(20, 20), (50, 100), (100, 50), (200, 100)])
        accuracy = accuracy_of(draw)
        scene = scene_of(draw, TokenBucket(capacity, rate), accuracy)
        world = run_virtually(play(seed, scene))
        cap = accuracy.cap(capacity)
        assert cap is not None
        excess = most_over_bucket(world.allowed, capacity, rate)
        assert excess <= cap, f"seed {seed}: {float(excess)} beyond, {cap} allowed; {scene}"


@pytest.mark.parametrize("part", range(12))
def test_a_fixed_window_is_never_exceeded_by_leases(part: int) -> None:
    for seed in range(part * SEEDS_EACH, (part + 1) * SEEDS_EACH):
        draw = random.Random(seed)
        limit, window = draw.choice([(20, 1), (50, 0.5), (100, 1)])
        accuracy = accuracy_of(draw)
        scene = scene_of(draw, FixedWindow(limit, window), accuracy)
        world = run_virtually(play(seed, scene))
        most = most_in_a_window(world.allowed, round(window * SECOND))
        allowed = limit if accuracy.sync_ns is None else limit + (accuracy.cap(limit) or 0)
        assert most <= allowed, f"seed {seed}: {most} in a window, {allowed} allowed; {scene}"


@pytest.mark.parametrize("part", range(8))
def test_a_sliding_window_never_has_more_than_its_bound(part: int) -> None:
    for seed in range(part * SEEDS_EACH, (part + 1) * SEEDS_EACH):
        draw = random.Random(seed)
        limit, window = draw.choice([(20, 1), (50, 0.5)])
        accuracy = accuracy_of(draw)
        scene = scene_of(draw, SlidingWindowLog(limit, window), accuracy)
        world = run_virtually(play(seed, scene))
        most = most_in_any_span(world.allowed, round(window * SECOND))
        allowed = limit + (accuracy.cap(limit) or 0)
        assert most <= allowed, f"seed {seed}: {most} in a window, {allowed} allowed; {scene}"


def test_the_same_seed_gives_the_same_run() -> None:
    scene = Scene(TokenBucket(100, 100), Accuracy(Fraction(1, 10)), nodes=3, seconds=2, demand=3)
    first, second = (run_virtually(play(7, scene)) for _ in range(2))
    assert first.allowed == second.allowed
    assert first.allowed


def test_leases_save_round_trips() -> None:
    """Else the simulation would show nothing."""
    scene = Scene(TokenBucket(1000, 1000), Accuracy(batch=20), nodes=2, seconds=4, demand=1)
    world = run_virtually(play(3, scene))
    assert world.calls < world.asked / 4
