"""Random comings and goings at a gate on virtual time: nothing is ever lost, none is beyond bounds.

Tasks come, are cancelled at any moment, run out of time; slots and weights change meanwhile.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from headgate.overload import AsyncFairGate
from headgate.testing.virtual_loop import run_virtually
from tests.support.gate_callers import Steered


class Crowd:
    """Those who come to one gate."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steering = Steered(3)
        self.gate = AsyncFairGate(
            slots=self.steering,
            queue=8,
            waiting=20,
            max_wait=self.random.choice((None, 2, 5)),
            reserve={"critical": 0.3},
        )
        self.inside = 0
        self.begun: dict[str, dict[int, int]] = {tenant: {} for tenant in "abc"}
        """When the place of each began, by its number."""

    async def visit(self, number: int, tenant: str) -> None:
        """Come, stay for a while, and go."""
        random = self.random
        timeout = random.choice((None, None, 1, 0))
        async with self.gate.place(tenant, random.randint(1, 4), timeout=timeout) as place:
            if not place:
                return
            self.begun[tenant][number] = place.began_ns
            self.inside += 1
            try:
                # Some that are in may not have heard of it yet.
                assert self.inside <= self.gate.in_flight
                await asyncio.sleep(random.choice((0, 0.1, 0.5, 1)))
            finally:
                self.inside -= 1

    def meddle(self, tasks: list[asyncio.Task[None]]) -> None:
        """Something else happens."""
        random = self.random
        match random.randrange(4):
            case 0:
                self.steering.limit = random.randint(1, 6)
            case 1:
                self.gate.configure(weights={random.choice("abc"): random.randint(1, 9)})
            case _:
                random.choice(tasks).cancel()

    async def live(self) -> None:
        """Two hundred visits."""
        random, tasks = self.random, list[asyncio.Task[None]]()
        for number in range(200):
            tasks.append(asyncio.create_task(self.visit(number, random.choice("aabc"))))
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)
            if random.random() < 0.4:
                self.meddle(tasks)
            if random.random() < 0.3:
                await asyncio.sleep(random.choice((0.1, 0.5, 1)))
            assert 0 <= self.gate.depth <= 20
            assert all(self.gate.depth_of(tenant) <= 8 for tenant in "abc")
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            assert task.cancelled() or task.exception() is None


@pytest.mark.parametrize("seed", range(10))
def test_after_all_have_gone_a_gate_is_as_new(seed: int) -> None:
    async def main() -> None:
        crowd = Crowd(seed)
        await crowd.live()
        gate = crowd.gate
        assert (gate.in_flight, gate.depth, crowd.inside) == (0, 0, 0), seed
        for tenant, begun in crowd.begun.items():
            times = [begun[number] for number in sorted(begun)]
            assert times == sorted(times), (seed, tenant)  # first come, first served
        assert sum(map(len, crowd.begun.values())) > 50

    run_virtually(main())
