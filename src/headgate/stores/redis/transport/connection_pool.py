"""The blocking connections to one server, shared among threads."""

from __future__ import annotations

import random
import time
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.stores.redis import errors
from headgate.stores.redis.transport.cluster_map import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.redis.transport.blocking_connection import Lane


class Lanes:
    """At most *most* connections to the server that is called *where*.

    *dial* opens one until a deadline, or raises `StoreError`. One thread dials at a time; when it
    fails, those who wait fail too, and so does everybody until the pause is over.
    """

    def __init__(
        self, dial: Callable[[float], Lane], where: str, *, most: int, timeout: float
    ) -> None:
        self._dial = dial
        self._where = where
        self._most = most
        self._timeout = timeout
        self._idle: deque[Lane] = deque()
        self._lanes: set[Lane] = set()
        self._changed = Condition()
        self._waiting = 0
        self._open = 0
        self._is_dialing = False
        self._is_closed = False
        self._generation = 0
        self._backoff = Backoff(random.random)

    def take(self, deadline: float) -> Lane:
        """A connection for one's own, until `give` or `drop`; raises `StoreError`."""
        while True:
            try:
                lane = self._idle.pop()
            except IndexError:
                lane = self._take_slowly(deadline)
            if lane.is_fit(time.monotonic()):
                return lane
            self.drop(lane)  # nothing was sent on it: open another

    def take_idle(self) -> Lane | None:
        """A connection that is open and not in use, if there is one; as `take`, without waiting."""
        while (lane := self._idle_lane()) is not None:
            if lane.is_fit(time.monotonic()):
                return lane
            self.drop(lane)
        return None

    def give(self, lane: Lane) -> None:
        """Put *lane* aside for the next."""
        lane.used_at = time.monotonic()
        if self._is_closed or lane.generation != self._generation:
            self.drop(lane)
            return
        self._idle.append(lane)
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._is_closed:  # in this very moment
            self._drop_idle()

    def drop(self, lane: Lane) -> None:
        """Close *lane*, which cannot be used any more."""
        lane.close()
        with self._changed:
            self._lanes.discard(lane)
            self._open -= 1
            self._changed.notify_all()

    def renew(self) -> None:
        """Use none of the connections again that are open now: the server has changed its role."""
        self._generation += 1
        self._drop_idle()

    def close(self) -> None:
        """Drop all connections; whoever waits for a reply on one is woken up."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            lanes = list(self._lanes)
        self._drop_idle()
        for lane in lanes:
            lane.interrupt()

    def _drop_idle(self) -> None:
        while (lane := self._idle_lane()) is not None:
            self.drop(lane)

    def _idle_lane(self) -> Lane | None:
        try:
            return self._idle.pop()  # others do so without the lock
        except IndexError:
            return None

    def _take_slowly(self, deadline: float) -> Lane:
        with self._changed:
            self._waiting += 1
            try:
                while not self._may_dial():
                    if (lane := self._idle_lane()) is not None:
                        return lane
                    if not self._changed.wait(max(deadline - time.monotonic(), 0.0)):
                        raise self._out_of_time(deadline)
                self._is_dialing = True
                self._open += 1
            finally:
                self._waiting -= 1
        return self._dialed(deadline)

    def _may_dial(self) -> bool:
        """Whether this thread is to open a connection now; raises if there is none to wait for."""
        if self._is_closed:
            raise errors.closed(self._where)
        if self._idle or self._is_dialing or self._open >= self._most:
            return False
        refusal = self._backoff.refusal(time.monotonic())
        if refusal is None:
            return True
        if self._open:
            return False  # another thread's connection will do
        raise refusal

    def _out_of_time(self, deadline: float) -> StoreError:
        if self._is_closed:
            return errors.closed(self._where)
        return StoreError(
            f"all {self._open} connections to {self._where} were in use for {self._timeout:g} s; "
            "nothing was sent (the option connections allows more)",
            reason="timeout",
            is_undone=True,
        )

    def _dialed(self, deadline: float) -> Lane:
        generation = self._generation
        lane: Lane | None = None
        error: StoreError | None = None
        try:
            lane = self._dial(deadline)
            lane.generation = generation
        except StoreError as caught:
            error = caught
            raise
        finally:
            with self._changed:
                self._is_dialing = False
                if lane is None:
                    self._open -= 1
                else:
                    self._lanes.add(lane)
                if error is not None:
                    self._backoff.failed(error, time.monotonic())
                elif lane is not None:
                    self._backoff.succeeded()
                self._changed.notify_all()
        return lane
