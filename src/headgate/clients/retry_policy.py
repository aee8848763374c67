"""`RetryPolicy`: how a client waits and retries; `Backoff`: for how long.

If the server names no time, the wait is a random part of a ceiling that doubles with each denial in
a row (full jitter). If it does, calls that wait for the same moment are spread over a short time
after it, never before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

from headgate.errors import OptionError
from headgate.units import SECOND

Scope = Literal["path", "host"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits of at most *first* seconds after one denial, twice that after two; up to *longest*."""

    first: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        _check("first of the backoff", self.first, 0.001, 86_400, "seconds")
        _check("longest of the backoff", self.longest, 0.001, 86_400, "seconds")
        if self.longest < self.first:
            raise OptionError(
                f"longest of the backoff is {self.longest!r}, less than first, {self.first!r}"
            )

    def ceiling_ns(self, denials: int) -> int:
        """Return the longest wait after *denials* in a row, in nanoseconds."""
        doubled = self.first * 2.0 ** min(max(denials - 1, 0), 40)
        return round(min(doubled, self.longest) * SECOND)

    def pause_ns(self, denials: int, random: float) -> int:
        """Return the wait if the server names no time. *random* is a number from 0 to 1."""
        return round(self.ceiling_ns(denials) * random)

    def spread_ns(self, denials: int, wait_ns: int, random: float) -> int:
        """Return the addition to a wait of *wait_ns* that the server asks for.

        At most a tenth of the wait, and twice that after each further denial in a row, up to the
        ceiling: a tenth is enough for one client, and a crowd that comes too early spreads.
        """
        tenth = wait_ns // 10
        doubled = tenth << min(max(denials - 1, 0), 40)
        return round(max(min(doubled, self.ceiling_ns(denials)), tenth) * random)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds on the waits and retries of a client.

    - *max_attempts*: how often a request is sent at most; 1 means no retries.
    - *max_wait*: the most seconds that one call waits in all: for its pace, for the server and
      between its attempts.
    - *backoff*: the wait if the server names no time, and the spread if it does.
    - *retry_share*, *retries_per_second*: the retry budget of a host. Over ten seconds, at most
      this share of its requests, and so many more per second, are retries.
    - *look_ahead*: a response with nothing left delays the next call; if False, only a denial does.
    - *scope*: the calls that a wait without a policy name applies to: those to the same "path", or
      all to the "host".
    - *max_server_wait*: the longest wait, in seconds, that a response can ask for.
    - *max_hosts*: how many hosts are remembered.
    """

    max_attempts: int = 3
    max_wait: float = 60.0
    backoff: Backoff = field(default_factory=Backoff)
    retry_share: float = 0.2
    retries_per_second: float = 10.0
    look_ahead: bool = True
    scope: Scope = "path"
    max_server_wait: float = 86_400.0
    max_hosts: int = 1_000

    def __post_init__(self) -> None:
        _check("max_attempts", self.max_attempts, 1, 100, "a whole number")
        _check("max_hosts", self.max_hosts, 1, 1_000_000, "a whole number")
        _check("max_wait", self.max_wait, 0, 31_622_400, "seconds")
        _check("max_server_wait", self.max_server_wait, 1, 31_622_400, "seconds")
        _check("retry_share", self.retry_share, 0, 1, "a share")
        _check("retries_per_second", self.retries_per_second, 0, 1_000_000, "a number")
        if type(self.look_ahead) is not bool:
            raise OptionError(f"look_ahead is {self.look_ahead!r}; expected True or False")
        if self.scope not in ("path", "host"):
            raise OptionError(f"scope is {self.scope!r}; expected 'path' or 'host'")
        if not isinstance(self.backoff, Backoff):
            raise OptionError(
                f"backoff is {self.backoff!r}; expected a Backoff, such as Backoff(first=0.5)"
            )

    @property
    def max_wait_ns(self) -> int:
        """`max_wait` in nanoseconds."""
        return round(self.max_wait * SECOND)

    @property
    def max_server_wait_ns(self) -> int:
        """`max_server_wait` in nanoseconds."""
        return round(self.max_server_wait * SECOND)


def _check(name: str, value: object, least: float, most: float, kind: str) -> None:
    types = (int,) if kind == "a whole number" else (int, float)
    if type(value) not in types or not least <= cast("float", value) <= most:
        raise OptionError(f"{name} is {value!r}; expected {kind} from {least} to {most}")
