"""How much to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """All samples of one kind take the same time, whoever is measured."""

    rounds: int
    sample_s: float
    curve_rounds: int
    curve_callers: tuple[int, ...]
    requests: int
    """What redis-benchmark sends for one sample."""
    lone_rounds: int
    lone_checks: int
    arrival_seconds: int
    weighed: tuple[str, ...]
    """The kinds of keys to weigh."""
    weighed_keys: int
    weighed_keys_of_peers: int
    """Fewer, because they are slow; Redis's tables are as full as with the others."""


FULL = Effort(
    rounds=12,
    sample_s=0.2,
    curve_rounds=4,
    curve_callers=(1, 10, 50, 200, 1000),
    requests=40_000,
    lone_rounds=40,
    lone_checks=100,
    arrival_seconds=10,
    weighed=("short", "long"),
    weighed_keys=100_000,
    weighed_keys_of_peers=12_500,
)
QUICK = Effort(
    rounds=4,
    sample_s=0.15,
    curve_rounds=1,
    curve_callers=(1, 50, 200, 1000),
    requests=15_000,
    lone_rounds=25,
    lone_checks=50,
    arrival_seconds=2,
    weighed=("short",),
    weighed_keys=6_250,
    weighed_keys_of_peers=3_125,
)
