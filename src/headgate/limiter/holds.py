"""Things that a caller holds for a while: reservations and slots.

Both are true when they were granted. Both settle once; a second attempt raises `SettledError`. Both
expire if their holder is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import SettledError, StoreError
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Interrupted
from headgate.runtime.heartbeat import StartHeartbeat, new_name
from headgate.stores.base import checked_cost

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from headgate.decision import Decision
    from headgate.engine.stack import Stack
    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.runtime.effects import Effects
    from headgate.runtime.heartbeat import Beat


class _Reservation:
    """An amount that is set aside, for both drivers. *settle* charges the amount that was used."""

    __slots__ = ("_is_open", "_settle", "amount", "decision", "key", "name")

    def __init__(
        self,
        key: str,
        amount: int,
        name: str,
        decision: Decision,
        settle: Callable[[int], Effects[bool]],
    ) -> None:
        self.key = key
        self.amount = amount
        self.name = name
        self.decision = decision
        self._settle = settle
        self._is_open = decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        state = "open" if self._is_open else "settled" if self else "denied"
        return f"<{type(self).__name__} of {self.amount} for {self.key!r}: {state}>"

    @property
    def allowed(self) -> bool:
        """True if the amount was granted."""
        return self.decision.allowed

    @property
    def is_open(self) -> bool:
        """True if it has yet to be settled."""
        return self._is_open

    def _closing(self, actual: int | None) -> Effects[bool]:
        """Settle for *actual*, or the reserved amount; a wrong amount settles nothing."""
        amount = self.amount if actual is None else checked_cost(actual, "actual")
        if not self._is_open:
            happened = "settled already" if self.decision.allowed else "denied: nothing is held"
            raise SettledError(f"the reservation of {self.amount} for {self.key!r} was {happened}")
        self._is_open = False
        return (yield from self._settle(amount)) or not self.amount


class Reservation(_Reservation):
    """An amount that is set aside: `commit` what was really used, or `cancel`.

    As a context manager it commits the reserved amount at the end of the block, or cancels if the
    block raised, unless it was settled inside.
    """

    __slots__ = ()

    def commit(self, actual: int | None = None) -> bool:
        """Charge *actual*, in full even beyond the reserved amount, which is the default.

        True if the reservation was still open in the store; if it had expired, *actual* is charged
        all the same.
        """
        return drive(self._closing(actual))

    def cancel(self) -> bool:
        """Give everything back; True if the reservation was still open in the store."""
        return drive(self._closing(0))

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


class AsyncReservation(_Reservation):
    """A `Reservation` for an event loop; `commit` and `cancel` are awaited."""

    __slots__ = ()

    async def commit(self, actual: int | None = None) -> bool:
        """Charge *actual*: see `Reservation.commit`."""
        return await adrive(self._closing(actual))

    async def cancel(self) -> bool:
        """Give everything back; True if the reservation was still open in the store."""
        return await adrive(self._closing(0))

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


class _Slot:
    """One of a limited number of slots of *key* under the limits of *stack*, for both drivers."""

    __slots__ = (
        "__weakref__",
        "_beat",
        "_engine",
        "_has_heartbeat",
        "_is_held",
        "_is_lost",
        "_is_out",
        "_stack",
        "_verdict",
        "key",
        "name",
    )

    def __init__(self, key: str, engine: Engine, stack: Stack, *, heartbeat: bool) -> None:
        self.key = key
        self.name = new_name()
        self._engine = engine
        self._stack = stack
        self._has_heartbeat = heartbeat
        self._beat: Beat | None = None
        self._verdict: Verdict | None = None
        self._is_held = False
        self._is_lost = False
        self._is_out = False  # granted, and not released yet, whatever became of it

    def __bool__(self) -> bool:
        return self._is_held and not self.is_lost

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.key!r}: {'held' if self else 'not held'}>"

    @property
    def is_lost(self) -> bool:
        """True if the slot was granted and its lease was lost before it was released: another
        caller may have it now. Without a heartbeat only `renew` finds out."""
        return self._is_lost or (self._beat is not None and self._beat.is_lost)

    @property
    def decision(self) -> Decision:
        """The answer to the request for the slot."""
        return self._granted.rules[0].decision

    @property
    def _granted(self) -> Verdict:
        if self._verdict is None:
            raise SettledError(f"the slot of {self.key!r} was not requested yet: enter it first")
        return self._verdict

    @property
    def _fails_open(self) -> bool:
        return self._stack.rule.on_failure.mode == "fail_open"

    def _taking(self) -> Effects[Decision]:
        if self._verdict is not None:
            raise SettledError(f"the slot of {self.key!r} was requested already: make a new one")
        engine, plan = self._engine, self._stack.plan_of_slot(self.key, self.name)
        verdict = self._verdict = yield from engine.decide(plan)
        self._is_held = self._is_out = verdict.allowed
        if verdict.allowed and self._has_heartbeat:
            lease_ns = verdict.slots_last_ns or 0
            try:
                self._beat = yield StartHeartbeat(lambda: engine.renew(verdict), lease_ns, self)
            except Interrupted:
                yield from engine.undo(verdict)
                raise
        return self.decision

    def _renewing(self) -> Effects[bool]:
        is_held = False
        if self:
            try:
                is_held = yield from self._engine.renew(self._granted)
            except StoreError:
                if not self._fails_open:
                    raise
        self._is_lost = self.is_lost or (self._is_held and not is_held)
        self._is_held = self._is_held and is_held
        return self._is_held

    def _releasing(self) -> Effects[bool]:
        if self._beat is not None:
            self._beat.stop()
        was_out, self._is_out, self._is_held = self._is_out, False, False
        if not was_out:
            return False
        return (yield from self._engine.release(self._granted, raises=not self._fails_open))


class Slot(_Slot):
    """One of a limited number of slots: `with limiter.slot(key) as slot:`, then `if slot:`."""

    __slots__ = ()

    def take(self) -> Decision:
        """Request the slot, once. `with` does this by itself."""
        return drive(self._taking())

    def renew(self) -> bool:
        """Renew the lease; False if the slot is not held any more."""
        return drive(self._renewing())

    def release(self) -> bool:
        """Release the slot; False if it was not held any more. `with` does this by itself."""
        return drive(self._releasing())

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class AsyncSlot(_Slot):
    """A `Slot` for an event loop: `async with limiter.slot(key) as slot:`."""

    __slots__ = ()

    async def take(self) -> Decision:
        """Request the slot, once. `async with` does this by itself."""
        return await adrive(self._taking())

    async def renew(self) -> bool:
        """Renew the lease; False if the slot is not held any more."""
        return await adrive(self._renewing())

    async def release(self) -> bool:
        """Release the slot; False if it was not held any more."""
        return await adrive(self._releasing())

    async def __aenter__(self) -> Self:
        await self.take()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.release()
