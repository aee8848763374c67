"""What both gates have in common: options, what can be seen from outside, other options later."""

from __future__ import annotations

import os
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from contextlib import nullcontext, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.overload.entrance import Entrance
from headgate.overload.fair_queue import checked_weight
from headgate.overload.gate_options import Tallies, no_class, read_terms, watch, watch_wait
from headgate.policy.model import PRIORITIES
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.engine.rule import Priority
    from headgate.limits.model import PacedLimit
    from headgate.overload.gate_options import Terms
    from headgate.overload.slot_control import Steering
    from headgate.overload.turns import Budget, Entered, Turn
    from headgate.units import Rate, Seconds

Standing = tuple[int, int | None, int, int | None]
"""How many wait, for how many nanoseconds one more would, how many are in, and how many may."""

_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


class Gatehouse(ABC):
    """A gate, but for the way in.

    *slots* is how many may be in at the same time, or a `Steering` that says so; or else *rate* is
    how much may begin in a time, as text (`100/s`), a limit or units a second, evenly spaced, with
    *burst* units at once after a rest. At most *queue* of one tenant wait, and *waiting* in all,
    none for longer than *max_wait* seconds. *weights* are by tenant, 1 for all others. *reserve*
    keeps shares of the slots for `critical` requests, and for `default` ones besides. *clock* is
    like `time.monotonic_ns`. Gates of one *name* are told together in the metrics.
    """

    def __init__(
        self,
        *,
        slots: int | Steering | None = None,
        rate: str | PacedLimit | Rate | Budget | None = None,
        burst: int = 1,
        queue: int = 100,
        waiting: int = 10_000,
        max_wait: Seconds | None = None,
        weights: Mapping[str, int] = _NONE,
        reserve: Mapping[Priority, float | Fraction] = _NONE,
        clock: Clock | None = None,
        name: str = "gate",
    ) -> None:
        self.name = name
        self._clock = clock
        self._now: Clock = time.monotonic_ns if clock is None else clock
        self._alone: AbstractContextManager[object] = nullcontext()
        self._said: dict[str, Any] = {
            "slots": slots,
            "rate": rate,
            "burst": burst,
            "queue": queue,
            "waiting": waiting,
            "max_wait": max_wait,
            "weights": weights,
            "reserve": reserve,
        }
        self.abandoned: deque[Turn] = deque()
        self._tallies = Tallies(name)
        self._terms = self._read_terms(self._said)
        self._after_fork()
        watch_wait(name, self._told_wait)
        _all_gates.add(self)

    @property
    def depth(self) -> int:
        """How many wait."""
        return self._entrance.depth

    @property
    def in_flight(self) -> int:
        """How many are in."""
        return self._entrance.in_flight

    @property
    def limit(self) -> int | None:
        """How many may be in at the same time; None if turns go by a rate."""
        return self._entrance.limit

    @property
    def expected_wait(self) -> float | None:
        """For how many seconds somebody who came now, with nothing waiting yet, would wait.

        At a rate it is known. With slots it goes by how long they were held of late: None if they
        are all taken, and none has been given back yet.
        """
        with self._alone:
            wait_ns = self._entrance.expected_ns(self._now())
        return None if wait_ns is None else seconds_at_least(wait_ns)

    def expected_wait_of(
        self, tenant: str, *, weight: int | None = None, priority: Priority = "default"
    ) -> float | None:
        """The same for *tenant*, behind what it has waiting already."""
        if weight is not None:
            checked_weight(weight)
        if priority not in PRIORITIES:
            raise no_class(priority)
        with self._alone:
            wait_ns = self._entrance.expected_ns(self._now(), tenant, weight, priority)
        return None if wait_ns is None else seconds_at_least(wait_ns)

    def standing(
        self, tenant: str, weight: int | None = None, priority: Priority = "default"
    ) -> Standing:
        """How the gate stands at one instant: `depth`, what `expected_wait_of` says but in
        nanoseconds, `in_flight` and `limit`."""
        with self._alone:
            entrance = self._entrance
            wait_ns = entrance.expected_ns(self._now(), tenant, weight, priority)
            return entrance.depth, wait_ns, entrance.in_flight, entrance.limit

    def depth_of(self, tenant: str) -> int:
        """How many of *tenant* wait."""
        return self._entrance.depth_of(tenant)

    def configure(
        self,
        *,
        slots: int | Steering | None = None,
        rate: str | PacedLimit | Rate | Budget | None = None,
        burst: int | None = None,
        queue: int | None = None,
        waiting: int | None = None,
        max_wait: Seconds | None = None,
        weights: Mapping[str, int] | None = None,
        reserve: Mapping[Priority, float | Fraction] | None = None,
    ) -> None:
        """Go on with other options; those that are None stay as they are.

        Nobody who waits has to leave, and nobody who is in. Waits that have begun last as long as
        they were to. `math.inf` as *max_wait* lets them last. *slots* replace a rate, and a *rate*
        slots.
        """
        asked = {
            "slots": slots,
            "rate": rate,
            "burst": burst,
            "queue": queue,
            "waiting": waiting,
            "max_wait": max_wait,
            "weights": weights,
            "reserve": reserve,
        }
        said = self._said | {name: value for name, value in asked.items() if value is not None}
        if slots is not None and rate is None:
            said["rate"], said["burst"] = None, 1 if burst is None else burst
        if rate is not None and slots is None:
            said["slots"] = None
        terms = self._read_terms(said)
        with self._alone:
            self._said, self._terms = said, terms
            self._expect(self._entrance.adopt(terms, self._now()))

    def _read_terms(self, said: dict[str, Any]) -> Terms:
        return read_terms(**said)

    def _after_fork(self) -> None:
        """Nobody is left of those who were in or waited."""
        self._entrance = Entrance(self, self._terms, self._tallies)
        watch(self.name, self._entrance)

    def _clear(self) -> None:
        """Release the turns whose holders are gone. How long they kept them says nothing."""
        with suppress(IndexError):  # another thread may have been quicker
            while True:
                turn = self.abandoned.popleft()
                turn.is_timed = False
                turn.release()

    def _told_wait(self) -> float:
        return self._entrance.drain_ns(self._now()) / SECOND

    @abstractmethod
    def left(self, turn: Turn, entered: Entered, *, succeeded: bool) -> None:
        """For a `Turn`: its holder is done."""

    @abstractmethod
    def given_up(self, turn: Turn, entered: Entered) -> None:
        """For a `Turn`: its holder never made use of it."""

    @abstractmethod
    def _expect(self, wait_ns: int | None) -> None:
        """There may be more to give out in *wait_ns*; None: not by itself."""

    def __repr__(self) -> str:
        of = "a rate" if self.limit is None else f"{self.limit} slots"
        return f"<{type(self).__name__} {self.name!r} of {of}: {self.depth} wait>"


_all_gates: weakref.WeakSet[Gatehouse] = weakref.WeakSet()


def _begin_all_anew() -> None:
    """In a forked process none of those who were in or waited are left, nor who held a lock."""
    for gate in _all_gates:
        gate._after_fork()  # noqa: SLF001


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all_anew)
