"""`ManualClock`: it moves when it is told to, and only then."""

import asyncio

from headgate.testing import ManualClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(12.5)
    assert (clock(), clock(), clock.now) == (12_500_000_000, 12_500_000_000, 12.5)
    clock.advance(0.5)
    assert clock.now == 13
    clock.advance_ns(1)
    assert clock() == 13_000_000_001


def test_it_can_step_back_and_be_set() -> None:
    clock = ManualClock(10)
    clock.advance(-3)
    assert clock.now == 7
    clock.set(1.25)
    assert clock() == 1_250_000_000


def test_sleeping_on_it_moves_it() -> None:
    clock = ManualClock()
    clock.sleep(2)
    asyncio.run(clock.asleep(3))
    assert clock.now == 5


def test_its_repr_shows_the_time() -> None:
    assert repr(ManualClock(1.5)) == "ManualClock(1.5)"
