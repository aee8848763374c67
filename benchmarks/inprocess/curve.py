"""Nanoseconds per check by the number of keys, beside a bare dict with the same accesses.

Random accesses among many keys miss the processor's caches. They do so in a bare dict too, and
the ratio of the two curves is what the limiter is answerable for.
"""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.inprocess.contestant import Quota
from benchmarks.inprocess.measure import batch_size, in_turns, numbered_keys
from benchmarks.inprocess.speed import KEY_QUOTA, THIRTY_DAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.inprocess.contestant import Contestant, Entry
    from benchmarks.inprocess.measure import Effort, Timing

HITS_FOR_ALL = 10_000_000
"""More than a run makes, so that no key is ever denied."""


@dataclass(frozen=True, slots=True)
class Point:
    """The timings of every contestant at one number of keys."""

    keys: int
    timings: dict[str, Timing]


def measure_curve(contestants: Sequence[Contestant], effort: Effort) -> list[Point]:
    return [
        Point(keys, _measure(contestants, numbered_keys(keys), effort))
        for keys in effort.curve_keys
    ]


def _measure(
    contestants: Sequence[Contestant], keys: Sequence[str], effort: Effort
) -> dict[str, Timing]:
    quota = Quota(max(HITS_FOR_ALL // len(keys), KEY_QUOTA.amount), THIRTY_DAYS)
    entries = {contestant.name: contestant.enter(quota) for contestant in contestants}
    for entry in entries.values():
        entry.fill(keys)
    gc.collect()
    draw = random.Random(3)
    samples = {
        name: _sample(entry, keys, batch_size(entry, keys, effort.sample_ns), draw)
        for name, entry in entries.items()
    }
    timings = in_turns(samples, effort.repeats)
    for entry in entries.values():
        entry.close()
    return timings


def _sample(
    entry: Entry, keys: Sequence[str], batch: int, draw: random.Random
) -> Callable[[], float]:
    def sample() -> float:
        return entry.run(draw.choices(keys, k=batch)) / batch

    return sample
