"""What came of asking a gate for a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from headgate.errors import OptionError
from headgate.limits import Limit, parse_rate
from headgate.limits.model import Pace, PacedLimit
from headgate.units import MILLISECOND, SECOND, Rate, exact_rate, seconds_at_least

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable
    from fractions import Fraction
    from types import TracebackType
    from typing import Self

    from headgate.engine.rule import Priority
    from headgate.overload.fair_queue import Item


Refusal = Literal[
    "queue_full",  # as many wait already as may; or somebody with fewer waiting took its place
    "too_long",  # it would have had to wait for longer than it may
    "timeout",  # it did wait for as long as it may
    "shed",  # there was no room at once, and its class does not wait
    "closed",  # the gate was closed by its owner
]
"""Why there was no turn."""


class TurnGate(Protocol):
    """Who must hear of it when the holder of a turn is done."""

    abandoned: deque[Turn]
    """Turns whose holders are gone: to be released when somebody comes."""

    def left(self, turn: Turn, entered: Entered, *, succeeded: bool) -> None:
        """The holder of *turn* is done with where it had *entered*."""

    def given_up(self, turn: Turn, entered: Entered) -> None:
        """The holder of *turn* goes without having made use of it."""


class Entered(Protocol):
    """What the holder of a turn is in: the gate as it was then. It may have begun anew since."""

    gate: TurnGate


class Turn:
    """True when its holder may go on: it is in until `release`, which `with turn:` does by itself.

    It is released once; what is tried after that does nothing, as for a `Slot`. A turn of an
    `AsyncFairGate` belongs to its event loop.
    """

    __slots__ = (
        "_entered",
        "_taken",
        "began_ns",
        "felt",
        "in_flight",
        "is_timed",
        "reason",
        "retry_after_ns",
        "tenant",
        "waited_ns",
    )

    def __init__(
        self,
        entered: Entered | None,
        tenant: str,
        began_ns: int,
        in_flight: int,
        waited_ns: int = 0,
        reason: Refusal | None = None,
        retry_after_ns: int | None = None,
        taken: int = 0,
    ) -> None:
        self._entered = entered
        self._taken = taken
        self.tenant = tenant
        self.began_ns = began_ns
        self.in_flight = in_flight
        """How many were in when it began, itself included."""
        self.felt = in_flight
        """The same for what moves the slots: more, if some of them are kept from its class."""
        self.is_timed = True
        """Whether how long it lasts says how the backend fares. Set it to false for what is open as
        long as somebody likes, such as a websocket: it moves no slots."""
        self.waited_ns = waited_ns
        self.reason: Refusal | None = reason
        """Why it was refused; None if it was not."""
        self.retry_after_ns = retry_after_ns

    def __bool__(self) -> bool:
        return self.reason is None

    def __repr__(self) -> str:
        state = self.reason or ("released" if self._entered is None else "in")
        return f"<Turn of {self.tenant!r}: {state}>"

    @property
    def allowed(self) -> bool:
        """Whether its holder may go on."""
        return self.reason is None

    @property
    def is_in(self) -> bool:
        """Whether it has yet to be released."""
        return self._entered is not None

    @property
    def taken(self) -> int:
        """How much it has cost, if it was given out of a budget."""
        return self._taken

    @property
    def waited(self) -> float:
        """For how many seconds its holder waited, in vain or not."""
        return self.waited_ns / SECOND

    @property
    def retry_after(self) -> float | None:
        """Of a refused turn: in how many seconds one could be had, going by those who wait now.

        None if it is not refused, or if there is nothing to go by.
        """
        return None if self.retry_after_ns is None else seconds_at_least(self.retry_after_ns)

    def release(self, *, succeeded: bool = True) -> bool:
        """Let the next one in; False if there is nothing to release, or not any more.

        It did not *succeed* if it failed for want of capacity, as for `Steering.observe`.
        """
        entered, self._entered = self._entered, None
        if entered is None:
            return False
        entered.gate.left(self, entered, succeeded=succeeded)
        return True

    def cancel(self) -> bool:
        """As `release`, for a holder that never made use of its turn: it counts for nothing.

        What moves the slots does not hear of it, nor of how long it took; and a turn at a rate is
        the next one's, if none has been given since.
        """
        entered, self._entered = self._entered, None
        if entered is None:
            return False
        entered.gate.given_up(self, entered)
        return True

    def abandon(self) -> None:
        """Its holder is gone, and cannot release it any more: the next one who comes will.

        For finalizers, which may run at any time and in any thread: it takes no lock.
        """
        entered = self._entered
        if entered is not None:
            entered.gate.abandoned.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release(succeeded=not isinstance(error, TimeoutError))


# A place in the queue of a gate.


class Place:
    """One that waits, and in the end what came of it."""

    __slots__ = ("asked_ns", "deadline_ns", "item", "priority", "turn", "wake", "weight")

    def __init__(
        self,
        item: Item,
        weight: int,
        priority: Priority,
        asked_ns: int,
        deadline_ns: int | None,
    ) -> None:
        self.item = item
        self.weight = weight
        self.priority = priority
        self.asked_ns = asked_ns
        self.deadline_ns = deadline_ns
        self.turn: Turn | None = None
        self.wake: Callable[[Turn | None], object] | None = None
        """Told the turn; or None, when it should look for itself."""


# What turns are given out of, if not of slots: so much at a time.


LATENESS_NS: Final = 10 * MILLISECOND
"""How late a turn may be taken so that the next ones do not come later for it: timers are."""


@runtime_checkable
class Budget(Protocol):
    """Where turns come from. It reads no clock: *now* is said in nanoseconds."""

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        """Take *cost* and answer 0; or, if that must wait, take nothing and say how long at least.

        In nanoseconds. Whoever asks again after that may have to wait again. One that *has_waited*
        may be a bit late, which is not to make those behind it late.
        """

    def give_back(self, cost: int) -> None:
        """What was taken last was not used."""

    def delay(self, ahead: int, now: int) -> int:
        """How long it takes, in nanoseconds from *now*, until *ahead* units have been taken and
        the next can be."""


@runtime_checkable
class FetchedBudget(Budget, Protocol):
    """A budget that has to be fetched from somewhere else: by an `AsyncFairGate` alone."""

    async def fetch(self) -> None:
        """Get what the last `take` found missing, however long it takes.

        If cancelled, what it would have got is given up.
        """

    def drop(self) -> None:
        """Nobody waits: what was fetched and not taken is given up."""

    async def aclose(self) -> None:
        """Give back what is held open."""


class PacedBudget:
    """A constant drain: the next one may go when what went before has been worked off.

    At the rate of *per_second* units, evenly spaced; *burst* units may go at once after a rest.
    Exact: time is counted in ticks of which both a unit and a nanosecond are a whole number.
    """

    __slots__ = ("_free_at", "_pace", "_tolerance", "burst", "per_second")

    def __init__(self, per_second: Fraction, *, burst: int = 1) -> None:
        if type(burst) is not int or burst < 1:
            raise OptionError(f"burst is {burst!r}; expected a whole number from 1")
        self.per_second = per_second
        self.burst = burst
        self._pace = Pace.of(burst, per_second)
        self._tolerance = (burst - 1) * self._pace.ticks_per_unit
        self._free_at: int | None = None  # in ticks: when all that was taken is worked off

    def take(self, cost: int, now: int, *, has_waited: bool) -> int:
        pace = self._pace
        now_ticks = now * pace.ticks_per_ns
        free_at = self._free_at
        if free_at is None:
            free_at = now_ticks
        early = free_at - now_ticks - self._tolerance
        if early > 0:
            return pace.to_ns(early)
        earliest = now_ticks - LATENESS_NS * pace.ticks_per_ns if has_waited else now_ticks
        self._free_at = max(free_at, earliest) + cost * pace.ticks_per_unit
        return 0

    def give_back(self, cost: int) -> None:
        if self._free_at is not None:
            self._free_at -= cost * self._pace.ticks_per_unit

    def follow(self, other: PacedBudget) -> None:
        """Go on where *other*, of another rate perhaps, is."""
        if other._free_at is not None:
            self._free_at = other._free_at * self._pace.ticks_per_ns // other._pace.ticks_per_ns

    def delay(self, ahead: int, now: int) -> int:
        pace = self._pace
        now_ticks = now * pace.ticks_per_ns
        free_at = now_ticks if self._free_at is None else max(self._free_at, now_ticks)
        return pace.to_ns(free_at - now_ticks - self._tolerance + ahead * pace.ticks_per_unit)


def read_rate(rate: str | PacedLimit | Rate) -> Fraction:
    """Units a second: *rate* says them as text (`100/s`), as a limit or as a number."""
    if isinstance(rate, str):
        return parse_rate(rate)  # which has no burst that could be left out of account
    if not isinstance(rate, Limit):
        return exact_rate(rate, "rate")
    if not isinstance(rate, PacedLimit):
        raise OptionError(f"rate is {rate!r}; expected a rate like '100/s', without a window")
    return rate.per_second
