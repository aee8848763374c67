"""The ways to keep a limit that are compared, and the traffic that they meet."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from headgate.limits import EXACT, Accuracy, TokenBucket
from headgate.stores.layers.leases.lease import LeaseGroup
from headgate.units import MILLISECOND

LIMIT: Final = TokenBucket(4_000, 4_000)
"""Low enough for exact decisions to reach it on a small machine."""
OUT_OF_REACH: Final = TokenBucket(10**9, 1_000)
KEY: Final = "user:42"
PROCESSES: Final = (1, 2, 4)
FLEET: Final = PROCESSES[-1]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to keep a limit; *saves* says how many requests a round trip has to serve at least."""

    name: str
    accuracy: Accuracy
    saves: int | None = None

    def bound(self, processes: int) -> int:
        """By how many units that many processes may overshoot `LIMIT`."""
        group = LeaseGroup(self.name, LIMIT, self.accuracy)
        group.holders = processes
        return group.bound().bound


@dataclass(frozen=True, slots=True)
class Traffic:
    """What all processes together ask for: first half of the limit, then this.

    *share* is a part of the limit; None: as much as they can. *is_limited* says whether there is a
    limit within reach at all.
    """

    name: str
    share: float | None
    is_limited: bool = True

    @property
    def limit(self) -> TokenBucket:
        return LIMIT if self.is_limited else OUT_OF_REACH


FREE: Final = Traffic("limit out of reach", None, is_limited=False)
HALF: Final = Traffic("half of the limit", 0.5)
FULL: Final = Traffic("the limit", 1.0)
ABOVE: Final = Traffic("far above the limit", None)


def _lease(batch: int) -> Way:
    return Way(f"lease, batch {batch:,}", Accuracy(batch=batch), batch)


def _lease_within(percent: int) -> Way:
    return Way(f"lease, {percent} %", Accuracy(max_overshoot=Fraction(percent, 100)))


def _sync_within(percent: int) -> Way:
    share = Fraction(percent, 100)
    return Way(
        f"sync 100 ms, {percent} %", Accuracy(max_overshoot=share, sync_ns=100 * MILLISECOND)
    )


ASK_ALWAYS: Final = Way("exact", EXACT, 1)
LARGE: Final = _lease(100_000)
LEASES: Final = (_lease(10), _lease(100), _lease(1_000))
SYNC: Final = Way("sync 100 ms", Accuracy(sync_ns=100 * MILLISECOND))
WAYS: Final = (
    ASK_ALWAYS,
    *LEASES,
    _lease_within(1),
    _lease_within(10),
    _sync_within(10),
    SYNC,
)
