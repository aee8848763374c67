"""Samples taken in rounds, everybody once a round, and what they say."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Samples = dict[str, list[float]]
"""By contestant, a sample for each round."""


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in samples.items()}


def columns(samples: Mapping[tuple[str, str], Sequence[float]]) -> dict[str, dict[str, float]]:
    """The medians of samples that have a column and a name."""
    found: dict[str, dict[str, float]] = {}
    for (column, name), values in samples.items():
        found.setdefault(column, {})[name] = statistics.median(values)
    return found


def ratio(samples: Mapping[str, Sequence[float]], one: str, other: str) -> float:
    """How *one* compares with *other*: the median of the ratios within each round.

    A machine that is slow for a while is so for both.
    """
    pairs = zip(samples[one], samples[other], strict=True)
    return statistics.median([first / second for first, second in pairs])
