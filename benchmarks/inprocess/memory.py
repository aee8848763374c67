"""Bytes a key: what a limiter keeps after one admitted hit by each of many keys."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

from benchmarks.inprocess.speed import KEY_QUOTA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.inprocess.contestant import Contestant

MemoryTable = dict[str, float]
"""Bytes a key, by contestant."""


def measure_memory(contestants: Sequence[Contestant], keys: int) -> MemoryTable:
    """Each contestant alone. The key itself counts: it is made anew and nobody else holds it."""
    return {
        contestant.name: round(_bytes_held(contestant, keys) / keys, 1)
        for contestant in contestants
    }


def _bytes_held(contestant: Contestant, keys: int) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        entry = contestant.enter(KEY_QUOTA)
        entry.fill(f"user:{number}" for number in range(keys))
        entry.settle()
        gc.collect()
        held, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    entry.close()
    return held
