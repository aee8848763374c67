"""Many gateways, replicas and mishaps on virtual time: the limit holds, and is used."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from headgate.service.rlqs.options import RlqsOptions
from headgate.service.rlqs.rates import Allowance
from headgate.units import SECOND
from tests.support.rlqs_gateways import Envoy, Service, breathe
from tests.support.virtual_gateways import World

LIMITS = [
    Allowance(Fraction(60), 60),
    Allowance(Fraction(10), 50),
    Allowance(Fraction(1, 6), 10),
    Allowance(Fraction(1), 1),
    Allowance(Fraction(100), 5),
]


def _name(limit: Allowance) -> str:
    return f"{limit.burst}+{limit.rate}t"


def _happen(world: World, seconds: float, random: Random) -> None:
    """Gateways come, go, lose their streams, change their minds; replicas die."""
    rate = float(world.allowance.rate)
    here = [world.join(rate)]
    passed = 0.0
    while passed < seconds:
        match random.randrange(8):
            case 0 | 1 if len(here) < 8:
                here.append(world.join(rate * random.choice([0.05, 0.3, 1, 3])))
            case 2 if len(here) > 1:
                gone = here.pop(random.randrange(len(here)))
                world.vanish(gone, is_noticed=random.random() < 0.5)
            case 3:
                world.reconnect(random.choice(here))
            case 4:
                world.restart(random.randrange(len(world.replicas)))
            case _:
                random.choice(here).demand = rate * random.choice([0, 0.1, 0.5, 2])
        pause = random.expovariate(0.3)
        passed += pause
        world.run(pause)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("limit", LIMITS, ids=_name)
def test_no_time_ever_sees_more_than_the_limit(limit: Allowance, replicas: int) -> None:
    for seed in range(2):
        world = World(limit, RlqsOptions(), replicas=replicas, seed=seed)
        _happen(world, 60, Random(seed))
        # Each gateway needs a token: with more of them than tokens there is one for each.
        assert world.meter.most <= max(limit.burst, world.most_claims), f"seed {seed}"
        assert world.meter.count, f"seed {seed}: nothing was ever let through"


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_limit_that_is_lowered_holds_when_the_word_must_have_come(replicas: int) -> None:
    world = World(Allowance(Fraction(100), 100), RlqsOptions(), replicas=replicas, seed=3)
    for _ in range(3):
        world.join(100)
    world.run(20)
    world.allowance = Allowance(Fraction(10), 10)
    world.run(1 + world.options.delivery)
    world.meter.rate, world.meter.used, world.meter.most = Fraction(10), Fraction(0), Fraction(0)
    world.meter.at_ns = world.now_ns
    world.run(30)
    assert 0 < world.meter.most <= 10


@pytest.mark.parametrize(
    ("limit", "gateways", "replicas"),
    [
        (Allowance(Fraction(100), 100), 3, 1),
        (Allowance(Fraction(100), 100), 8, 3),
        (Allowance(Fraction(50), 200), 4, 2),
    ],
)
def test_under_steady_overload_nine_tenths_of_the_limit_are_used(
    limit: Allowance, gateways: int, replicas: int
) -> None:
    world = World(limit, RlqsOptions(), replicas=replicas, seed=1)
    for _ in range(gateways):
        world.join(float(limit.rate) * 2)
    world.run(20)
    before = world.meter.count
    world.run(40)
    assert world.meter.count - before >= Fraction(9, 10) * limit.rate * 40


@pytest.mark.parametrize("is_fresh", [False, True])
@pytest.mark.parametrize("later", [0.0, 0.5, 2.5, 7.0])
def test_two_equal_gateways_use_nine_tenths_of_the_limit_in_every_second(
    later: float, is_fresh: bool
) -> None:
    """A second gateway costs one second, in which the share of the first is taken back."""

    async def scene() -> list[int]:
        service = Service(is_fresh=is_fresh)
        first, second = Envoy(service, user="ada"), Envoy(service, user="ada")
        allowed = []
        for step in range(40 * 20):
            service.clock.advance(0.05)
            await first.ask(5)
            if step >= later * 20:
                await second.ask(5)
            if step % 20 == 19:
                await service.calls.tick()
                await breathe()
                allowed.append(first.allowed + second.allowed)
        await service.calls.aclose()
        return [after - before for before, after in pairwise([0, *allowed])]

    in_each_second = asyncio.run(scene())
    assert all(one >= 90 for one in in_each_second[int(later) + 3 :]), in_each_second


def test_a_busy_gateway_gets_what_quiet_ones_do_not_want() -> None:
    world = World(Allowance(Fraction(100), 100), RlqsOptions(), replicas=2, seed=1)
    busy, *quiet = [world.join(demand) for demand in (200, 5, 5)]
    world.run(20)
    busy.allowed = 0
    counts = world.meter.count
    world.run(4)
    assert world.meter.count - counts > 0.8 * 100 * 4
    assert busy.token_bucket is not None
    assert busy.token_bucket.rate > 70
    assert all(one.token_bucket is not None and one.token_bucket.rate >= 5 for one in quiet)


@pytest.mark.parametrize("seed", range(4))
def test_a_restart_without_memory_lets_through_half_as_much_again_at_most(seed: int) -> None:
    options = RlqsOptions()
    limit = Allowance(Fraction(60), 60)
    world = World(limit, options, replicas=1, seed=seed)
    gateways = [world.join(120) for _ in range(4)]
    world.run(15 + seed)
    # The meter of one and a half times the limit, from the restart on.
    world.meter.rate, world.meter.used, world.meter.most = (
        limit.rate * 3 / 2,
        Fraction(0),
        Fraction(0),
    )
    world.meter.at_ns = world.now_ns
    world.ledger = None
    world.opens_ns = world.now_ns + options.ttl_ns + options.delivery_ns
    world.restart(0)
    world.run(options.ttl + options.delivery)
    assert world.meter.most <= limit.burst * 3 / 2
    # And then the limit as ever.
    world.meter.rate, world.meter.used, world.meter.most = limit.rate, Fraction(0), Fraction(0)
    world.meter.at_ns = world.now_ns
    before = world.meter.count
    world.run(20)
    assert world.meter.most <= limit.burst
    assert world.meter.count - before > 0.8 * 60 * 20
    assert all(one.token_bucket is not None for one in gateways)
    assert world.now_ns > world.opens_ns + 19 * SECOND
