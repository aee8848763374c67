"""Turns in one process: the lines, a clock and a lock. What waits is in the two shapers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from headgate.shaping.shapers.line import Bell
from headgate.shaping.shapers.lines import MOST_LINES, LeakyLines
from headgate.stores.forking import watch_forks
from headgate.stores.opening import open_store
from headgate.stores.port import concluded

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import LeakyQueue
    from headgate.shaping.shapers.line import Place
    from headgate.shaping.shapers.lines import Rest

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

    def begin_anew(self) -> None:
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
