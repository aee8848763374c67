"""Names of servers, looked up before the deadline or not at all.

The system's resolver knows no deadline: one that hangs would hold up the thread that connects for
as long as it likes, and in an event loop use up the threads of its executor, which are for all. So
a name is looked up first in a thread of our own, one for each name at a time, for which callers
wait no longer than they may. What is found is not kept: whoever connects looks it up again, which a
resolver that has just answered answers at once.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from headgate.stores.redis.forking import watch_forks

if TYPE_CHECKING:
    from collections.abc import Callable

    Wakers = list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]


class Lookup:
    """One that is under way: who waits for it, and what came of it."""

    __slots__ = ("done", "error", "waking")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: OSError | None = None
        self.waking: Wakers = []


class Resolver:
    """Looks names up with *look_up*. Safe to share among threads and event loops."""

    def __init__(self, look_up: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self.begin_anew()
        watch_forks(self)

    def begin_anew(self) -> None:
        """At first and after a fork: nothing is under way."""
        self._lock = threading.Lock()
        self._under_way: dict[str, Lookup] = {}

    def wait(self, host: str, deadline: float) -> None:
        """Until *host* is found; `TimeoutError` at *deadline* (monotonic), or what went wrong."""
        if is_address(host):
            return
        lookup, _ = self._join(host)
        if not lookup.done.wait(max(deadline - time.monotonic(), 0)):
            raise TimeoutError(f"the name {host} was not found in time")
        if lookup.error is not None:
            raise _copied(lookup.error)

    async def wait_in_loop(self, host: str) -> None:
        """The same in an event loop. The caller sets the deadline, by cancelling."""
        if is_address(host):
            return
        loop = asyncio.get_running_loop()
        lookup, waking = self._join(host, loop)
        if waking is not None:
            await waking
        if lookup.error is not None:
            raise _copied(lookup.error)

    def _join(
        self, host: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> tuple[Lookup, asyncio.Future[None] | None]:
        waking = None if loop is None else loop.create_future()
        with self._lock:
            lookup = self._under_way.get(host)
            is_new = lookup is None
            if lookup is None:
                lookup = self._under_way[host] = Lookup()
            if loop is not None and waking is not None:
                left = [one for one in lookup.waking if not one[1].done()]  # others gave up
                lookup.waking = [*left, (loop, waking)]
        if is_new:
            threading.Thread(
                target=self._find, args=(host, lookup), name="headgate-names", daemon=True
            ).start()
        return lookup, waking

    def _find(self, host: str, lookup: Lookup) -> None:
        try:
            self._look_up(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            lookup.error = error
        except UnicodeError as error:  # a name that cannot be one
            lookup.error = OSError(str(error))
        finally:
            with self._lock:
                if self._under_way.get(host) is lookup:
                    del self._under_way[host]
                waking = list(lookup.waking)
            lookup.done.set()
            for loop, waiter in waking:
                with suppress(RuntimeError):  # the loop is closed by now
                    loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _copied(error: OSError) -> OSError:
    return type(error)(*error.args)


@lru_cache(maxsize=256)
def is_address(host: str) -> bool:
    """Whether *host* need not be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


RESOLVER: Final = Resolver()
"""That of this process."""
