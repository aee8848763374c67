"""What operators see of a guarded store: a line in the log at each transition, and measures."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from weakref import WeakSet, WeakValueDictionary

from headgate.observability.measures import MEASURES, Counter
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.errors import StoreFault
    from headgate.stores.guarded.breaker import Change, State
    from headgate.stores.guarded.guard import Guard

_log: Final = logging.getLogger("headgate.store")

LEVELS: Final[dict[State, int]] = {"closed": 0, "half_open": 1, "ramping": 1, "open": 2}
"""What the gauge says; of several parts and guards of one store the worst."""
_REMINDER_NS: Final = 60 * SECOND


class Board:
    """All guards of this process that guard the store called *where*."""

    def __init__(self, where: str) -> None:
        self.guards: WeakSet[Guard] = WeakSet()
        self.calls = 0
        """How many were made. Counted without a lock, in one step without a call in between, which
        no other thread interrupts."""
        MEASURES.tally("store_calls", "Calls made to the store.", self.made, store=where)
        MEASURES.gauge(
            "store_breaker_state",
            "0: calls go to the store; 1: some do, to try it; 2: none do.",
            self.level,
            store=where,
        )

    def made(self) -> float:
        return self.calls

    def level(self) -> float:
        return max((LEVELS[guard.state] for guard in list(self.guards)), default=0)


_boards: Final[WeakValueDictionary[str, Board]] = WeakValueDictionary()


class Telling:
    """Counts, and puts into words, what happens to the store called *where*."""

    def __init__(self, where: str, guard: Guard) -> None:
        self.where = where
        self.refused = MEASURES.counter(
            "store_refused", "Calls not made: the store had been failing.", store=where
        )
        self._errors: dict[StoreFault, Counter] = {}
        self._transitions: dict[State, Counter] = {}
        self._warned_ns: dict[str, int] = {}
        self._untold: dict[str, tuple[int, int, int]] = {}
        self.board = _boards.get(where) or _boards.setdefault(where, Board(where))
        self.board.guards.add(guard)

    def error(self, reason: StoreFault) -> None:
        """A call failed because of *reason*."""
        counter = self._errors.get(reason)
        if counter is None:
            counter = self._errors[reason] = MEASURES.counter(
                "store_errors", "Calls to the store that failed.", store=self.where, reason=reason
            )
        counter.add()

    def change(self, part: str, change: Change) -> None:
        """The breaker of *part*, "" for the whole, has changed."""
        counter = self._transitions.get(change.after)
        if counter is None:
            counter = self._transitions[change.after] = MEASURES.counter(
                "breaker_transitions", "Transitions of the breaker.", store=self.where,
                to=change.after,
            )  # fmt: skip
        counter.add()
        counts = (change.calls, change.failed, change.refused)
        counts = tuple(map(sum, zip(counts, self._untold.get(part, (0, 0, 0)), strict=True)))  # type: ignore[assignment] # three
        level = self._level(part, change)
        if not _log.isEnabledFor(level):
            self._untold[part] = counts
            return
        self._untold.pop(part, None)
        if level >= logging.WARNING:
            self._warned_ns[part] = change.at_ns
        where = self.where if part in ("", self.where) else f"{self.where} (its part {part})"
        self._log(level, where, change, counts)

    def _level(self, part: str, change: Change) -> int:
        """How loud: an outage is told when it begins, once a minute, and when it ends."""
        if change.after == "half_open":
            return logging.DEBUG
        if change.after != "open":
            return logging.INFO
        is_news = change.before != "half_open"
        told_ns = self._warned_ns.get(part)
        is_old = told_ns is None or change.at_ns - told_ns >= _REMINDER_NS
        return logging.WARNING if is_news or is_old else logging.DEBUG

    def _log(self, level: int, where: str, change: Change, counts: tuple[int, int, int]) -> None:
        _log.log(
            level,
            "the store at %s %s; since this was last told: %d calls, %d failed, %d refused",
            where,
            _sentence(change),
            *counts,
            extra={
                "event": f"store_breaker_{change.after}",
                "store": where,
                "reason": change.reason,
                "lasts_seconds": None if change.lasts_ns is None else change.lasts_ns / SECOND,
                "down_seconds": change.down_ns / SECOND,
                "calls": counts[0],
                "failed": counts[1],
                "refused": counts[2],
            },
        )


def _sentence(change: Change) -> str:
    lasts = (change.lasts_ns or 0) / SECOND
    down = change.down_ns / SECOND
    match change.after, change.before:
        case "open", "half_open":
            return (
                f"still fails after {down:.1f} s ({change.reason}): "
                f"it is left alone for {lasts:.2f} s more"
            )
        case "open", _:
            return f"fails ({change.reason}): it is left alone for {lasts:.2f} s"
        case "half_open", _:
            return "is asked again, by one call"
        case "ramping", _:
            return f"answers after {down:.1f} s: within {lasts:.2f} s all calls will go to it again"
        case "closed", "open" | "half_open":
            return (
                f"is not asked any more, {down:.1f} s after it began to fail: others have its keys"
            )
        case _:
            return f"is in full use again, {down:.1f} s after it began to fail"
