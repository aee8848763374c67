"""Callers of one event loop that ask in the same tick, asked for together.

Who asks when the server has nothing to do is sent at once. Otherwise the first one schedules the
sending for the end of the tick; a full batch is sent right away, so that the server has something
to do meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError
from headgate.stores.redis.calls.hitting import LoneHit

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.stores.operations import Operation
    from headgate.stores.redis.calls.hitting import Place
    from headgate.stores.redis.calls.pending import Pending
    from headgate.stores.redis.request import AsyncTransport


class Collector:
    """What the callers of one event loop have pending."""

    __slots__ = ("_is_scheduled", "_last", "_may_be_alone", "_pending", "_transport", "loop")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: AsyncTransport,
        pending: Pending,
        *,
        has_server_clock: bool,
    ) -> None:
        self.loop = loop
        self._transport = transport
        self._pending = pending
        self._may_be_alone = has_server_clock
        self._is_scheduled = False
        self._last: asyncio.Future[Any] = loop.create_future()
        self._last.cancel()

    def hit(self, place: Place, name: bytes, key: str, cost: int) -> asyncio.Future[Decision]:
        waiter: asyncio.Future[Decision] = asyncio.Future(loop=self.loop)
        if self._last.done() and not self._is_scheduled and self._may_be_alone:
            self._transport.submit(LoneHit(place, name, key, cost, waiter))
            self._last = waiter
            return waiter
        is_full = self._pending.hit(place, name, key, cost, waiter)
        self._last = waiter
        if is_full or not self._is_scheduled:
            self._schedule(at_once=is_full)
        return waiter

    def operation(self, operation: Operation[Any]) -> asyncio.Future[Any]:
        waiter: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        is_full = self._pending.operation(operation, waiter)
        self._last = waiter
        if is_full or not self._is_scheduled:
            self._schedule(at_once=is_full)
        return waiter

    def _schedule(self, *, at_once: bool) -> None:
        if at_once:
            self._send()
        else:
            self._is_scheduled = True
            self.loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self._send()

    def _send(self) -> None:
        for request in self._pending.drain():
            try:
                self._transport.submit(request)
            except Exception as error:  # noqa: BLE001 (nobody may wait for ever, whatever it is)
                request.failed(StoreError(f"it could not be sent: {error!r}", is_undone=True))
