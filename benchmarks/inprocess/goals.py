"""What the run is held to, and whether it was met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.inprocess.floor import FLOOR
from benchmarks.inprocess.ours import GCRA_FULL, TOKEN_BUCKET, TOKEN_BUCKET_HIT
from benchmarks.inprocess.peers import PEERS

if TYPE_CHECKING:
    from benchmarks.inprocess.contestant import Contestant
    from benchmarks.inprocess.measure import Timing
    from benchmarks.inprocess.memory import MemoryTable
    from benchmarks.inprocess.speed import SpeedTable

MOST_TIMES_THE_FLOOR = 3.0
LEAST_TIMES_FASTER = 10.0
MOST_BYTES_A_KEY = 150.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A number and the bound it must keep; all of them are of the best samples."""

    what: str
    value: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "met" if self.met else "MISSED"
        return f"{verdict:6}  {self.value:7.2f}  (goal {sign} {self.bound:g})  {self.what}"


def speed_goals(speed: SpeedTable) -> list[Goal]:
    """The ratio to the floor on a hot key, and the distance to the fastest peer everywhere."""
    hot_allowed = next(iter(speed))
    goals = [_to_floor(speed[hot_allowed], form) for form in (TOKEN_BUCKET_HIT, TOKEN_BUCKET)]
    for scenario, timings in speed.items():
        goals += [_to_peer(scenario, timings, form) for form in (TOKEN_BUCKET_HIT, TOKEN_BUCKET)]
    return goals


def memory_goals(memory: MemoryTable) -> list[Goal]:
    return [
        Goal(
            f"{form.library}, {form.algorithm}: bytes a key",
            memory[form.name],
            MOST_BYTES_A_KEY,
            at_least=False,
        )
        for form in (TOKEN_BUCKET, GCRA_FULL)
    ]


def _to_floor(timings: dict[str, Timing], form: Contestant) -> Goal:
    ratio = round(timings[form.name].best / timings[FLOOR.name].best, 2)
    return Goal(
        f"{form.name} / floor, 1 hot key, allowed", ratio, MOST_TIMES_THE_FLOOR, at_least=False
    )


def _to_peer(scenario: str, timings: dict[str, Timing], form: Contestant) -> Goal:
    peers = [peer.name for peer in PEERS if peer.answer == "full"]
    fastest = min(peers, key=lambda name: timings[name].best)
    ratio = round(timings[fastest].best / timings[form.name].best, 2)
    return Goal(
        f"fastest peer ({fastest}) / {form.name}; {scenario}",
        ratio,
        LEAST_TIMES_FASTER,
        at_least=True,
    )
