"""Things a caller holds for a while: reservations and slots.

Both are true when they were granted. Both settle once; a second attempt is a `SettledError`.
Both end by themselves if their holder is never heard of again.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Protocol

from headgate.errors import SettledError
from headgate.stores.base import checked_cost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from headgate.decision import Decision


def new_name() -> str:
    """A name for a reservation or a lease that no other process will choose."""
    return token_hex(12)


class Settlement:
    """What a reservation is about, and whether it is still open."""

    __slots__ = ("_is_open", "amount", "decision", "key", "name")

    def __init__(self, key: str, amount: int, name: str, decision: Decision) -> None:
        self.key = key
        self.amount = amount
        self.name = name
        self.decision = decision
        self._is_open = decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        state = "open" if self._is_open else "settled" if self else "refused"
        return f"<{type(self).__name__} of {self.amount} for {self.key!r}: {state}>"

    @property
    def allowed(self) -> bool:
        """Whether the amount was granted."""
        return self.decision.allowed

    @property
    def is_open(self) -> bool:
        """Whether it has yet to be settled."""
        return self._is_open

    def _close(self, actual: int | None) -> int:
        """Settle for *actual*, or the reserved amount; a wrong amount settles nothing."""
        amount = self.amount if actual is None else checked_cost(actual, "actual")
        if not self._is_open:
            happened = "settled already" if self.decision.allowed else "refused: nothing is held"
            raise SettledError(f"the reservation of {self.amount} for {self.key!r} was {happened}")
        self._is_open = False
        return amount


class Reservation(Settlement):
    """An amount set aside; `commit` what was really used, or `cancel`.

    As a context manager it commits the reserved amount at the end of the block, or cancels if the
    block raised, unless it was settled inside.
    """

    __slots__ = ("_settle",)

    def __init__(
        self,
        key: str,
        amount: int,
        name: str,
        decision: Decision,
        settle: Callable[[str, str, int], bool],
    ) -> None:
        super().__init__(key, amount, name, decision)
        self._settle = settle

    def commit(self, actual: int | None = None) -> bool:
        """Charge *actual*, in full even beyond the reserved amount; that amount if not said.

        Returns whether the reservation was still open in the store; if it had lapsed, *actual* is
        charged all the same.
        """
        return self._settle(self.key, self.name, self._close(actual)) or not self.amount

    def cancel(self) -> bool:
        """Give everything back; whether the reservation was still open in the store."""
        return self._settle(self.key, self.name, self._close(0)) or not self.amount

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            self.commit() if kind is None else self.cancel()


class AsyncReservation(Settlement):
    """The same for an event loop; `commit` and `cancel` are awaited."""

    __slots__ = ("_settle",)

    def __init__(
        self,
        key: str,
        amount: int,
        name: str,
        decision: Decision,
        settle: Callable[[str, str, int], Awaitable[bool]],
    ) -> None:
        super().__init__(key, amount, name, decision)
        self._settle = settle

    async def commit(self, actual: int | None = None) -> bool:
        """As `Reservation.commit`."""
        return await self._settle(self.key, self.name, self._close(actual)) or not self.amount

    async def cancel(self) -> bool:
        """As `Reservation.cancel`."""
        return await self._settle(self.key, self.name, self._close(0)) or not self.amount

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_open:
            await (self.commit() if kind is None else self.cancel())


class Beating(Protocol):
    """What renews a lease in the background."""

    @property
    def is_lost(self) -> bool: ...
    def stop(self) -> None: ...


class Lease:
    """What a slot is about, and whether it is being held.

    *beat* begins to renew a lease in the background, for as long as this is there; without it
    nobody does.
    """

    __slots__ = (
        "__weakref__",
        "_beat",
        "_beating",
        "_decision",
        "_is_held",
        "_is_lost",
        "_is_out",
        "key",
        "name",
    )

    def __init__(self, key: str, beat: Callable[[str, str, Lease], Beating] | None) -> None:
        self.key = key
        self._beat = beat
        self._beating: Beating | None = None
        self._is_lost = False
        self.name = new_name()
        self._decision: Decision | None = None
        self._is_held = False
        self._is_out = False  # granted, and not given back yet, whatever became of it

    def __bool__(self) -> bool:
        return self._is_held and not self.is_lost

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.key!r}: {'held' if self else 'not held'}>"

    @property
    def is_lost(self) -> bool:
        """Whether the slot was granted, and its lease lost before it was given back: it may be
        somebody else's by now. Without a heartbeat only `renew` finds out."""
        return self._is_lost or (self._beating is not None and self._beating.is_lost)

    @property
    def decision(self) -> Decision:
        """What came of asking for the slot."""
        if self._decision is None:
            raise SettledError(f"nobody has asked for the slot of {self.key!r} yet: enter it first")
        return self._decision

    def _asked(self) -> None:
        if self._decision is not None:
            raise SettledError(
                f"the slot of {self.key!r} has been asked for already: make a new one"
            )

    def _answered(self, decision: Decision) -> Decision:
        self._decision = decision
        self._is_held = self._is_out = decision.allowed
        if decision.allowed and self._beat is not None:
            self._beating = self._beat(self.key, self.name, self)
        return decision

    def _renewed(self, *, is_held: bool) -> bool:
        self._is_lost = self.is_lost or (self._is_held and not is_held)
        self._is_held = self._is_held and is_held
        return self._is_held

    def _ended(self) -> bool:
        """It is given back now, if it was not before."""
        if self._beating is not None:
            self._beating.stop()
        was_out, self._is_out, self._is_held = self._is_out, False, False
        return was_out


class Slot(Lease):
    """One of a limited number of places: `with limiter.slot(key) as slot:`, then `if slot:`."""

    __slots__ = ("_enter", "_leave", "_renew")

    def __init__(
        self,
        key: str,
        enter: Callable[[str, str], Decision],
        renew: Callable[[str, str], bool],
        leave: Callable[[str, str], bool],
        beat: Callable[[str, str, Lease], Beating] | None = None,
    ) -> None:
        super().__init__(key, beat)
        self._enter = enter
        self._renew = renew
        self._leave = leave

    def take(self) -> Decision:
        """Ask for the slot, once; what came of it. `with` does this by itself."""
        self._asked()
        return self._answered(self._enter(self.key, self.name))

    def renew(self) -> bool:
        """Start the lease anew; False if the slot is not held any more."""
        return self._renewed(is_held=bool(self) and self._renew(self.key, self.name))

    def release(self) -> bool:
        """Give the slot back; False if it was not held any more. `with` does this by itself."""
        return self._ended() and self._leave(self.key, self.name)

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class AsyncSlot(Lease):
    """The same for an event loop: `async with limiter.slot(key) as slot:`."""

    __slots__ = ("_enter", "_leave", "_renew")

    def __init__(
        self,
        key: str,
        enter: Callable[[str, str], Awaitable[Decision]],
        renew: Callable[[str, str], Awaitable[bool]],
        leave: Callable[[str, str], Awaitable[bool]],
        beat: Callable[[str, str, Lease], Beating] | None = None,
    ) -> None:
        super().__init__(key, beat)
        self._enter = enter
        self._renew = renew
        self._leave = leave

    async def take(self) -> Decision:
        """As `Slot.take`."""
        self._asked()
        return self._answered(await self._enter(self.key, self.name))

    async def renew(self) -> bool:
        """As `Slot.renew`."""
        return self._renewed(is_held=bool(self) and await self._renew(self.key, self.name))

    async def release(self) -> bool:
        """As `Slot.release`."""
        return self._ended() and await self._leave(self.key, self.name)

    async def __aenter__(self) -> Self:
        await self.take()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()
