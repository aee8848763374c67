"""Of the threads that wait for a rate one looks for more: always one, as long as any waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.overload import FairGate
from headgate.overload.turns import Place
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from headgate.overload import Turn


class Sleepers:
    """Threads that wait at a gate, step by step."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gate = FairGate(rate="1/s", clock=self.clock)
        self.gate.enter("a")
        self.woken: list[str] = []

    def line_up(self, name: str) -> Place:
        gate = self.gate
        place = gate._entrance.line_up(name, 1, None, "default", None, self.clock())
        assert isinstance(place, Place)

        def wake(_: Turn | None) -> None:
            self.woken.append(name)

        place.wake = wake
        return place

    def look(self, place: Place) -> None:
        self.gate._look(place)
        if place.turn is not None:
            self.gate._step_down(place)


def test_one_that_was_to_look_and_found_its_turn_has_another_look() -> None:
    sleepers = Sleepers()
    first, second, third = (sleepers.line_up(name) for name in "abc")
    for place in (first, second, third):
        sleepers.look(place)
    sleepers.clock.advance(1)
    sleepers.look(first)
    assert first.turn
    assert "b" in sleepers.woken
    sleepers.clock.advance(1)  # it is slow to wake up
    sleepers.woken.clear()
    sleepers.look(second)
    assert second.turn
    assert "c" in sleepers.woken


def test_one_that_was_to_look_and_gives_up_has_another_look() -> None:
    sleepers = Sleepers()
    first, second, third = (sleepers.line_up(name) for name in "abc")
    for place in (first, second, third):
        sleepers.look(place)
    sleepers.clock.advance(1)
    sleepers.look(first)
    sleepers.woken.clear()
    sleepers.gate._abandon(second, sleepers.gate._entrance)
    assert sleepers.woken == ["c"]
