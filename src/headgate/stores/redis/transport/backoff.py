"""How long to leave a server alone after an attempt to connect has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST: Final = 0.05
LONGEST: Final = 1.0


class Backoff:
    """Pauses that double from 50 ms to 1 s, each cut to a random part of itself.

    So a dead server sees few attempts, and a fleet does not come back in step. *chance* gives
    numbers from 0 to 1. Times are seconds of any clock that only goes forward.
    """

    __slots__ = ("_chance", "_error", "_failures", "_until")

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._until = 0.0
        self._error: StoreError | None = None

    def failed(self, error: StoreError, now: float) -> None:
        """An attempt has failed at *now*: begin a pause, longer than the last."""
        longest = min(LONGEST, FIRST * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._until = now + longest * self._chance()
        self._error = error

    def succeeded(self) -> None:
        """An attempt was a success: forget the failures."""
        self._failures, self._until, self._error = 0, 0.0, None

    def refusal(self, now: float) -> StoreError | None:
        """Why not to try at *now*: the last error, and when the next attempt may be; or None."""
        if self._error is None or now >= self._until:
            return None
        wait_ms = (self._until - now) * 1_000
        return StoreError(
            f"{self._error} (the next attempt is in {wait_ms:.0f} ms)", reason=self._error.reason
        )
