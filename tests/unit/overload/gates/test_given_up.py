"""Turns that were never made use of, and a steering that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.overload import AsyncFairGate, FairGate, FleetRate
from headgate.runtime.effects import Sleep
from headgate.testing import ManualClock
from headgate.testing.virtual_loop import run_virtually
from tests.support.gate_callers import Steered, settle, work

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.runtime.effects import Effects, Signal


def test_a_turn_that_is_given_up_is_not_observed() -> None:
    steering = Steered(1)
    gate = FairGate(slots=steering)
    place = gate.enter("a")
    assert place.cancel()
    assert not place.cancel()
    assert not place.release()
    assert steering.seen == []
    assert gate.in_flight == 0
    assert gate.expected_wait == 0


def test_a_slot_that_is_given_up_is_the_next_ones() -> None:
    async def main() -> list[str]:
        gate, served = AsyncFairGate(slots=1), list[str]()
        place = await gate.enter("a")
        waiting = asyncio.ensure_future(work(gate, "b", served))
        await settle()
        place.cancel()
        await waiting
        return served

    assert run_virtually(main()) == ["b"]


def test_a_turn_at_a_rate_that_is_given_up_at_once_costs_nothing() -> None:
    async def main() -> list[float]:
        gate, loop = AsyncFairGate(rate="1/s"), asyncio.get_running_loop()
        assert (await gate.enter("a", 5)).cancel()
        begun = []
        for _ in range(2):
            await gate.enter("a")
            begun.append(loop.time())
        return begun

    assert run_virtually(main()) == [0, 1]


def test_a_turn_at_a_rate_given_up_after_others_began_does_not_make_them_crowd() -> None:
    async def main() -> list[float]:
        gate, loop = AsyncFairGate(rate="1/s"), asyncio.get_running_loop()
        first, begun = await gate.enter("a"), []
        for number in range(3):
            await gate.enter("a")
            begun.append(loop.time())
            if not number:
                await asyncio.sleep(0.5)
                first.cancel()
        return begun

    assert run_virtually(main()) == [1, 2, 3]


def test_a_turn_of_slots_is_not_given_back_to_a_rate() -> None:
    clock = ManualClock()
    gate = FairGate(slots=1, clock=clock)
    place = gate.enter("a")
    gate.configure(rate="1/s")
    gate.enter("a", 5)
    place.cancel()
    assert gate.expected_wait == 5


class Failing(Steered):
    """A steering that fails when it is told something."""

    def observe(self, *, in_flight: int, latency_ns: int, succeeded: bool) -> None:
        raise ArithmeticError("no")


def test_a_steering_that_fails_keeps_nobody_waiting() -> None:
    async def main() -> list[str]:
        gate, served = AsyncFairGate(slots=Failing(1)), list[str]()
        place = await gate.enter("a")
        waiting = asyncio.ensure_future(gate.enter("b"))
        await settle()
        with pytest.raises(ArithmeticError):
            place.release()
        served.append((await waiting).tenant)
        assert gate.in_flight == 1
        return served

    assert run_virtually(main()) == ["b"]


@pytest.mark.parametrize(("said", "limit"), [(2.9, 2), (0, 1), (-3, 1)])
def test_a_steering_that_says_something_odd_is_taken_at_the_least(said: float, limit: int) -> None:
    steering = Steered(1)
    steering.limit = said  # type: ignore[assignment]  # on purpose
    assert FairGate(slots=steering).limit == limit


def test_slots_that_fall_below_those_who_are_in_let_nobody_in_until_they_have_left() -> None:
    async def main() -> None:
        steering = Steered(4)
        gate = AsyncFairGate(slots=steering, reserve={"critical": 0.25})
        places = [await gate.enter("a") for _ in range(3)]
        critical = await gate.enter("a", priority="critical")
        waiting = asyncio.ensure_future(gate.enter("b"))
        await settle()
        steering.limit = 2
        for place in places:
            place.release()
            await settle()
            assert not waiting.done()  # one is in, and the last slot is for the critical
        critical.release()
        assert await waiting
        assert gate.in_flight == 1

    run_virtually(main())


class Unsteady(FleetRate):
    """A rate of a fleet that cannot be fetched the first time."""

    fetches = 0

    def fetch(self, stop: Signal, clock: Clock) -> Effects[None]:
        yield Sleep(0)
        self.fetches += 1
        if self.fetches == 1:
            raise ArithmeticError("no")
        yield from super().fetch(stop, clock)


def test_a_budget_that_could_not_be_fetched_is_fetched_for_the_next_one() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        gate = AsyncFairGate(rate=Unsteady("1/s", store="memory://", key="fleet"))
        first = asyncio.ensure_future(gate.enter("a"))
        await settle()
        assert not first.done()
        assert await gate.enter("b")
        assert await first

    run_virtually(main())
