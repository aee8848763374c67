"""A gateway: one stream, its buckets, and the actions to be sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs.ledger import NEVER
from headgate.service.rlqs.messages import Action, BucketId, encoded
from headgate.service.rlqs.rates import MILLION
from headgate.stores.base import LARGEST_AMOUNT
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headgate.clock import Clock
    from headgate.service.rlqs.rates import BucketLimits, TokenBucket
    from headgate.service.rlqs.reports import Usage


_ACTIONS_PER_MESSAGE: Final = 256


@dataclass(slots=True, eq=False)
class Share:
    """A bucket of a gateway and its assignment *assigned*, sent at *assigned_ns* on our clock.
    *made_ns* is the time of the assignment on the ledger store's clock."""

    gateway: Gateway
    bucket: BucketId
    name: str
    limits: BucketLimits
    estimate: DemandEstimate
    made_ns: int = NEVER
    assigned: TokenBucket | None = None
    assigned_ns: int = NEVER

    def assign(self, token_bucket: TokenBucket | None, *, is_open: bool = False) -> None:
        """Assign *token_bucket* to the gateway, or without one deny all, or allow all if *is_open*.

        The first assignment replaces whatever the gateway may have from an earlier stream.
        """
        replaces = token_bucket is not None and (
            self.assigned_ns == NEVER
            or (self.assigned is not None and token_bucket.looks_like(self.assigned))
        )
        self.assigned, self.assigned_ns = token_bucket, self.gateway.now_ns()
        ttl = self.gateway.ttl_seconds
        self.gateway.send(
            Action(self.bucket, ttl, token_bucket, is_open=is_open, replaces=replaces)
        )

    def abandon(self) -> None:
        """Make the gateway forget the bucket."""
        self.gateway.send(Action(self.bucket, is_abandoned=True))


class Gateway:
    """One stream. Actions wait until they are read, the newest for each bucket."""

    def __init__(self, name: str, clock: Clock, ttl_seconds: int) -> None:
        self.name = name
        self.ttl_seconds = ttl_seconds
        self.now_ns = clock
        self.shares: dict[BucketId, Share] = {}
        self.reported_bytes = 0
        """Length of a report on all buckets."""
        self.domain = ""
        self._pending: dict[BucketId, Action] = {}
        self._pending_ns = NEVER
        self._waited = False
        self._is_ended = False
        self._error: BaseException | None = None
        self._wake = asyncio.Event()

    def set_domain(self, domain: str) -> None:
        """Set the domain from a message: the first must have one, and it never changes."""
        if not self.domain and not domain:
            problem = "the first message has no domain; expected the one in the filter's settings"
            raise CallError(Code.INVALID_ARGUMENT, problem)
        if self.domain and domain and domain != self.domain:
            problem = f"the domain was {self.domain!r} and is {domain!r}; a stream has one"
            raise CallError(Code.INVALID_ARGUMENT, problem)
        self.domain = self.domain or domain

    def send(self, action: Action) -> None:
        if self._error is not None or self._is_ended:
            return
        if not self._pending:
            self._pending_ns = self.now_ns()
        before = self._pending.get(action.bucket)
        if before is not None and (before.replaces or before.token_bucket != action.token_bucket):
            action = replace(action, replaces=True)  # the gateway never sees the one before
        self._pending[action.bucket] = action
        self._wake.set()

    def is_stuck(self, timeout_ns: int) -> bool:
        """True if an action has waited to be read for that long.

        Call it periodically. Something must have waited at the previous call too, so that a pause
        of this process is not blamed on the gateway.
        """
        waited, self._waited = self._waited, bool(self._pending)
        return waited and self._waited and self.now_ns() - self._pending_ns > timeout_ns

    def end(self) -> None:
        """End the stream when all actions are sent."""
        self._is_ended = True
        self._wake.set()

    def fail(self, error: BaseException) -> None:
        """End the stream at once with *error*."""
        self._error = self._error or error
        self._pending.clear()
        self._wake.set()

    def on_input_end(self, reading: asyncio.Task[None]) -> None:
        """End the stream after its input ended or failed."""
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            self.end()
        else:
            self.fail(error)

    async def messages(self) -> AsyncIterator[bytes]:
        """Encoded actions as they come up. Raises the error that the stream ends with."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                taken = list(self._pending)[:_ACTIONS_PER_MESSAGE]
                self._waited = False
                yield encoded([self._pending.pop(bucket) for bucket in taken])
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return


# Demand and usage of a bucket, estimated from reports. No I/O.
#
# Reports come every five seconds. A counter that is charged in such lumps would be full before each
# and empty after it. So the expected usage, from demand and assigned rate, is charged ahead as time
# passes and corrected when the report comes.


_LONGEST_AHEAD_NS: Final = 6 * SECOND
_SHORTEST_NS: Final = SECOND // 2
"""For reports that are closer than this, the duration that the gateway states is used."""


@dataclass(slots=True)
class DemandEstimate:
    """Demand and usage in millionths of a request per second; *demand* is None before a report that
    covers some time. *reported_ns* is the time of the last report, *requested_ns* of the last with
    requests."""

    reported_ns: int
    requested_ns: int
    demand: int | None = None
    usage: int = 0
    _ahead: int = 0
    _carry: int = 0
    _charged_ns: int = NEVER
    _is_new: bool = True

    def record_report(self, usage: Usage, now_ns: int) -> int:
        """Process a report and return the amount to charge for it, or to refund if negative."""
        allowed = min(usage.allowed, LARGEST_AMOUNT)
        requests = allowed + min(usage.denied, LARGEST_AMOUNT)
        since_ns = now_ns - self.reported_ns
        span_ns = usage.elapsed_ns if self._is_new or since_ns < _SHORTEST_NS else since_ns
        if span_ns > 0:
            self._update(
                requests * MILLION * SECOND // span_ns, allowed * MILLION * SECOND // span_ns
            )
        if requests:
            self.requested_ns = now_ns
        left = allowed - self._ahead
        self.reported_ns = self._charged_ns = now_ns
        self._ahead = self._carry = 0
        self._is_new = False
        return left

    def expected(self, now_ns: int, given: int) -> int:
        """The amount to charge ahead until *now_ns*: the demand, up to the assigned rate *given* in
        millionths."""
        if self.demand is None or now_ns - self.reported_ns > _LONGEST_AHEAD_NS:
            return 0
        rate = min(self.demand, given)
        passed_ns = max(now_ns - self._charged_ns, 0)
        self._charged_ns = max(now_ns, self._charged_ns)
        amount, self._carry = divmod(self._carry + rate * passed_ns, MILLION * SECOND)
        self._ahead += amount
        return amount

    def take_ahead(self) -> int:
        """Return and reset the amount charged ahead since the last report; the caller corrects
        it."""
        ahead, self._ahead, self._carry = self._ahead, 0, 0
        return ahead

    def _update(self, requests: int, used: int) -> None:
        """Follow growing demand at once, falling demand and usage by halves.

        The first report of a bucket covers no time, so the second one is the first to say anything.
        """
        if self.demand is None:
            self.demand, self.usage = requests, used
        else:
            self.demand = max(requests, (requests + self.demand) // 2)
            self.usage = (self.usage + used) // 2
