"""Streams whose rules change under way: by a policy, by a block, by pressure."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.support.rlqs_gateways import PER_USER, Line, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

ADA = {"user": "ada"}
FIRST = (ADA, 0, 1, 0)


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_limits_are_lowered_under_pressure_and_restored_within_a_second_or_two() -> None:
    async def scene() -> None:
        service = Service(f"{PER_USER}    adaptive: {{floor: 20%}}\n")
        line = Line(service)
        await line.report(FIRST)
        await service.pass_time(4)
        scale = service.core.rules.in_force.scale
        seen = []
        for factor in (Fraction(1), Fraction(1, 2), Fraction(1, 10), Fraction(1)):
            scale.factor = factor
            await line.report((ADA, 5, 500, 0))
            await service.pass_time(5)
            seen.append(line.rate(**ADA) or 0)
        whole = (100, 50, 20, 100)
        assert all(0.8 * most < rate <= most for rate, most in zip(seen, whole, strict=True)), seen
        await line.vanish()

    run(scene)


def test_a_changed_policy_is_in_force_within_a_second() -> None:
    async def scene() -> None:
        service = Service()
        one, other = Line(service), Line(service)
        for line in (one, other):
            await line.report(FIRST)
        await service.pass_time(4)
        service.replace(PER_USER.replace("100/s", "10/s"))
        await service.pass_time(1)
        assert (one.rate(**ADA) or 0) + (other.rate(**ADA) or 0) <= 10
        await service.pass_time(5)
        assert 8 < (one.rate(**ADA) or 0) + (other.rate(**ADA) or 0) <= 10
        service.replace("version: 1\nrules: []\n")
        await service.pass_time(1)
        assert one.rate(**ADA) == float("inf")
        service.replace(PER_USER)
        await service.pass_time(1)
        assert 0 < (one.rate(**ADA) or 0) <= 100
        await one.vanish()
        await other.vanish()

    run(scene)


def test_a_blocked_caller_is_denied_until_the_block_ends() -> None:
    async def scene() -> None:
        service = Service()
        end = datetime.fromtimestamp(service.clock.now + 30, UTC)
        block = f'rule: per-user, key: "attribute:user=ada", block: true, until: "{end:%FT%TZ}"'
        line = Line(service)
        await line.report(FIRST, ({"user": "bob"}, 0, 1, 0))
        service.replace(f"{PER_USER}overrides: [{{{block}}}]\n")
        await service.pass_time(1)
        assert line.rate(**ADA) == 0
        assert line.rate(user="bob") == 95
        for _ in range(7):
            await service.pass_time(5)
            await line.report((ADA, 5, 0, 5))
        assert (line.rate(**ADA) or 0) > 0
        await line.vanish()

    run(scene)
