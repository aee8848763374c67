"""What came of asking a gate for a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections import deque
    from types import TracebackType
    from typing import Self

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
