"""One way to drive both kinds of limiter, so that one test body serves sync and async stores.

`Driven` is what the tests see. `RateLimiter` is one as it stands; `Blocking` makes one of an
`AsyncRateLimiter` by running each awaited verb to its end on a runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine, Iterable
    from typing import Any

    from headgate.aio import AsyncRateLimiter
    from headgate.decisions import Decision
    from headgate.holding import AsyncReservation, AsyncSlot
    from headgate.stores import Hit
    from headgate.units import Seconds

T = TypeVar("T")


class DrivenReservation(Protocol):
    """A reservation, whichever limiter made it."""

    @property
    def allowed(self) -> bool: ...
    def commit(self, actual: int | None = None) -> bool: ...
    def cancel(self) -> bool: ...


class DrivenSlot(Protocol):
    """A slot, whichever limiter made it."""

    def take(self) -> Decision: ...
    def renew(self) -> bool: ...
    def release(self) -> bool: ...


class Driven(Protocol):
    """The verbs that the contract is about."""

    def hit(self, key: str, cost: int = 1) -> Decision: ...
    def peek(self, key: str, cost: int = 1) -> Decision: ...
    def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> list[Decision]: ...
    def hit_all(self, hits: Iterable[Hit]) -> Decision: ...
    def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> DrivenReservation: ...
    def charge(self, key: str, amount: int) -> Decision: ...
    def refund(self, key: str, amount: int) -> Decision: ...
    def reset(self, key: str) -> None: ...
    def slot(self, key: str, partition: str | None = None) -> DrivenSlot: ...


class Blocking:
    """An `AsyncRateLimiter` for code that is not async."""

    def __init__(self, limiter: AsyncRateLimiter, runner: asyncio.Runner) -> None:
        self._limiter = limiter
        self._runner = runner

    def hit(self, key: str, cost: int = 1) -> Decision:
        return self._run(self._limiter.hit(key, cost))

    def peek(self, key: str, cost: int = 1) -> Decision:
        return self._run(self._limiter.peek(key, cost))

    def hit_many(self, asked: Iterable[str | tuple[str, int]]) -> list[Decision]:
        return self._run(self._limiter.hit_many(asked))

    def hit_all(self, hits: Iterable[Hit]) -> Decision:
        return self._run(self._limiter.hit_all(hits))

    def reserve(self, key: str, cost: int, ttl: Seconds = 60) -> BlockingReservation:
        return BlockingReservation(self._run(self._limiter.reserve(key, cost, ttl)), self._runner)

    def charge(self, key: str, amount: int) -> Decision:
        return self._run(self._limiter.charge(key, amount))

    def refund(self, key: str, amount: int) -> Decision:
        return self._run(self._limiter.refund(key, amount))

    def reset(self, key: str) -> None:
        self._run(self._limiter.reset(key))

    def slot(self, key: str, partition: str | None = None) -> BlockingSlot:
        return BlockingSlot(self._limiter.slot(key, partition), self._runner)

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(verb)


class BlockingReservation:
    """An `AsyncReservation` for code that is not async."""

    def __init__(self, reservation: AsyncReservation, runner: asyncio.Runner) -> None:
        self._reservation = reservation
        self._runner = runner

    @property
    def allowed(self) -> bool:
        return self._reservation.allowed

    def commit(self, actual: int | None = None) -> bool:
        return self._runner.run(self._reservation.commit(actual))

    def cancel(self) -> bool:
        return self._runner.run(self._reservation.cancel())


class BlockingSlot:
    """An `AsyncSlot` for code that is not async."""

    def __init__(self, slot: AsyncSlot, runner: asyncio.Runner) -> None:
        self._slot = slot
        self._runner = runner

    def take(self) -> Decision:
        return self._runner.run(self._slot.take())

    def renew(self) -> bool:
        return self._runner.run(self._slot.renew())

    def release(self) -> bool:
        return self._runner.run(self._slot.release())
