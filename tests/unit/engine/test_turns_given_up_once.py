"""A turn that was given up and given to another is not taken from that one."""

from __future__ import annotations

import asyncio

from headgate.engine.request import Request
from headgate.limits import LeakyQueue
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.runtime.drivers import adrive, drive
from headgate.testing import ManualClock

SHAPE = Rule("shape", Match(), ("global",), {None: (LeakyQueue(1, 5),)})
REQUEST = Request("GET", "/x")


def test_turns_are_given_up_once_whoever_says_so_again() -> None:
    engine = RuleEngine(Policy((SHAPE,)), clock=ManualClock(1_000))
    engine.check(REQUEST)
    hasty = engine.check(REQUEST)
    drive(engine.engine.vacate(hasty))
    assert engine.check(REQUEST).delay == 1.0
    drive(engine.engine.vacate(hasty))
    engine.refund(hasty)
    assert engine.check(REQUEST).delay == 2.0


def test_turns_of_an_async_engine_are_given_up_once() -> None:
    async def main() -> list[float]:
        engine = AsyncRuleEngine(Policy((SHAPE,)), clock=ManualClock(1_000))
        await engine.check(REQUEST)
        hasty = await engine.check(REQUEST)
        await adrive(engine.engine.vacate(hasty))
        instead = await engine.check(REQUEST)
        await adrive(engine.engine.vacate(hasty))
        await engine.refund(hasty)
        return [instead.delay, (await engine.check(REQUEST)).delay]

    assert asyncio.run(main()) == [1.0, 2.0]
