"""A gate in one event loop after another."""

from __future__ import annotations

import asyncio

import pytest

from headgate.errors import UsageError
from headgate.overload import AsyncFairGate, Place
from headgate.testing.virtual_loop import VirtualLoop, run_virtually
from tests.support.gate_callers import settle


def test_an_idle_gate_moves_to_whatever_loop_asks() -> None:
    gate = AsyncFairGate(slots=1)

    async def visit() -> bool:
        async with gate.place("a") as place:
            return bool(place)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        for runner in (first, second, first):
            assert runner.run(visit())
    assert gate.in_flight == 0


def test_a_gate_that_somebody_is_in_or_waits_at_does_not_move() -> None:
    gate = AsyncFairGate(slots=1)

    async def come() -> tuple[Place, asyncio.Task[Place]]:
        place = await gate.enter("a")
        waiting = asyncio.create_task(gate.enter("b"))
        await settle()
        return place, waiting

    async def ask() -> None:
        await gate.enter("c")

    with asyncio.Runner() as first, asyncio.Runner() as second:
        place, waiting = first.run(come())
        with pytest.raises(UsageError, match="another event loop"):
            second.run(ask())
        waiting.cancel()
        first.run(settle())
        with pytest.raises(UsageError, match="another event loop"):
            second.run(ask())
        place.release()
        second.run(ask())


def test_what_was_taken_of_a_rate_still_counts_in_the_next_loop() -> None:
    gate = AsyncFairGate(rate="1/h")

    async def ask() -> bool:
        place = gate.try_enter("a")
        return place is not None and place.release()

    assert asyncio.run(ask())
    assert not asyncio.run(ask())


def test_a_loop_with_a_time_of_its_own_begins_anew() -> None:
    gate = AsyncFairGate(rate="1/s")

    async def ask() -> float:
        for _ in range(3):
            (await gate.enter("a")).release()
        return asyncio.get_running_loop().time()

    for _ in range(2):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            assert runner.run(ask()) == 2
    assert run_virtually(ask()) == 2
