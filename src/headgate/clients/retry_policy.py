"""How polite a client is: all of its options but the pace, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.errors import OptionError
from headgate.units import MILLISECOND, SECOND

# How long to wait after a refusal, and how to come back without coming back as a herd.
#
# Where the server names no time, the wait is a random part of a ceiling that doubles with each
# refusal in a row (full jitter). Where it does, all who wait for that moment come a random time
# after it, never before.


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


@dataclass(frozen=True, slots=True)
class Courtesy:
    """How a client treats the servers it calls.

    - *max_attempts*: how often a request is sent at most; 1: never again.
    - *max_wait*: how many seconds one call waits at most, in all: for its pace, for a server that
      said "not now", and between its attempts.
    - *backoff*: how long it waits where the server names no time, and how far those who wait for
      the same moment spread.
    - *retry_share*, *retries_per_second*: the retry budget of a destination: over ten seconds, at
      most this share of the requests, and so many more a second, are retries.
    - *look_ahead*: whether an answer that says "nothing left until then" makes the next call wait,
      or only a refusal does. For servers whose fields speak of one path and not of all.
    - *max_closed*: the longest time, in seconds, for which one answer is believed. After that a
      call is tried.
    - *max_destinations*: how many destinations are remembered.
    """

    max_attempts: int = 3
    max_wait: float = 60.0
    backoff: Backoff = field(default_factory=Backoff)
    retry_share: float = 0.2
    retries_per_second: float = 10.0
    look_ahead: bool = True
    max_closed: float = 86_400.0
    max_destinations: int = 1_000

    def __post_init__(self) -> None:
        _check_whole("max_attempts", self.max_attempts, 1, 100)
        _check_whole("max_destinations", self.max_destinations, 1, 1_000_000)
        _check_number("max_wait", self.max_wait, 0, 31_622_400, "seconds")
        _check_number("max_closed", self.max_closed, 1, 31_622_400, "seconds")
        _check_number("retry_share", self.retry_share, 0, 1, "a share")
        _check_number("retries_per_second", self.retries_per_second, 0, 1_000_000, "a number")
        if type(self.look_ahead) is not bool:
            raise OptionError(f"look_ahead is {self.look_ahead!r}; expected True or False")
        if not isinstance(self.backoff, Backoff):
            raise OptionError(
                f"backoff is {self.backoff!r}; expected a Backoff, such as Backoff(first=0.5)"
            )

    @property
    def max_wait_ns(self) -> int:
        """`max_wait` in nanoseconds."""
        return round(self.max_wait * SECOND)

    @property
    def max_closed_ns(self) -> int:
        """`max_closed` in nanoseconds."""
        return round(self.max_closed * SECOND)


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise OptionError(f"{name} is {value!r}; expected a whole number from {least} to {most}")


def _check_number(name: str, value: object, least: int, most: int, what: str) -> None:
    if not (isinstance(value, int | float) and type(value) is not bool and least <= value <= most):
        raise OptionError(f"{name} is {value!r}; expected {what} from {least} to {most}")
