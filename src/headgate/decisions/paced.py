"""A decision about a paced limit, kept as the few integers it was made of.

The check itself needs two additions and a comparison; the figures need divisions. Most callers
look at `allowed` and go on, so the figures are computed when they are read. They are the figures
of the moment of the decision all the same: the integers below never change.

Decisions are made by the million, so they are made cheaply. They have no `__init__`: the store's
fast path fills the slots. And each limit has classes of its own, whose properties find the numbers
of the limit in their closure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.decisions.decision import Decision
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from headgate.decisions.decision import Figures
    from headgate.limits import Limit, Pace


class PacedDecision(Decision):
    """A decision about a token bucket, GCRA or leaky bucket."""

    __slots__ = ("_in_use", "_key")

    _key: str
    _in_use: int
    """What is in use, in ticks, this request included, whether it was allowed or not."""

    @property
    def key(self) -> str:
        return self._key


class Refusal(PacedDecision):
    """A cost that did not fit."""

    __slots__ = ("_need",)

    _need: int
    """What it asked for, in ticks."""


@lru_cache(maxsize=1024)
def paced_decisions(  # noqa: C901 (many properties, each of one line)
    the_limit: Limit, pace: Pace, resolution: int = 1
) -> tuple[type[PacedDecision], type[Refusal]]:
    """The classes of the decisions about *the_limit*: for what is admitted, for what is refused.

    With a *resolution* of 1,000 nanoseconds the ticks of *pace* are per microsecond, and times are
    whole microseconds, rounded up.
    """
    per_tick, unit, span = pace.ticks_per_ns, pace.ticks_per_unit, pace.span

    class Admitted(PacedDecision):
        __slots__ = ()

        @property
        def allowed(self) -> bool:
            return True

        def __bool__(self) -> bool:
            return True

        @property
        def limit(self) -> Limit:
            return the_limit

        @property
        def remaining(self) -> int:
            return (span - self._in_use) // unit

        @property
        def retry_after_ns(self) -> int | None:
            return 0

        @property
        def retry_after(self) -> float | None:
            return 0.0

        @property
        def reset_after_ns(self) -> int:
            return -(-self._in_use // per_tick) * resolution

        @property
        def reset_after(self) -> float:
            return seconds_at_least(-(-self._in_use // per_tick) * resolution)

        def figures(self) -> Figures:
            in_use = self._in_use
            left, reset_ns = (span - in_use) // unit, -(-in_use // per_tick) * resolution
            return True, self._key, the_limit, left, 0, reset_ns, "store", ()

    class Refused(Refusal):
        __slots__ = ()

        @property
        def allowed(self) -> bool:
            return False

        def __bool__(self) -> bool:
            return False

        @property
        def limit(self) -> Limit:
            return the_limit

        @property
        def remaining(self) -> int:
            free = span - self._in_use + self._need
            return free // unit if free > 0 else 0

        @property
        def retry_after_ns(self) -> int | None:
            return -((span - self._in_use) // per_tick) * resolution

        @property
        def retry_after(self) -> float | None:
            return seconds_at_least(-((span - self._in_use) // per_tick) * resolution)

        @property
        def reset_after_ns(self) -> int:
            return -((self._need - self._in_use) // per_tick) * resolution

        @property
        def reset_after(self) -> float:
            return seconds_at_least(-((self._need - self._in_use) // per_tick) * resolution)

    return Admitted, Refused
