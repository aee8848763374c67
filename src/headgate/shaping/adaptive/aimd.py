"""Additive increase, multiplicative decrease: how TCP finds out what a network carries.

Each round of requests that used the limit and went well adds one to it; a round with a failure, or
with too many that took longer than the target, takes a tenth of it. Gates that share a backend
come to equal limits that way, whatever they began with. A limit found like this swings by a tenth
about the best one. It needs to be told what is bad: failures, or a target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.shaping.adaptive.bounds import Bounds, check_share
from headgate.shaping.adaptive.rounds import Round, length
from headgate.units import duration_ns

if TYPE_CHECKING:
    from headgate.units import Seconds

_LATE: Final = 10
"""One in so many of a round may be late: they are no sign of overload."""


class AIMD:
    """A limit that grows by one a round and falls by a factor; a `Steering`.

    It starts at *initial* (20 if not said) and stays from *least* to *most*. It is multiplied by
    *backoff* when a request has failed, or when more than a tenth of a round took longer than
    *target* seconds; then not again before those have ended that were in at the time. While less
    than half of it is used it stays as it is, unless most requests go wrong. Not safe for several
    threads at once: a gate asks it under its own lock.
    """

    __slots__ = ("_backoff", "_bounds", "_deaf", "_limit", "_round", "_target_ns")

    def __init__(
        self,
        *,
        initial: int | None = None,
        least: int = 1,
        most: int = 1_000,
        backoff: float = 0.9,
        target: Seconds | None = None,
    ) -> None:
        self._bounds = Bounds(least, most)
        self._limit = self._bounds.start(initial)
        self._backoff = check_share(backoff, "backoff", up_to=0.999)
        self._target_ns = None if target is None else duration_ns(target, "target")
        self._round = Round()
        self._deaf = 0

    @property
    def limit(self) -> int:
        """How many may be in now."""
        return int(self._limit)

    def observe(self, *, in_flight: int, latency_ns: float, succeeded: bool) -> None:
        """As `Steering.observe`."""
        if self._deaf:
            self._deaf -= 1
            return
        limit, round_ = int(self._limit), self._round
        ended = round_.add(in_flight, None, succeeded=succeeded)
        if self._target_ns is not None and latency_ns > self._target_ns:
            round_.late += 1
        if (round_.failed or round_.late) and _is_bad(round_, limit):
            self._limit = self._bounds.held(self._limit * self._backoff)
            self._deaf = max(round_.peak - 1, 0)
        elif ended < length(limit):
            return
        elif round_.used(limit):
            self._limit = self._bounds.held(self._limit + 1)
        self._round = Round()

    def __repr__(self) -> str:
        return f"AIMD(limit={self.limit}, least={self._bounds.least}, most={self._bounds.most})"


def _is_bad(round_: Round, limit: int) -> bool:
    is_late = round_.late * _LATE > length(limit)
    return (round_.failed > 0 or is_late) and round_.blames(limit)
