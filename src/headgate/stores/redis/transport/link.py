"""The way to one server in an event loop: a wire when it is connected, a queue until it is."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.errors import StoreError
from headgate.stores.redis import faults
from headgate.stores.redis.transport.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.stores.redis.request import Request
    from headgate.stores.redis.transport.wire import Owner, Pending, Wire

_monotonic: Final = time.monotonic
_NEARLY_ALL: Final = 0.99  # with so much time left a request has just been submitted


class Judge(Protocol):
    """Who decides what to do with a request that was answered with an error."""

    def __call__(self, link: Link, wire: Wire, pending: Pending, text: str) -> None: ...


class _Waiting(NamedTuple):
    pending: Pending
    packed: bytes
    asking: bool


class Link:
    """Requests to one server, in their order. For one event loop, in its thread.

    *dial* opens a wire, or raises `StoreError`. One attempt runs at a time; when it fails, those
    who wait fail too, and so does everybody until the pause is over. *on_trouble* is called when
    the server could not be reached, or its connection broke.
    """

    def __init__(
        self,
        dial: Callable[[Owner], Awaitable[Wire]],
        judge: Judge,
        where: str,
        timeout: float,
        *,
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        self.where = where
        self._dial = dial
        self._judge = judge
        self._on_trouble = on_trouble
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._wires: list[Wire] = []
        self._waiting: deque[_Waiting] = deque()
        self._attempt: asyncio.Task[None] | None = None
        self._backoff = Backoff(random.random)
        self._is_closed = False

    def submit(self, request: Request) -> None:
        """Send *request* now, or as soon as there is a connection."""
        wire = self._wire
        if wire is not None:
            wire.send(request)
        else:
            self.forward((request, _monotonic() + self._timeout, 0), request.packed())

    def forward(self, pending: Pending, packed: bytes, *, asking: bool = False) -> None:
        """Send a request with the deadline that it has; after ASKING if it was sent on by ASK."""
        left = pending[1] - _monotonic()
        if left <= 0:
            self._refuse(pending, faults.too_late(self.where, self._timeout))
        elif self._wire is not None:
            self._wire.forward(pending, packed, asking=asking)
        else:
            self._wait(_Waiting(pending, packed, asking), left)

    def _wait(self, one: _Waiting, left: float) -> None:
        if self._attempt is None:
            refusal = self._refusal()
            if refusal is not None:
                self._refuse(one.pending, refusal)
                self._on_trouble()
                return
            self._attempt = self._loop.create_task(self._connect())
        self._waiting.append(one)
        if left < self._timeout * _NEARLY_ALL:  # it is due before the attempt need be over
            self._loop.call_later(left, self._expire)

    def _refuse(self, pending: Pending, error: StoreError) -> None:
        # Not from here: the caller may not be ready for it.
        self._loop.call_soon(pending[0].failed, faults.unsent(error))

    def _expire(self) -> None:
        now = _monotonic()
        late = [one for one in self._waiting if one.pending[1] <= now]
        self._waiting = deque(one for one in self._waiting if one.pending[1] > now)
        error = faults.too_late(self.where, self._timeout)
        faults.fail_all((one.pending[0] for one in late), error)

    def renew(self) -> None:
        """Use this connection no more: the server has changed its role."""
        if self._wire is not None:
            self._wire.retire()
            self._wire = None

    def refused(self, wire: Wire, pending: Pending, text: str) -> None:
        """The server answered a request with an error."""
        self._judge(self, wire, pending, text)

    def lost(self, wire: Wire) -> None:
        """*wire* cannot be used any more."""
        if self._wire is wire:
            self._wire = None
            self._on_trouble()

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing: no connection and no request."""
        is_waiting = self._attempt is not None or self._waiting
        return not is_waiting and all(wire.is_gone for wire in self._wires)

    async def aclose(self) -> None:
        """Drop all connections, and fail what is on its way."""
        self._is_closed = True
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
        self._fail_waiting(faults.closed(self.where))
        for wire in self._wires:
            wire.end(faults.closed(self.where, is_undone=False))
            await wire.gone()

    def _refusal(self) -> StoreError | None:
        if self._is_closed:
            return faults.closed(self.where)
        return self._backoff.refusal(_monotonic())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                wire = await self._dial(self)
        except TimeoutError:
            self._give_up(faults.too_late(self.where, self._timeout))
        except StoreError as error:
            self._give_up(error)
        except asyncio.CancelledError:  # the link is closed, or the loop
            self._attempt = None
            self._fail_waiting(faults.closed(self.where))
            raise
        except Exception as error:
            self._give_up(faults.fault(error, self.where))  # nobody may wait for ever
            raise
        else:
            self._backoff.succeeded()
            self._attempt = None
            self._wire = wire
            self._wires = [wire, *(one for one in self._wires if not one.is_gone)]
            waiting, self._waiting = self._waiting, deque()
            for pending, packed, asking in waiting:
                self.forward(pending, packed, asking=asking)

    def _give_up(self, error: StoreError) -> None:
        self._backoff.failed(error, _monotonic())
        self._attempt = None
        self._fail_waiting(error)
        self._on_trouble()

    def _fail_waiting(self, error: StoreError) -> None:
        waiting, self._waiting = self._waiting, deque()
        faults.fail_all((one.pending[0] for one in waiting), faults.unsent(error))
