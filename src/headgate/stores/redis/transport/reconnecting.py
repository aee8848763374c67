"""The way to one server in an event loop: a wire when it is connected, a queue until it is."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.errors import StoreError
from headgate.stores.redis import errors
from headgate.stores.redis.request import AsyncTransport, Request
from headgate.stores.redis.transport.cluster_map import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from headgate.stores.redis.transport.async_connection import Owner, Pending, Wire


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
            self._refuse(pending, errors.too_late(self.where, self._timeout))
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
        self._loop.call_soon(pending[0].failed, errors.unsent(error))

    def _expire(self) -> None:
        now = _monotonic()
        late = [one for one in self._waiting if one.pending[1] <= now]
        self._waiting = deque(one for one in self._waiting if one.pending[1] > now)
        error = errors.too_late(self.where, self._timeout)
        errors.fail_all((one.pending[0] for one in late), error)

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
        self._fail_waiting(errors.closed(self.where))
        for wire in self._wires:
            wire.end(errors.closed(self.where, is_undone=False))
            await wire.gone()

    def _refusal(self) -> StoreError | None:
        if self._is_closed:
            return errors.closed(self.where)
        return self._backoff.refusal(_monotonic())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                wire = await self._dial(self)
        except TimeoutError:
            self._give_up(errors.too_late(self.where, self._timeout))
        except StoreError as error:
            self._give_up(error)
        except asyncio.CancelledError:  # the link is closed, or the loop
            self._attempt = None
            self._fail_waiting(errors.closed(self.where))
            raise
        except Exception as error:
            self._give_up(errors.fault(error, self.where))  # nobody may wait for ever
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
        errors.fail_all((one.pending[0] for one in waiting), errors.unsent(error))


# One transport for several event loops: each has connections of its own.


_PATIENCE = 1.0  # seconds that another loop may take to close its connections


class Site(Protocol):
    """What there is in one event loop: the links of one store."""

    def submit(self, request: Request) -> None:
        """Send *request*."""

    def owner_of(self, slot: int) -> str:
        """As `AsyncTransport.owner_of`."""

    async def aclose(self) -> None:
        """Drop all connections."""


class _Home:
    """A site that is closed with its loop, if nobody closes it before.

    A loop that ends, as `asyncio.run` ends it, closes the asynchronous generators that were begun
    in it (`shutdown_asyncgens`), and a generator that is collected is closed in its loop.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._guard = _guarded(site)
        with suppress(StopIteration):
            self._guard.__anext__().send(None)

    async def aclose(self) -> None:
        await self._guard.aclose()


async def _guarded(site: Site) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await site.aclose()


class LoopTransport(AsyncTransport):
    """Requests go by the site of the event loop they are submitted in, which *found* makes.

    Loops may run in different threads. What belongs to a loop that was closed is forgotten.
    """

    def __init__(self, found: Callable[[], Site], where: str, *, is_cluster: bool) -> None:
        self.is_cluster = is_cluster
        self._found = found
        self._where = where
        self._homes: dict[asyncio.AbstractEventLoop, _Home] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        # One tuple, so that another thread cannot come between the two.
        self._here: tuple[object, Callable[[Request], None]] = (None, self._refuse)

    def submit(self, request: Request) -> None:
        """Send *request* now, if its server is connected, else as soon as it is."""
        loop, submit = self._here
        if loop is not asyncio.get_running_loop():
            submit = self._enter()
        submit(request)

    def owner_of(self, slot: int) -> str:
        """The address of the node that serves *slot*; "" if that is not known here yet."""
        try:
            home = self._homes.get(asyncio.get_running_loop())
        except RuntimeError:  # this thread has no loop
            return ""
        return "" if home is None else home.site.owner_of(slot)

    async def aclose(self) -> None:
        """Drop all connections, of all loops that run. Requests from now on fail."""
        with self._lock:
            self._is_closed = True
            self._here = (None, self._refuse)
            homes, self._homes = self._homes, {}
        here = asyncio.get_running_loop()
        for loop, home in homes.items():
            if loop is here:
                await home.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(home.aclose(), loop)
                with suppress(TimeoutError):  # a loop that stops meanwhile closes its own
                    await asyncio.wait_for(asyncio.wrap_future(closing), _PATIENCE)

    def _enter(self) -> Callable[[Request], None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_closed:
                return self._refuse
            self._homes = {one: home for one, home in self._homes.items() if not one.is_closed()}
            home = self._homes.get(loop)
            if home is None:
                home = self._homes[loop] = _Home(self._found())
            self._here = (loop, home.site.submit)
            return home.site.submit

    def _refuse(self, request: Request) -> None:
        asyncio.get_running_loop().call_soon(request.failed, errors.closed(self._where))
