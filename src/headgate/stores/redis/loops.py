"""One transport for several event loops: each has connections of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Protocol

from headgate.stores.redis import faults
from headgate.stores.redis.request import AsyncTransport, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.errors import StoreError


class Site(Protocol):
    """What there is in one event loop: the links of one store."""

    def submit(self, request: Request) -> None:
        """Send *request*."""

    def note_fault(self, request: Request, error: StoreError) -> None:
        """*error* was found inside the reply to *request*."""

    async def aclose(self) -> None:
        """Drop all connections."""


class LoopTransport(AsyncTransport):
    """Requests go by the site of the event loop they are submitted in, which *found* makes.

    Loops may run in different threads. What belongs to a loop that was closed is forgotten.
    """

    def __init__(self, found: Callable[[], Site], where: str, *, is_cluster: bool) -> None:
        self.is_cluster = is_cluster
        self._found = found
        self._where = where
        self._sites: dict[asyncio.AbstractEventLoop, Site] = {}
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

    def note_fault(self, request: Request, error: StoreError) -> None:
        """*error* was found inside the reply to *request*: connections to a replica are renewed."""
        site = self._sites.get(asyncio.get_running_loop())
        if site is not None:
            site.note_fault(request, error)

    async def aclose(self) -> None:
        """Drop all connections, of all loops that run. Requests from now on fail."""
        with self._lock:
            self._is_closed = True
            self._here = (None, self._refuse)
            sites, self._sites = self._sites, {}
        here = asyncio.get_running_loop()
        for loop, site in sites.items():
            if loop is here:
                await site.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(site.aclose(), loop)
                await asyncio.wrap_future(closing)

    def _enter(self) -> Callable[[Request], None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_closed:
                return self._refuse
            self._sites = {one: site for one, site in self._sites.items() if not one.is_closed()}
            site = self._sites.get(loop)
            if site is None:
                site = self._sites[loop] = self._found()
            self._here = (loop, site.submit)
            return site.submit

    def _refuse(self, request: Request) -> None:
        asyncio.get_running_loop().call_soon(request.failed, faults.closed(self._where))
