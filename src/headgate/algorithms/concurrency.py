"""Concurrency: so many at the same time, each holding a slot on lease.

The state is the set of leases and when each runs out. A slot is free again when its holder gives
it back or when its lease has run out, whichever comes first, so a crashed holder heals by itself.
Time alone frees nothing before that: `wait` says when the next leases run out if nobody gives a
slot back earlier.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from headgate.algorithms.algorithm import Algorithm
from headgate.errors import UsageError

if TYPE_CHECKING:
    from headgate.limits import Concurrency

Leases = dict[str, int]
"""When each lease runs out, in nanoseconds, by the name of the lease."""


class ConcurrencyAlgorithm(Algorithm[Leases]):
    """The arithmetic of `Concurrency(limit, ttl)`."""

    __slots__ = ("ttl_ns",)

    def __init__(self, limit: Concurrency) -> None:
        super().__init__(limit)
        self.ttl_ns = limit.ttl_ns

    def enter(self, state: Leases | None, lease: str, now: int) -> Leases:
        """Take, or renew, the slot of *lease*."""
        return {**self._live(state, now), lease: now + self.ttl_ns}

    def leave(self, state: Leases | None, lease: str, now: int) -> Leases | None:
        """Give the slot of *lease* back."""
        left = self._live(state, now)
        left.pop(lease, None)
        return left or None

    def holds(self, state: Leases | None, lease: str, now: int) -> bool:
        """Whether *lease* still has its slot."""
        return lease in self._live(state, now)

    def wait(self, state: Leases | None, cost: int, now: int) -> int | None:
        if cost > self.quota:
            return None
        live = self._live(state, now)
        missing = len(live) + cost - self.quota
        return nsmallest(missing, live.values())[-1] - now if missing > 0 else 0

    def charge(self, state: Leases | None, amount: int, now: int) -> Leases:
        raise UsageError("a slot has to be given back: use slot(key), not hit, reserve or charge")

    def refund(self, state: Leases, amount: int, now: int) -> Leases:
        raise UsageError("a slot is given back by leaving it, not by a refund")

    def remaining(self, state: Leases | None, now: int) -> int:
        return max(0, self.quota - self.used(state, now))

    def fresh_in(self, state: Leases | None, now: int) -> int:
        return max(self._live(state, now).values(), default=now) - now

    def used(self, state: Leases | None, now: int) -> int:
        return len(self._live(state, now))

    def adopt(self, state: Leases, old: Algorithm[Leases], now: int) -> Leases | None:
        return state if isinstance(old, ConcurrencyAlgorithm) else None

    @staticmethod
    def _live(state: Leases | None, now: int) -> Leases:
        return {lease: end for lease, end in state.items() if end > now} if state else {}
