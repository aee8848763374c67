"""What operators see of the time without a store: measures, and a line in the log at each turn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol, get_args
from weakref import WeakSet

from headgate.fallback.outage import Mode
from headgate.observability import MEASURES
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.decisions import FailurePolicy
    from headgate.errors import StoreError
    from headgate.fallback.outage import Ended

_LOG: Final = logging.getLogger("headgate.store")

_DECIDED: Final = {
    mode: MEASURES.counter(
        "decisions_without_store", "Requests decided while the store was gone.", mode=mode
    )
    for mode in get_args(Mode)
}
_MERGED: Final = MEASURES.counter(
    "fallback_merged", "Units admitted without the store that it was told of afterwards."
)
_DROPPED: Final = MEASURES.counter(
    "fallback_dropped", "Admissions without the store that it will not hear of: too many counters."
)


class Seen(Protocol):
    """What knows whether a store is gone."""

    @property
    def out_for_ns(self) -> int | None:
        """For how long; None if it is not."""


class Board:
    """All that know of stores that may be gone, in this process."""

    def __init__(self) -> None:
        self._all: WeakSet[Seen] = WeakSet()
        MEASURES.gauge("fail_mode_active", "How many stores are gone.", self.active)
        MEASURES.gauge(
            "fail_mode_seconds", "For how long the first of them has been gone.", self.seconds
        )

    def add(self, one: Seen) -> None:
        self._all.add(one)

    def active(self) -> float:
        return float(len(self._ages()))

    def seconds(self) -> float:
        return max(self._ages(), default=0) / SECOND

    def _ages(self) -> list[int]:
        return [age for one in list(self._all) if (age := one.out_for_ns) is not None]


BOARD: Final = Board()


def count_decided(mode: Mode) -> None:
    """A request was decided without the store."""
    _DECIDED[mode].add()


def count_merged(units: int) -> None:
    """The store was told of *units*."""
    _MERGED.add(units)


def count_dropped(times: int) -> None:
    """The store will not be told of something."""
    _DROPPED.add(times)


def tell_beginning(where: str, error: StoreError) -> None:
    _LOG.warning(
        "%s cannot be asked (%s): every limit does what it says for that; %s",
        where,
        error.reason,
        error,
        extra={"event": "store_outage_began", "reason": error.reason},
    )


def tell_escalation(where: str, mode: FailurePolicy, since_ns: int) -> None:
    _LOG.warning(
        "%s has been gone for %.1f s: limits that failed open are %s now",
        where,
        since_ns / SECOND,
        mode,
        extra={"event": "store_outage_escalated", "mode": mode},
    )


def tell_end(where: str, ended: Ended) -> None:
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
