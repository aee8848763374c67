"""How much a fleet needs: memory, shards, workers, bandwidth. Arithmetic only.

    counters  = clients x rules                      if all clients are active at once
    memory    = counters x bytes a counter x room
    shards    = checks a second x rules x time of a server a counter / use
    workers   = checks a second x time of a worker a check / use

What a counter costs was measured (`benchmarks/results`, on one core of a small machine); what a
worker needs for a check is a figure to plan with; the rest is for whoever plans to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final, Literal

from headgate.errors import OptionError

Way = Literal["http", "rls"]

COUNTER_BYTES: Final = 117
"""What Redis takes for a token bucket with a key of up to 11 characters, everything counted."""

LONG_KEY_BYTES: Final = 149
"""The same with a key of up to 43 characters."""

STORE_US: Final = 20
"""Microseconds of one core of Redis for a counter in a check: about 10 where many checks travel
together, twice as many where a fleet is so wide that few do."""

WORKER_US: Final[dict[Way, int]] = {"http": 130, "rls": 90}
"""Microseconds of one core for a check that a worker answers, the store's client included."""

BYTES_IN: Final = 180
BYTES_OUT: Final = 36
"""Bytes that a counter in a check is on the way to the store, and back."""

_MEGA: Final = 1_000_000
_LARGEST: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of a fleet.

    *rules* is how many apply to a request, and so how many counters a client has. *use* is how busy
    cores may be at the peak; *room* is memory for fragmentation, buffers and growth.
    """

    clients: int
    checks: int
    rules: int = 1
    way: Way = "http"
    counter_bytes: int = COUNTER_BYTES
    use: float = 0.6
    room: float = 1.5
    workers_a_machine: int = 4

    def __post_init__(self) -> None:
        for name in ("clients", "checks", "rules", "counter_bytes", "workers_a_machine"):
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise OptionError(f"{name} is {getattr(self, name)}; expected 1 to {_LARGEST}")
        if not 0 < self.use <= 1:
            raise OptionError(f"use is {self.use}; expected a share above 0 and up to 1")
        if not 1 <= self.room <= 10:
            raise OptionError(f"room is {self.room}; expected a factor from 1 to 10")
        if self.way not in WORKER_US:
            raise OptionError(f"way is {self.way!r}; expected http or rls")

    @property
    def counters(self) -> int:
        return self.clients * self.rules

    @property
    def memory_bytes(self) -> int:
        """Of all shards together, without replicas."""
        return ceil(self.counters * self.counter_bytes * _exact(self.room))

    @property
    def store_cores(self) -> Fraction:
        """Cores of Redis that are busy all the time."""
        return Fraction(self.checks * self.rules * STORE_US, _MEGA)

    @property
    def shards(self) -> int:
        return max(1, ceil(self.store_cores / _exact(self.use)))

    @property
    def shard_bytes(self) -> int:
        return ceil(self.memory_bytes / self.shards)

    @property
    def worker_cores(self) -> Fraction:
        """Cores of workers that are busy all the time."""
        return Fraction(self.checks * WORKER_US[self.way], _MEGA)

    @property
    def workers(self) -> int:
        return max(1, ceil(self.worker_cores / _exact(self.use)))

    @property
    def machines(self) -> int:
        """Replicas of the service, one more than needed: one may be gone."""
        return ceil(self.workers / self.workers_a_machine) + 1

    @property
    def bytes_to_store(self) -> int:
        """A second, to all shards together."""
        return self.checks * self.rules * BYTES_IN

    @property
    def bytes_from_store(self) -> int:
        """A second, from all shards together."""
        return self.checks * self.rules * BYTES_OUT


def _exact(share: float) -> Fraction:
    return Fraction(str(share))
