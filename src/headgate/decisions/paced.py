"""A decision about a paced limit, kept as the few integers it was made of.

The check itself needs two additions and a comparison; the figures need divisions. Most callers
look at `allowed` and go on, so the figures are computed when they are read. They are the figures
of the moment of the decision all the same: the integers below never change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headgate.decisions.decision import Concluded, Decision

if TYPE_CHECKING:
    from headgate.limits import Limit, Pace


class PacedDecision(Decision):
    """A decision about a token bucket, GCRA or leaky bucket.

    There is no `__init__`: filling the slots from outside is what makes it cheap, and the store's
    fast path is the one place that does it. What all decisions of a limit share is kept in a class
    of its own for each limit.
    """

    __slots__ = ("_at", "_full_at", "_key")

    _limit: ClassVar[Limit]
    _pace: ClassVar[Pace]
    _key: str
    _at: int
    """When it was decided, in ticks."""
    _full_at: int
    """When the counter will be as new, in ticks; after this request if it was allowed."""

    @property
    def key(self) -> str:
        return self._key

    @property
    def limit(self) -> Limit:
        return self._limit

    @property
    def remaining(self) -> int:
        pace = self._pace
        in_use = self._full_at - self._at
        return max(0, (pace.span - in_use) // pace.ticks_per_unit) if in_use > 0 else pace.quota

    @property
    def reset_after_ns(self) -> int:
        in_use = self._full_at - self._at
        return -(-in_use // self._pace.ticks_per_ns) if in_use > 0 else 0

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (
            self.key,
            self.limit,
            self.allowed,
            self.remaining,
            self.retry_after_ns,
            self.reset_after_ns,
        )


class Admitted(PacedDecision):
    """A cost that fitted."""

    __slots__ = ()

    @property
    def allowed(self) -> bool:
        return True

    @property
    def retry_after_ns(self) -> int | None:
        return 0

    @property
    def retry_after(self) -> float | None:
        return 0.0


class Refused(PacedDecision):
    """A cost that did not fit, and by how much."""

    __slots__ = ("_short",)

    _short: int
    """By how many ticks it came too early."""

    @property
    def allowed(self) -> bool:
        return False

    @property
    def retry_after_ns(self) -> int | None:
        return -(-self._short // self._pace.ticks_per_ns)


def paced_decisions(limit: Limit, pace: Pace) -> tuple[type[Admitted], type[Refused]]:
    """The classes of the decisions about *limit*."""
    shared = {"__slots__": (), "__module__": __name__, "_limit": limit, "_pace": pace}
    return type("Admitted", (Admitted,), shared), type("Refused", (Refused,), shared)


def _restored(
    key: str,
    limit: Limit,
    allowed: bool,  # noqa: FBT001 (pickle knows no keywords)
    remaining: int,
    retry: int | None,
    reset: int,
) -> Decision:
    """A pickled decision, unpickled: with its figures computed."""
    return Concluded(
        key,
        limit,
        allowed=allowed,
        remaining=remaining,
        retry_after_ns=retry,
        reset_after_ns=reset,
    )
