"""Taking samples: contestants in turns, so that a noisy machine disturbs them all alike."""

from __future__ import annotations

import gc
import itertools
import random
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.inprocess.contestant import Entry

MILLISECOND = 1_000_000
LEAST_BATCH = 100


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    repeats: int
    sample_ns: int
    """How long one sample takes, for the quick and the slow alike: a long sample meets more
    noise than a short one, and the best of many would favour the quick."""
    many_keys: int
    memory_keys: int
    curve_keys: tuple[int, ...]


FULL = Effort(
    repeats=40,
    sample_ns=4 * MILLISECOND,
    many_keys=100_000,
    memory_keys=100_000,
    curve_keys=(1, 10, 100, 1_000, 10_000, 100_000, 1_000_000),
)
QUICK = Effort(
    repeats=15,
    sample_ns=3 * MILLISECOND,
    many_keys=10_000,
    memory_keys=12_500,  # which fill a dict as 100,000 do
    curve_keys=(1, 10, 100, 1_000, 10_000, 100_000),
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds per check: the least disturbed sample and the middle one."""

    best: float
    median: float

    @classmethod
    def of(cls, samples: list[float]) -> Timing:
        return cls(round(min(samples), 1), round(statistics.median(samples), 1))


def in_turns(samples: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, Timing]:
    """Take *repeats* samples of each, every round in a new order.

    A sample is nanoseconds per check. The garbage collector is on, but is told before each sample
    to leave alone what is there already: one would else pay for what another has left behind.
    """
    taken: dict[str, list[float]] = {name: [] for name in samples}
    order = list(samples)
    shuffle = random.Random(1).shuffle
    for _ in range(repeats):
        shuffle(order)
        for name in order:
            gc.freeze()
            taken[name].append(samples[name]())
    gc.unfreeze()
    return {name: Timing.of(values) for name, values in taken.items()}


def batch_size(entry: Entry, keys: Sequence[str], sample_ns: int) -> int:
    """How many checks fill a sample; it finds out on some of *keys*, which warms up too."""
    few = list(itertools.islice(itertools.cycle(keys), LEAST_BATCH))
    fastest = min(entry.run(few) for _ in range(5))
    entry.settle()
    return max(LEAST_BATCH, sample_ns * LEAST_BATCH // fastest)


def numbered_keys(count: int) -> list[str]:
    return [f"user:{number}" for number in range(count)]


def shuffled(keys: Sequence[str]) -> list[str]:
    """*keys* in another order, the same in every run.

    Filled in one order and asked in another, a table is not simply read from front to back.
    """
    return random.Random(2).sample(keys, len(keys))
