"""The service decides under limits that are as low as those of the apps beside it."""

from __future__ import annotations

import asyncio
from fractions import Fraction

from headgate.overload import AsyncPressureControl
from headgate.policy.loader import read_policy
from headgate.policy.model import Pressure
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.container import FleetPressure
from headgate.stores import MemoryStore
from headgate.testing.virtual_loop import VirtualLoop, run_virtually

RULES = """
version: 1
pressure: {latency: 500ms}
rules:
  - {id: all, key_by: ip, limit: 100/s, adaptive: {floor: 20%}}
"""
CALM = RULES.replace("pressure: {latency: 500ms}\n", "")


class Town:
    """A service, and an app beside it that has requests all the time."""

    def __init__(self, rules: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        store = MemoryStore(clock=loop.time_ns)
        self.engine = AsyncRuleEngine(read_policy(rules), store=store)
        self.pressure = FleetPressure(self.engine, namespace="headgate")
        self.app = AsyncPressureControl(Pressure(), store=store, clock=loop.time_ns)
        self.app.start()
        self.pressure.start()

    async def pass_time(self, seconds: int, *, trouble: float = 0.0) -> Fraction:
        """What the limits of the service are multiplied by after that."""
        for _ in range(seconds):
            self.app.signal("db", trouble)
            for _ in range(30):
                self.app.record(latency_ns=1)
            await asyncio.sleep(1)
        return self.pressure.factor

    async def close(self) -> None:
        await self.pressure.aclose()
        await self.app.aclose()
        assert len(asyncio.all_tasks()) == 1


def test_it_follows_the_apps_down_and_up_again() -> None:
    async def main() -> None:
        town = Town(RULES)
        assert await town.pass_time(5) == 1
        assert await town.pass_time(30, trouble=2) == Fraction(1, 10)
        assert await town.pass_time(60) == 1
        await town.close()

    run_virtually(main())


def test_limits_are_whole_again_some_time_after_the_last_app_is_gone() -> None:
    async def main() -> None:
        town = Town(RULES)
        await town.pass_time(30, trouble=2)
        await town.app.aclose()
        await asyncio.sleep(5)
        assert town.pressure.factor < Fraction(1, 2), "not at once"
        await asyncio.sleep(60)
        assert town.pressure.factor == 1
        await town.close()

    run_virtually(main())


def test_rules_without_pressure_are_never_lowered_and_those_that_get_it_are() -> None:
    async def main() -> None:
        town = Town(CALM)
        assert await town.pass_time(10, trouble=2) == 1
        town.engine.replace(read_policy(RULES))
        assert await town.pass_time(5, trouble=2) < Fraction(1, 2)
        town.engine.replace(read_policy(CALM))
        assert town.pressure.factor == 1
        assert await town.pass_time(5, trouble=2) == 1
        town.engine.replace(read_policy(RULES))
        assert town.pressure.factor < 1, "what is so is so at once"
        await town.close()

    run_virtually(main())
