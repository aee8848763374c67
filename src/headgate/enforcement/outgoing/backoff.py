"""How long to wait after a refusal, and how to come back without coming back as a herd.

Where the server names no time, the wait is a random part of a ceiling that doubles with each
refusal in a row (full jitter). Where it does, all who wait for that moment come a random time
after it, never before.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits of at most *first* seconds after one refusal, twice that after two; up to *longest*."""

    first: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first", "longest"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0.001 <= value <= 86_400:
                raise OptionError(
                    f"{name} of the backoff is {value!r}; expected seconds from 0.001 to 86400"
                )
        if self.longest < self.first:
            raise OptionError(
                f"longest of the backoff is {self.longest!r}, less than first, {self.first!r}"
            )

    def ceiling_ns(self, refusals: int) -> int:
        """The longest wait after so many refusals in a row, in nanoseconds."""
        doubled = self.first * 2.0 ** min(max(refusals - 1, 0), 40)
        return round(min(doubled, self.longest) * SECOND)

    def pause_ns(self, refusals: int, chance: float) -> int:
        """The wait when no time was named. *chance* is a random number from 0 to 1."""
        return round(self.ceiling_ns(refusals) * chance)

    def spread_ns(self, refusals: int, wait_ns: int, chance: float) -> int:
        """How long after the moment named, *wait_ns* from the answer, one of those who wait comes.

        At most the ceiling or a tenth of the wait. But who was sent away for 50 ms need not be gone
        for longer than 50 more, or twice and four times that when it was in vain before.
        """
        rounds = min(max(refusals - 1, 0), 40)
        widest = min(self.ceiling_ns(refusals), max(wait_ns, MILLISECOND) << rounds)
        return round(max(widest, wait_ns // 10) * chance)
