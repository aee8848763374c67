"""Clients that ask again when they are refused: how a small excess becomes a large one."""

from __future__ import annotations

import random
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

from headgate.simulator.workloads.shapes import Steady
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.rules.model import Policy
    from headgate.simulator.traffic import Asked, Event
    from headgate.simulator.workloads.options import Options

_ROUND_TRIP_NS: Final = 50 * MILLISECOND
"""After which a client that does not wait asks again."""
_FIRST_WAIT_NS: Final = SECOND
_LONGEST_WAIT_NS: Final = 60 * SECOND


class RetryStorm(Steady):
    """Steady traffic whose refused requests come back, as `Options.retry` says."""

    name = "retry_storm"
    hears = True

    def __init__(self, policy: Policy, options: Options) -> None:
        super().__init__(policy, options)
        self._waits = random.Random(options.seed + 1)  # noqa: S311 (no secret)
        self._order = count()
        self._coming: list[tuple[int, int, int, Asked]] = []
        self._attempt = 0

    def events(self, chance: random.Random) -> Iterator[Event]:
        coming = self._coming
        for event in super().events(chance):
            while coming and coming[0][0] <= event[0]:
                yield self._again()
            self._attempt = 0
            yield event
        while coming:
            yield self._again()

    def refused(self, event: Event, retry_after_ns: int | None) -> None:
        at_ns, asked, _ = event
        attempt = self._attempt + 1
        if attempt > self.options.attempts:
            return
        wait_ns = self._wait_ns(attempt, retry_after_ns)
        if wait_ns is not None:
            heappush(self._coming, (at_ns + wait_ns, next(self._order), attempt, asked))

    def _again(self) -> Event:
        at_ns, _, self._attempt, asked = heappop(self._coming)
        self.retries += 1
        return at_ns, asked, None

    def _wait_ns(self, attempt: int, retry_after_ns: int | None) -> int | None:
        """How long a client waits; None if it gives up, as it can never be admitted."""
        if self.options.retry == "at_once":
            return _ROUND_TRIP_NS
        if self.options.retry == "backoff":  # exponential, with full jitter
            longest_ns = min(_FIRST_WAIT_NS << (attempt - 1), _LONGEST_WAIT_NS)
            return _ROUND_TRIP_NS + self._waits.randrange(longest_ns)
        if retry_after_ns is None:
            return None
        told_ns = -(-retry_after_ns // SECOND) * SECOND  # headers tell whole seconds
        return _ROUND_TRIP_NS + told_ns + self._waits.randrange(SECOND)
