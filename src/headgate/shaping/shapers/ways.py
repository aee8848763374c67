"""The two ways in which a thread waits for its turn: in a line of this process, or over a store."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from headgate.errors import StoreError
from headgate.plan import nap, naps
from headgate.shaping.shapers.booking import Booking
from headgate.shaping.shapers.measures import WAITING, count_asked, count_given_up
from headgate.stores.operations import Take

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.decisions import Decision
    from headgate.shaping.shapers.line import Place
    from headgate.shaping.shapers.local import LocalLines
    from headgate.shaping.shapers.stored import Stored
    from headgate.stores.operations import Check
    from headgate.stores.port import Store


class Way(Protocol):
    """What a `Shaper` needs. *timeout_ns* None: as long as the queue says."""

    def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision: ...
    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision: ...
    def book(self, key: str, cost: int, timeout_ns: int | None) -> Booking: ...
    def reset(self, key: str) -> None: ...
    def close(self) -> None: ...


class LocalWay:
    """In this process: those who wait move up when one gives up."""

    def __init__(self, lines: LocalLines) -> None:
        self._lines = lines
        self._sleep: Callable[[float], None] | None = getattr(lines.clock, "sleep", None)

    def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        place, bell, decision = self._lines.join(key, cost, timeout_ns, threading.Event)
        count_asked(decision)
        if place is not None and bell is not None:
            WAITING.add(1)
            try:
                self._wait(place, bell)
            except BaseException:  # an interrupt, above all: whatever it is, others go instead
                self._lines.decline(place)
                count_given_up()
                raise
            finally:
                WAITING.add(-1)
        return decision

    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        return self._lines.look(key, cost, timeout_ns)

    def book(self, key: str, cost: int, timeout_ns: int | None) -> Booking:
        place, _, decision = self._lines.join(key, cost, timeout_ns)
        count_asked(decision)
        at_ns = self._lines.clock() if place is None else decision.turn_ns
        return Booking(decision, cost, at_ns, lambda: self._give_up(place))

    def reset(self, key: str) -> None:
        self._lines.forget(key)

    def close(self) -> None:
        """There is nothing to give back."""

    def _wait(self, place: Place, bell: threading.Event) -> None:
        while (rest := self._lines.rest(place)) is not None:
            if self._sleep is None:
                bell.wait(nap(rest.ns))
            elif rest.is_first:  # a clock that is moved by those who sleep: by one at a time
                self._sleep(nap(rest.ns))
            else:
                bell.wait()

    def _give_up(self, place: Place | None) -> bool:
        given_up = place is not None and self._lines.leave(place)
        if given_up:
            count_given_up()
        return given_up


class StoredWay:
    """Over a store: a turn is told once, and slept for."""

    def __init__(self, store: Store, stored: Stored) -> None:
        self._store = store
        self._stored = stored
        self._sleep: Callable[[float], None]
        self._sleep = getattr(stored.clock, "sleep", time.sleep)

    def acquire(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        check = self._stored.terms.check(key, cost, timeout_ns)
        decision = self._ask(Take((check,)))
        count_asked(decision)
        if decision.delay_ns:
            WAITING.add(1)
            try:
                for seconds in naps(decision.delay_ns):
                    self._sleep(seconds)
            except BaseException:  # as above
                self._vacate(check, decision)
                raise
            finally:
                WAITING.add(-1)
        return decision

    def look(self, key: str, cost: int, timeout_ns: int | None) -> Decision:
        check = self._stored.terms.check(key, cost, timeout_ns)
        return self._ask(Take((check,), consume=False))

    def book(self, key: str, cost: int, timeout_ns: int | None) -> Booking:
        check = self._stored.terms.check(key, cost, timeout_ns)
        decision = self._ask(Take((check,)))
        count_asked(decision)
        at_ns = self._stored.clock() + decision.delay_ns
        return Booking(decision, cost, at_ns, lambda: self._vacate(check, decision))

    def reset(self, key: str) -> None:
        reset = self._stored.resetting(key)
        self._store.run(reset)
        self._stored.forget(reset)

    def close(self) -> None:
        self._stored.fallback.close()
        self._store.close()

    def _ask(self, take: Take) -> Decision:
        try:
            outcomes = self._store.run(take)
        except StoreError as error:
            return self._stored.decide_without(take, error)
        return self._stored.conclude(take, outcomes)

    def _vacate(self, check: Check, granted: Decision) -> bool:
        """Give a turn up; whether that was in time. If nobody can be told, it is lost."""
        if not granted.delay_ns:
            return False
        if self._stored.is_from_here(granted):
            given_up = self._stored.vacate_here(check, granted)
        else:
            try:
                given_up = self._store.run(self._stored.vacating(check, granted))
            except StoreError:
                return False
        if given_up:
            count_given_up()
        return given_up
