"""How long things took: percentiles of what was measured, none of it estimated."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Latency(NamedTuple):
    """So many took so long, in nanoseconds."""

    answers: int
    p50: int
    p90: int
    p99: int
    most: int

    def as_json(self) -> dict[str, float | int]:
        """The same in seconds."""
        return {
            "count": self.answers,
            "p50": self.p50 / 1e9,
            "p90": self.p90 / 1e9,
            "p99": self.p99 / 1e9,
            "max": self.most / 1e9,
        }


def latency_of(waits_ns: Sequence[int]) -> Latency | None:
    """The percentiles of *waits_ns*, the shortest first; None without any.

    The p90 is the shortest wait that nine in ten do not exceed.
    """
    count = len(waits_ns)
    if not count:
        return None
    p50, p90, p99 = (waits_ns[-(-count * percent // 100) - 1] for percent in (50, 90, 99))
    return Latency(count, p50, p90, p99, waits_ns[-1])
