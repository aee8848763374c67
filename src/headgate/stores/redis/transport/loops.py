"""One transport for several event loops: each has connections of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headgate.stores.redis import faults
from headgate.stores.redis.request import AsyncTransport, Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable


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
        home = self._homes.get(asyncio.get_running_loop())
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
        asyncio.get_running_loop().call_soon(request.failed, faults.closed(self._where))
