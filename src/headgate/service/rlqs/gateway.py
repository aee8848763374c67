"""A gateway as the service sees it: one stream, the buckets that it has, what it is to be told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs.assignment import Action, BucketId
from headgate.service.rlqs.ledger import NEVER
from headgate.service.rlqs.messages import encoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.clock import Clock
    from headgate.service.rlqs.filling import Filling
    from headgate.service.rlqs.tally import Tally
    from headgate.service.rlqs.terms import Terms

_TOLD_AT_ONCE: Final = 256


@dataclass(slots=True, eq=False)
class Part:
    """A bucket of a gateway. *made_ns* is when what it has was made, on the board's clock; *told*
    at *told_ns*, on ours."""

    gateway: Gateway
    bucket: BucketId
    name: str
    terms: Terms
    tally: Tally
    made_ns: int = NEVER
    told: Filling | None = None
    told_ns: int = NEVER

    def tell(self, filling: Filling | None, *, is_open: bool = False) -> None:
        """Have the gateway told to let through what *filling* says, or nothing, or all.

        The first time nobody knows what it has: it may be of a stream before this one.
        """
        is_anew = filling is not None and (
            self.told_ns == NEVER or (self.told is not None and filling.looks_like(self.told))
        )
        self.told, self.told_ns = filling, self.gateway.now_ns()
        ttl = self.gateway.ttl_seconds
        self.gateway.tell(Action(self.bucket, ttl, filling, is_open=is_open, is_anew=is_anew))

    def abandon(self) -> None:
        """Have the gateway told to forget the bucket."""
        self.gateway.tell(Action(self.bucket, is_abandoned=True))


class Gateway:
    """One stream. What is to be told waits until it is taken, the newest for each bucket."""

    def __init__(self, name: str, clock: Clock, ttl_seconds: int) -> None:
        self.name = name
        self.ttl_seconds = ttl_seconds
        self.now_ns = clock
        self.parts: dict[BucketId, Part] = {}
        self.reported_bytes = 0
        """How long a message on all parts is."""
        self.domain = ""
        self._pending: dict[BucketId, Action] = {}
        self._pending_ns = NEVER
        self._waited = False
        self._is_ended = False
        self._error: BaseException | None = None
        self._wake = asyncio.Event()

    def enter(self, domain: str) -> None:
        """The gateway says that it is of *domain*: in its first message, and never another."""
        if not self.domain and not domain:
            problem = "the first message has no domain; expected the one in the filter's settings"
            raise CallError(Code.INVALID_ARGUMENT, problem)
        if self.domain and domain and domain != self.domain:
            problem = f"the domain was {self.domain!r} and is {domain!r}; a stream has one"
            raise CallError(Code.INVALID_ARGUMENT, problem)
        self.domain = self.domain or domain

    def tell(self, action: Action) -> None:
        if self._error is not None or self._is_ended:
            return
        if not self._pending:
            self._pending_ns = self.now_ns()
        before = self._pending.get(action.bucket)
        if before is not None and (before.is_anew or before.filling != action.filling):
            action = replace(action, is_anew=True)  # for it never hears of the one before
        self._pending[action.bucket] = action
        self._wake.set()

    def is_stuck(self, patience_ns: int) -> bool:
        """Whether something has waited to be taken for that long.

        It is to be asked now and then: what waits now must have been waiting at the time before,
        so that nobody is blamed for a moment in which nobody could take anything.
        """
        waited, self._waited = self._waited, bool(self._pending)
        return waited and self._waited and self.now_ns() - self._pending_ns > patience_ns

    def end(self) -> None:
        """End the stream when all is told."""
        self._is_ended = True
        self._wake.set()

    def fail(self, error: BaseException) -> None:
        """End the stream at once with *error*."""
        self._error = self._error or error
        self._pending.clear()
        self._wake.set()

    def has_read(self, reading: asyncio.Task[None]) -> None:
        """All was read that the gateway sends, or it went wrong: so ends the stream."""
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            self.end()
        else:
            self.fail(error)

    async def messages(self) -> AsyncIterator[bytes]:
        """What is to be sent, as it comes up. Raises what the stream ends with."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                taken = list(self._pending)[:_TOLD_AT_ONCE]
                self._waited = False
                yield encoded([self._pending.pop(bucket) for bucket in taken])
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return
