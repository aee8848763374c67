"""A gateway as the service sees it: one stream, the buckets that it has, what it is to be told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs.ledger import NEVER, Action, BucketId
from headgate.service.rlqs.messages import encoded
from headgate.service.rlqs.rates import MILLION
from headgate.stores.base import LARGEST_AMOUNT
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.clock import Clock
    from headgate.service.rlqs.rates import Filling, Terms
    from headgate.service.rlqs.reports import Usage


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


# What a gateway asks of a bucket and what it uses, from its reports. No I/O.
#
# Reports come every five seconds. A counter that is charged in such lumps would be full before each
# and empty after it, and tell nobody anything. So what a gateway is expected to use, going by what
# it asked for and was given, is charged ahead as time passes, and put right when the report comes.


_LONGEST_AHEAD_NS: Final = 6 * SECOND
_SHORTEST_NS: Final = SECOND // 2
"""Reports that are closer than this are taken for what the gateway says of their time."""


@dataclass(slots=True)
class Tally:
    """*demand* and *usage* are in millionths of a request a second; no *demand* is known before a
    report that is for some time. *heard_ns* is the last report, *asked_ns* the last with
    requests."""

    heard_ns: int
    asked_ns: int
    demand: int | None = None
    usage: int = 0
    _ahead: int = 0
    _carry: int = 0
    _charged_ns: int = NEVER
    _is_new: bool = True

    def heard(self, usage: Usage, now_ns: int) -> int:
        """Take in a report; what is still to be charged for it, or to be given back if negative."""
        allowed = min(usage.allowed, LARGEST_AMOUNT)
        asked = allowed + min(usage.denied, LARGEST_AMOUNT)
        since_ns = now_ns - self.heard_ns
        span_ns = usage.elapsed_ns if self._is_new or since_ns < _SHORTEST_NS else since_ns
        if span_ns > 0:
            self._reckon(asked * MILLION * SECOND // span_ns, allowed * MILLION * SECOND // span_ns)
        if asked:
            self.asked_ns = now_ns
        left = allowed - self._ahead
        self.heard_ns = self._charged_ns = now_ns
        self._ahead = self._carry = 0
        self._is_new = False
        return left

    def expected(self, now_ns: int, given: int) -> int:
        """What is to be charged ahead for the time until *now_ns*: what was asked for, as far as
        the rate *given* (in millionths) allows."""
        if self.demand is None or now_ns - self.heard_ns > _LONGEST_AHEAD_NS:
            return 0
        rate = min(self.demand, given)
        passed_ns = max(now_ns - self._charged_ns, 0)
        self._charged_ns = max(now_ns, self._charged_ns)
        amount, self._carry = divmod(self._carry + rate * passed_ns, MILLION * SECOND)
        self._ahead += amount
        return amount

    def forget_ahead(self) -> int:
        """What was charged ahead since the last report, which is then for others to put right."""
        ahead, self._ahead, self._carry = self._ahead, 0, 0
        return ahead

    def _reckon(self, asked: int, used: int) -> None:
        """Demand that grows is believed at once, demand that falls by halves."""
        self.demand = asked if self.demand is None else max(asked, (asked + self.demand) // 2)
        self.usage = used if self._is_new else (self.usage + used) // 2
