"""What a gate tells at `/metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, get_args

from headgate.observability.measures import MEASURES
from headgate.shaping.gates.turns import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)


class Tally:
    """How often something has happened. Without a lock: its gate is called by one at a time."""

    __slots__ = ("__weakref__", "count")

    def __init__(self) -> None:
        self.count = 0

    def read(self) -> int:
        return self.count


class Watched(Protocol):
    """What is told besides."""

    def waiting(self) -> int:
        """How many wait."""

    def inside(self) -> int:
        """How many are in."""

    def slots(self) -> int:
        """How many may be in; 0 if there is no such number."""


class Tallies:
    """What came of those who asked one gate for a turn; gates of the same *name* add up."""

    __slots__ = ("cancelled", "passed", "refused", "waited")

    def __init__(self, name: str) -> None:
        self.passed = Tally()
        self.waited = Tally()
        self.cancelled = Tally()
        self.refused: dict[Refusal, Tally] = {reason: Tally() for reason in REFUSALS}
        tallies: dict[str, Tally] = {
            "passed": self.passed,
            "waited": self.waited,
            "cancelled": self.cancelled,
        }
        tallies |= {str(reason): tally for reason, tally in self.refused.items()}
        text = "Turns that gates were asked for, by what came of it."
        for outcome, tally in tallies.items():
            MEASURES.tally("gate_turns", text, tally.read, gate=name, outcome=outcome)


def watch(name: str, watched: Watched) -> None:
    """Tell what *watched* says for as long as it lives."""
    MEASURES.gauge("gate_waiting", "Requests that wait at a gate.", watched.waiting, gate=name)
    MEASURES.gauge("gate_in_flight", "Requests that are in.", watched.inside, gate=name)
    MEASURES.gauge("gate_slots", "Requests that may be in.", watched.slots, gate=name)


def watch_wait(name: str, read: Callable[[], float]) -> None:
    """Tell how long those will wait who wait."""
    text = "Seconds until all who wait at a gate have had their turn, about."
    MEASURES.gauge("gate_wait_seconds", text, read, gate=name)
