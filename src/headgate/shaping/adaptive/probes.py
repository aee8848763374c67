"""Looking what requests take when fewer are in."""

from __future__ import annotations

from typing import Final

_LENGTH: Final = 20
"""Requests that are timed, at least."""

_PATIENCE: Final = 6
"""Rounds after which a probe is given up: too few were let in under its limit, or none ended."""


class Probe:
    """A short time under a lower limit.

    Only those count that were let in under it: the others have to end first. Of these the first
    half is left out, because the first to end are the quick ones.
    """

    __slots__ = ("_ended", "_length", "_longest", "_seen", "_timed", "_total_ns", "limit")

    def __init__(self, *, limit: int, instead_of: int) -> None:
        self.limit = limit
        self._length = max(limit, _LENGTH)
        self._longest = _PATIENCE * max(instead_of, _LENGTH)
        self._ended = 0
        self._seen = 0
        self._timed = 0
        self._total_ns = 0.0

    def observe(self, in_flight: int, latency_ns: float | None) -> None:
        """One has ended that was one of *in_flight*; None if what it took says nothing."""
        self._ended += 1
        if in_flight > self.limit or latency_ns is None:
            return
        self._seen += 1
        if self._seen > self._length:
            self._timed += 1
            self._total_ns += latency_ns

    @property
    def is_over(self) -> bool:
        return self._timed >= self._length or self._ended >= self._longest

    @property
    def found_ns(self) -> float | None:
        """What they took on average; None if there were too few."""
        return self._total_ns / self._timed if self._timed >= self._length else None
