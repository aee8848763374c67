"""Nanoseconds per check: one hot key and many keys, admitted and denied."""

from __future__ import annotations

import gc
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarks.inprocess.contestant import Quota
from benchmarks.inprocess.measure import batch_size, in_turns, numbered_keys, shuffled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.inprocess.contestant import Contestant, Entry
    from benchmarks.inprocess.measure import Effort, Timing

THIRTY_DAYS = 30 * 86_400
"""The window of every quota: long enough for no counter to lapse while the run lasts."""
HOT_QUOTA = Quota(10_000_000, THIRTY_DAYS)
KEY_QUOTA = Quota(1_000, THIRTY_DAYS)
"""Enough for every key among many, and for a log that is measured on a hot key."""
USED_UP = Quota(1, THIRTY_DAYS)
LOG_BATCH = 500
"""Checks in one sample of a log on a hot key: from none to this many hits remembered."""

Outcome = Literal["allowed", "denied"]


@dataclass(frozen=True, slots=True)
class Scenario:
    keys: int
    outcome: Outcome

    @property
    def name(self) -> str:
        return f"{'1 hot key' if self.keys == 1 else f'{self.keys:,} keys'}, {self.outcome}"

    @property
    def grows_a_log(self) -> bool:
        return self.keys == 1 and self.outcome == "allowed"

    def quota(self, contestant: Contestant) -> Quota:
        if self.outcome == "denied":
            return USED_UP
        return HOT_QUOTA if self.keys == 1 and not contestant.logs_every_hit else KEY_QUOTA


SpeedTable = dict[str, dict[str, "Timing"]]
"""By scenario, then by contestant."""


def scenarios(effort: Effort) -> tuple[Scenario, ...]:
    return (
        Scenario(1, "allowed"),
        Scenario(1, "denied"),
        Scenario(effort.many_keys, "allowed"),
        Scenario(effort.many_keys, "denied"),
    )


def measure_speed(contestants: Sequence[Contestant], effort: Effort) -> SpeedTable:
    return {
        scenario.name: measure_scenario(scenario, contestants, effort)
        for scenario in scenarios(effort)
    }


def measure_scenario(
    scenario: Scenario, contestants: Sequence[Contestant], effort: Effort
) -> dict[str, Timing]:
    keys = numbered_keys(scenario.keys)
    entries = {contestant: _entered(contestant, scenario, keys) for contestant in contestants}
    gc.collect()
    samples = {
        contestant.name: _sample(contestant, entry, scenario, keys, effort)
        for contestant, entry in entries.items()
    }
    timings = in_turns(samples, effort.repeats)
    for contestant, entry in entries.items():
        _verify(contestant, entry, scenario, keys[0])
        entry.close()
    return timings


def _entered(contestant: Contestant, scenario: Scenario, keys: Sequence[str]) -> Entry:
    """An entry that has seen every key once, and answers as the scenario says."""
    entry = contestant.enter(scenario.quota(contestant))
    entry.fill(keys)
    entry.settle()
    _verify(contestant, entry, scenario, keys[0])
    return entry


def _verify(contestant: Contestant, entry: Entry, scenario: Scenario, key: str) -> None:
    if contestant.answer == "none":
        return
    outcome = "allowed" if entry.hit(key) else "denied"
    if outcome != scenario.outcome:
        raise RuntimeError(f"{contestant.name}: {outcome} in {scenario.name!r}")


def _sample(
    contestant: Contestant, entry: Entry, scenario: Scenario, keys: Sequence[str], effort: Effort
) -> Callable[[], float]:
    if contestant.logs_every_hit and scenario.grows_a_log:
        return _growing_log_sample(contestant, scenario, keys[0])
    batch = batch_size(entry, keys, effort.sample_ns)
    batches = _batches(shuffled(keys), batch)

    def sample() -> float:
        elapsed = entry.run(next(batches))
        entry.settle()
        return elapsed / batch

    return sample


def _growing_log_sample(
    contestant: Contestant, scenario: Scenario, key: str
) -> Callable[[], float]:
    """Samples that each begin with a new log, or the last would be the slowest."""
    batch = [key] * LOG_BATCH

    def sample() -> float:
        entry = contestant.enter(scenario.quota(contestant))
        elapsed = entry.run(batch)
        entry.settle()
        entry.close()
        return elapsed / LOG_BATCH

    return sample


def _batches(keys: Sequence[str], size: int) -> Iterator[list[str]]:
    """The keys round and round, *size* at a time; a list is cut before it is timed."""
    endless = itertools.cycle(keys)
    while True:
        yield list(itertools.islice(endless, size))
