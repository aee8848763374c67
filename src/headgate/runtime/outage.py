"""The outage of a store: since when, how requests were decided meanwhile, logs and metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from headgate.observability import METRICS
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decision import FailurePolicy, OnFailure
    from headgate.errors import StoreError


Mode = Literal["fail_open", "fallback", "local", "fail_closed", "escalated"]
"""The way a request was decided: allowed by a limit that fails open; denied because the share of
this process was used up; by a limit that is `local` or `fail_closed`; or by one that had failed
open for too long."""

QUIET_NS: Final = SECOND
"""The time without a failed call before a successful one ends an outage: if one call of many fails,
that is one outage, not many."""


class ActivePolicy(NamedTuple):
    """The failure policy of a limit now; *is_escalated* if it has failed open for too long."""

    mode: FailurePolicy
    is_escalated: bool = False


class Ended(NamedTuple):
    """An outage that has ended: its duration, and the number of requests decided in each way."""

    lasted_ns: int
    decided: dict[Mode, int]


class Outage:
    """The outage of one store, as one process sees it. The caller holds a lock."""

    __slots__ = ("_decided", "_escalations", "_failed_ns", "_gone_ns", "began_ns")

    def __init__(self) -> None:
        self.began_ns: int | None = None
        """The time of the first failed call; None if the store is there."""
        self._failed_ns: int | None = None
        self._gone_ns: int | None = None
        self._decided: dict[Mode, int] = {}
        self._escalations: set[str] = set()

    def fail(self, now: int) -> bool:
        """Record a failed call; True if an outage begins with it."""
        if self._gone_ns is None:
            self._gone_ns = now
        self._failed_ns = now if self._failed_ns is None else max(now, self._failed_ns)
        if self.began_ns is not None:
            return False
        self.began_ns = self._failed_ns = now
        return True

    def succeed(self) -> None:
        """Record a successful call, while others may still be rejected."""
        self._gone_ns = None

    def end(self, now: int, *, is_certain: bool = False) -> Ended | None:
        """Record a successful call, or that the store *is_certain* to be back; the outage, if it
        ends now."""
        self.succeed()
        is_quiet = is_certain or not self.has_failed_since(now - QUIET_NS)
        if self.began_ns is None or not is_quiet:
            return None
        ended = Ended(max(now - self.began_ns, 0), self._decided)
        self.began_ns, self._decided, self._escalations = None, {}, set()
        return ended

    def has_failed_since(self, time_ns: int) -> bool:
        """True if a call has failed after *time_ns*."""
        return self._failed_ns is not None and self._failed_ns > time_ns

    def active_policy(self, on_failure: OnFailure, now: int) -> ActivePolicy:
        """The failure policy of a limit with *on_failure* now. The time that it may fail open
        counts from the first failure after a successful call."""
        most_ns = on_failure.open_ns
        if on_failure.mode != "fail_open" or most_ns is None or self._gone_ns is None:
            return ActivePolicy(on_failure.mode)
        if now - self._gone_ns < most_ns:
            return ActivePolicy("fail_open")
        return ActivePolicy(on_failure.then, is_escalated=True)

    def escalate(self, mode: FailurePolicy) -> bool:
        """Record that limits escalate to *mode*; True if that is new in this outage."""
        is_new = mode not in self._escalations
        self._escalations.add(mode)
        return is_new

    def count(self, mode: Mode) -> None:
        """Count a request that was decided."""
        self._decided[mode] = self._decided.get(mode, 0) + 1


_LOG: Final = logging.getLogger("headgate.store")

DECIDED: Final = {
    mode: METRICS.counter(
        "decisions_without_store", "Requests decided while the store was gone.", mode=mode
    )
    for mode in get_args(Mode)
}
REPORTED: Final = METRICS.counter(
    "fallback_merged", "Units allowed without the store and reported to it afterwards."
)
DROPPED: Final = METRICS.counter(
    "fallback_dropped", "Usage without the store that is not reported: too many counters."
)


def log_beginning(where: str, error: StoreError) -> None:
    _LOG.warning(
        "%s is gone (%s): each limit follows its failure policy; %s",
        where,
        error.reason,
        error,
        extra={"event": "store_outage_began", "reason": error.reason},
    )


def log_escalation(where: str, mode: FailurePolicy, since_ns: int) -> None:
    _LOG.warning(
        "%s has been gone for %.1f s: limits that failed open are %s now",
        where,
        since_ns / SECOND,
        mode,
        extra={"event": "store_outage_escalated", "mode": mode},
    )


def log_end(where: str, ended: Ended) -> None:
    decided = ", ".join(f"{count} {mode}" for mode, count in sorted(ended.decided.items()))
    _LOG.warning(
        "%s is back after %.1f s; requests decided without it: %s",
        where,
        ended.lasted_ns / SECOND,
        decided or "none",
        extra={
            "event": "store_outage_ended",
            "lasted_seconds": ended.lasted_ns / SECOND,
            "decided": dict(ended.decided),
        },
    )
