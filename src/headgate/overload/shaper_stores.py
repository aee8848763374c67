"""Turns in one process: the lines, a clock and a lock. What waits is in the two shapers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from headgate.fork import watch_forks
from headgate.overload.leaky_line import MOST_LINES, Bell, LeakyLines
from headgate.runtime.fallback import HERE, Asked
from headgate.stores.base import conclude, concluded
from headgate.stores.factory import open_store
from headgate.stores.operations import CancelQueued, Check, Reset, Take

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.errors import StoreError
    from headgate.limits import LeakyQueue
    from headgate.overload.booking import Terms
    from headgate.overload.leaky_line import Place, Rest
    from headgate.runtime.fallback import Fallback
    from headgate.stores.operations import Outcomes


B = TypeVar("B", bound=Bell)


class Standing(NamedTuple, Generic[B]):
    """Where one stands that has lined up: in a place, unless there is none to be had or needed."""

    place: Place | None
    bell: B | None
    """For which it waits, if it does."""
    decision: Decision


def local_lines(limit: LeakyQueue, store: object, clock: Clock | None) -> LocalLines | None:
    """The lines for a *store* that nobody could share, as it is the URL of a memory of one's own;
    None for all others."""
    if not isinstance(store, str) or not store.lower().startswith("memory:"):
        return None
    opened = open_store(store, clock)  # which says what is wrong with the URL or the clock
    most = parse_qs(urlsplit(store).query).get("max_keys", [MOST_LINES])[0]
    return LocalLines(limit, getattr(opened, "clock", time.time_ns), int(most))


class LocalLines:
    """The lines of a shaper in this process. Safe to share among threads."""

    def __init__(self, limit: LeakyQueue, clock: Clock, most: int = MOST_LINES) -> None:
        self.clock = clock
        self._limit = limit
        self._lines = LeakyLines(limit, most)
        self._lock = threading.Lock()
        watch_forks(self)

    def after_fork(self) -> None:
        """This is another process now: nobody who waited is in it."""
        self._lock = threading.Lock()
        self._lines.abandon()

    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        """What `join` would say."""
        with self._lock:
            outcome = self._lines.look(key, cost, timeout_ns, self.clock())
        return concluded(key, self._limit, outcome)

    def join(
        self,
        key: str,
        cost: int,
        timeout_ns: int | None,
        new_bell: Callable[[], B] | None = None,
    ) -> Standing[B]:
        """Line up, with a new bell for who has to wait; without, to book."""
        if not cost:
            return Standing(None, None, self.look(key, cost, timeout_ns))
        with self._lock:
            now_ns = self.clock()
            at_once = self._lines.pass_at_once(key, cost, timeout_ns, now_ns)
            if at_once is not None:
                return Standing(None, None, concluded(key, self._limit, at_once))
            joined = self._lines.join(key, cost, timeout_ns, now_ns, new_bell)
        decision = concluded(key, self._limit, joined.outcome)
        return Standing(joined.place if decision.delay_ns else None, joined.bell, decision)

    def rest(self, place: Place) -> Rest | None:
        """How long to sleep, unless the bell rings before, and then ask again; None: the turn has
        come."""
        with self._lock:
            if place.bell is not None:
                place.bell.clear()
            return self._lines.rest(place, self.clock())

    def leave(self, place: Place) -> bool:
        """Give up a booking; whether its turn had not come yet."""
        with self._lock:
            return self._lines.leave(place, self.clock())

    def decline(self, place: Place) -> None:
        """Give up a place that somebody waited for."""
        with self._lock:
            self._lines.decline(place, self.clock())

    def forget(self, key: str) -> None:
        """Forget what has left the line of *key*."""
        with self._lock:
            self._lines.forget(key, self.clock())


# Turns over a store: what both shapers ask it, and make of its replies. No I/O but the fallback.
#
# A turn is a delay that the store told, on its own clock: the callers of a fleet need not agree on
# the time. The delay is counted from when the reply is there. The store gave it a moment before, so
# nobody goes early, and everybody is late by the way back alone, those without a delay as well:
# between two that leave only the difference of their ways is lost. Counted from when the question
# was sent, the way there would be slept through too little, and two could leave too close.


class Stored:
    """A shaper over a store, as far as it does not matter whether it blocks."""

    def __init__(self, terms: Terms, fallback: Fallback, clock: Clock | None) -> None:
        self.terms = terms
        self.fallback = fallback
        self.clock = clock or time.time_ns
        """For what is told in seconds since the epoch; of a store elsewhere, that of this host."""

    def conclude(self, take: Take, outcomes: Outcomes) -> Decision:
        """What the store said."""
        if self.fallback.wants_word:
            self.fallback.succeed()
        return conclude(take.checks, outcomes)

    def decide_without(self, take: Take, error: StoreError) -> Decision:
        """What is decided here, as the store could not."""
        return self.fallback.answer(take, self.terms.on_failure, error)

    def vacating(self, check: Check, granted: Decision) -> CancelQueued:
        """How the store is told that a turn is given up."""
        return CancelQueued((check,), (granted.turn_ns,))

    def is_from_here(self, granted: Decision) -> bool:
        """Whether a turn was given by this process, and the store knows nothing of it."""
        return granted.source in HERE

    def vacate_here(self, check: Check, granted: Decision) -> bool:
        """Give up a turn that was given by this process."""
        asked = Asked((check,), self.terms.on_failure)
        return self.fallback.vacate(asked, (granted.turn_ns,))

    def resetting(self, key: str) -> Reset:
        return Reset((self.terms.check(key, 0),))

    def forget(self, reset: Reset) -> None:
        """The store has forgotten: so does what stands in for it."""
        self.fallback.reset(Asked(reset.checks, self.terms.on_failure))
