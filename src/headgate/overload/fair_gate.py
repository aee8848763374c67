"""`FairGate`: turns by weight, among threads."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headgate.errors import OptionError
from headgate.overload.fair_queue import checked_weight
from headgate.overload.gate_options import read_wait
from headgate.overload.gatehouse import Gatehouse
from headgate.overload.turns import Place, Turn
from headgate.runtime.waiting_lines import nap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from headgate.engine.rule import Priority
    from headgate.overload.entrance import Entrance
    from headgate.overload.gate_options import Terms
    from headgate.overload.turns import Entered
    from headgate.units import Seconds


class FairGate(Gatehouse):
    """As `AsyncFairGate`, for threads: `with gate.turn(tenant) as turn:`, then `if turn:`.

    Its options are those of `Gatehouse`. Safe to share among threads. On a clock that can sleep,
    such as a `ManualClock`, the wait for a rate moves the clock.
    """

    def _read_terms(self, said: dict[str, Any]) -> Terms:
        terms = super()._read_terms(said)
        if terms.fetched is not None:
            raise OptionError(f"{terms.fetched!r} is for an AsyncFairGate: it has to be awaited")
        return terms

    def _after_fork(self) -> None:
        super()._after_fork()
        self._alone = self._lock = threading.Lock()
        self._sleep: Callable[[float], object] | None = getattr(self._clock, "sleep", None)
        self._leader: Place | None = None  # of those who wait, the one who looks for more

    def try_enter(
        self, tenant: str, cost: int = 1, *, priority: Priority = "default"
    ) -> Turn | None:
        """A turn, if it can be had without waiting; None if not: `enter` would have to wait."""
        if self.abandoned:
            self._clear()
        with self._lock:
            return self._entrance.pass_at_once(tenant, cost, priority, self._now())

    def enter(
        self,
        tenant: str,
        cost: int = 1,
        *,
        weight: int | None = None,
        priority: Priority = "default",
        timeout: Seconds | None = None,
    ) -> Turn:
        """Wait for a turn of *tenant*; check that it is true, and release it.

        It is false at once if it could not be had within *timeout* seconds or the gate's
        `max_wait`, or if too many wait.
        """
        if weight is not None:
            checked_weight(weight)
        patience_ns = None if timeout is None else read_wait(timeout, "timeout")
        if self.abandoned:
            self._clear()
        entrance, place = self._entrance, None
        try:
            with self._lock:
                now = self._now()
                turn = entrance.pass_at_once(tenant, cost, priority, now)
                if turn is not None:
                    return turn
                place = entrance.line_up(tenant, cost, weight, priority, patience_ns, now)
            return place if isinstance(place, Turn) else self._wait(place, entrance)
        except BaseException:  # interrupted, at whatever step
            if isinstance(place, Place):
                self._abandon(place, entrance)
            raise

    @contextmanager
    def turn(
        self,
        tenant: str,
        cost: int = 1,
        *,
        weight: int | None = None,
        priority: Priority = "default",
        timeout: Seconds | None = None,
    ) -> Iterator[Turn]:
        """`enter`, and release at the end: `with gate.turn(tenant) as turn:`, then `if turn:`.

        A block that raises a `TimeoutError` did not succeed, in the sense of `Turn.release`.
        """
        with self.enter(tenant, cost, weight=weight, priority=priority, timeout=timeout) as turn:
            yield turn

    def close(self) -> None:
        """Refuse all who wait, and all who come."""
        with self._lock:
            self._entrance.close(self._now())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def left(self, turn: Turn, entered: Entered, *, succeeded: bool) -> None:
        with self._lock:
            if entered is self._entrance:
                self._entrance.leave(turn, succeeded=succeeded, now=self._now())

    def given_up(self, turn: Turn, entered: Entered) -> None:
        with self._lock:
            if entered is self._entrance:
                self._expect(self._entrance.take_back(turn, self._now()))

    def _wait(self, place: Place, entrance: Entrance) -> Turn:
        called = threading.Event()
        place.wake = lambda _: called.set()
        while True:
            if self.abandoned:
                self._clear()
            with self._lock:
                wait_ns = self._look(place)
                if place.turn is not None:
                    self._step_down(place)
                    return entrance.accept(place.turn)
                called.clear()
            if wait_ns is not None and self._leader is place and self._sleep is not None:
                self._sleep(nap(wait_ns))
            else:
                called.wait(None if wait_ns is None else nap(wait_ns))

    def _abandon(self, place: Place, entrance: Entrance) -> None:
        """The one in *place* waits no longer, and will not come for a turn that it was given."""
        with self._lock:
            entrance.withdraw(place, self._now())
            self._step_down(place)

    def _step_down(self, place: Place) -> None:
        """The one in *place* goes. If it looked for more, or was to do so, have another do that.

        It may have been woken to, and have found that its turn had come already.
        """
        if self._leader is None or self._leader is place:
            self._leader = None
            self._expect(self._entrance.give_out(self._now()))

    def _look(self, place: Place) -> int | None:
        """Give out what there is; for how many nanoseconds the one in *place* may sleep then.

        None: until it is woken.
        """
        now = self._now()
        wait_ns = self._entrance.give_out(now)
        if place.turn is not None:
            return None
        if self._leader is None and wait_ns is not None:
            self._leader = place
        if self._leader is not place:
            wait_ns = None
        if place.deadline_ns is not None:
            left_ns = place.deadline_ns - now
            if left_ns <= 0:
                self._entrance.expire(place, now)
                return None
            wait_ns = left_ns if wait_ns is None else min(wait_ns, left_ns)
        return wait_ns

    def _expect(self, wait_ns: int | None) -> None:
        """Have somebody who waits look after *wait_ns*: the leader, or a new one."""
        if wait_ns is None:
            return
        place = self._leader or self._entrance.first()
        if place is not None and place.wake is not None:
            place.wake(None)
