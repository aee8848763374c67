"""From a store URL to a transport. Opening does no I/O: the first request connects."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.stores.redis import errors
from headgate.stores.redis.cluster import (
    MOST_DETOURS,
    ClusterConnections,
    ClusterTransport,
    Failure,
    action_for,
)
from headgate.stores.redis.connect import dialer_for
from headgate.stores.redis.pool import ConnectionPool, ReconnectingConnection
from headgate.stores.redis.request import AsyncTransport, Request, Transport
from headgate.stores.redis.url import RedisURL, parse_redis_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from headgate.stores.redis.connection import AsyncConnection, BlockingConnection, InFlight

_ReplyError: Final = hiredis.ReplyError
_CLOSE_SECONDS: Final = 1.0  # that another loop may take to close its connections


def open_transport(url: str) -> Transport:
    """Return a transport for callers that may block; `StoreURLError` if *url* is malformed."""
    read = parse_redis_url(url)
    return ClusterTransport(read) if read.is_cluster else StandaloneTransport(read)


def open_async_transport(url: str) -> AsyncTransport:
    """Return a transport for event loops."""
    read = parse_redis_url(url)
    kind = ClusterConnections if read.is_cluster else StandaloneConnections
    return LoopTransport(lambda: kind(read), str(read), is_cluster=read.is_cluster)


class StandaloneTransport(Transport):
    """Blocking requests to one server, or to the primary that Sentinels name."""

    is_cluster = False

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._is_closed = False
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin with an empty pool, in a new transport or a forked process."""
        self._pool = ConnectionPool(dialer_for(self._url), str(self._url), self._url)
        if self._is_closed:
            self._pool.close()

    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        if not requests:
            return
        pool = self._pool
        try:
            connection, deadline = pool.acquire(deadline or time.monotonic() + self._url.timeout)
        except StoreError as error:
            errors.fail_all(requests, errors.unsent(error))
            return
        try:
            is_stale = self._exchange(connection, requests, deadline)
        except BaseException:
            pool.drop(connection)
            raise
        if is_stale is None:
            pool.drop(connection)
            pool.renew()  # the other connections have likely failed too
        else:
            pool.release(connection)
            if is_stale:
                pool.renew()

    def connecting_until(self, key: bytes) -> float:
        return self._pool.connecting_until

    def close(self) -> None:
        self._is_closed = True
        self._pool.close()

    def _exchange(
        self, connection: BlockingConnection, requests: Sequence[Request], deadline: float
    ) -> bool | None:
        """Send *requests*, and once more with its text those whose script is unknown.

        These were not carried out, so they have the timeout once more.
        Each request is answered or has failed afterwards. Returns True if the server is a replica,
        None if the connection cannot be used any more.
        """
        packed = [request.packed() for request in requests]
        is_stale, detours = False, 0
        while True:
            try:
                connection.send(packed[0] if len(packed) == 1 else b"".join(packed), deadline)
                replies = connection.receive(len(packed), deadline)
            except errors.DRIVER_ERRORS as error:
                errors.fail_all(requests, self._loss(error, connection))
                return None
            unknown: list[Request] = []
            for request, reply in zip(requests, replies, strict=True):
                if reply.__class__ is not _ReplyError:
                    errors.deliver(request, reply, connection.where)
                    continue
                action = action_for(str(reply), connection.where, detours)
                if isinstance(action, Failure):
                    is_stale = is_stale or action.is_stale
                    request.failed(action.error)
                else:
                    unknown.append(request)
            if not unknown:
                return is_stale
            detours, deadline = MOST_DETOURS, time.monotonic() + self._url.timeout
            requests, packed = unknown, [request.packed_whole() for request in unknown]

    def _loss(self, error: BaseException, connection: BlockingConnection) -> StoreError:
        if self._is_closed:
            return errors.closed(str(self._url), is_undone=False)
        return errors.loss(error, connection.where, self._url.timeout)


class LoopConnections(Protocol):
    """The connections of one event loop."""

    def submit(self, request: Request) -> None:
        """Send *request*."""

    def owner_of(self, slot: int) -> str:
        """Return the owner of *slot*, as `AsyncTransport.owner_of` does."""

    async def aclose(self) -> None:
        """Drop all connections."""


class StandaloneConnections:
    """The one connection of an event loop to one server, or to the primary of Sentinels."""

    def __init__(self, url: RedisURL) -> None:
        self._timeout = url.timeout
        self._link = ReconnectingConnection(dialer_for(url), self._on_error_reply, str(url), url)
        self.submit = self._link.submit
        self.aclose = self._link.aclose

    def owner_of(self, slot: int) -> str:
        """Return "": there are no slots."""
        return ""

    def _on_error_reply(
        self, link: ReconnectingConnection, via: AsyncConnection, pending: InFlight, text: str
    ) -> None:
        request, _, detours = pending
        action = action_for(text, via.where, detours)
        if not isinstance(action, Failure):
            deadline = time.monotonic() + self._timeout
            via.forward((request, deadline, MOST_DETOURS), request.packed_whole())
            return
        request.failed(action.error)
        if action.is_stale:
            link.renew()


class _LoopEntry:
    """The connections of a loop, closed with it if they are not closed before.

    A loop that ends, as `asyncio.run` ends it, closes the asynchronous generators that were begun
    in it (`shutdown_asyncgens`), and a generator that is collected is closed in its loop.
    """

    def __init__(self, connections: LoopConnections) -> None:
        self.connections = connections
        self._guard = _closing_with_loop(connections)
        with suppress(StopIteration):
            self._guard.__anext__().send(None)

    async def aclose(self) -> None:
        await self._guard.aclose()


async def _closing_with_loop(connections: LoopConnections) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await connections.aclose()


class LoopTransport(AsyncTransport):
    """Requests of several event loops, each with the connections that *connect* makes for it.

    Loops may run in different threads. The entry of a closed loop is forgotten.
    """

    def __init__(
        self, connect: Callable[[], LoopConnections], where: str, *, is_cluster: bool
    ) -> None:
        self.is_cluster = is_cluster
        self._connect = connect
        self._where = where
        self._entries: dict[asyncio.AbstractEventLoop, _LoopEntry] = {}
        self._is_closed = False
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin without a current loop, in a new transport or a forked process."""
        self._lock = threading.Lock()
        # One tuple, so that another thread cannot come between the two.
        self._current: tuple[object, Callable[[Request], None]] = (None, self._fail)

    def submit(self, request: Request) -> None:
        loop, submit = self._current
        if loop is not asyncio.get_running_loop():
            submit = self._enter()
        submit(request)

    def owner_of(self, slot: int) -> str:
        try:
            entry = self._entries.get(asyncio.get_running_loop())
        except RuntimeError:  # this thread has no loop
            return ""
        return "" if entry is None else entry.connections.owner_of(slot)

    async def aclose(self) -> None:
        with self._lock:
            self._is_closed = True
            self._current = (None, self._fail)
            entries, self._entries = self._entries, {}
        here = asyncio.get_running_loop()
        for loop, entry in entries.items():
            if loop is here:
                await entry.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(entry.aclose(), loop)
                with suppress(TimeoutError):  # a loop that stops meanwhile closes its own
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSE_SECONDS)

    def _enter(self) -> Callable[[Request], None]:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._is_closed:
                return self._fail
            self._entries = {one: e for one, e in self._entries.items() if not one.is_closed()}
            entry = self._entries.get(loop)
            if entry is None:
                entry = self._entries[loop] = _LoopEntry(self._connect())
            self._current = (loop, entry.connections.submit)
            return entry.connections.submit

    def _fail(self, request: Request) -> None:
        asyncio.get_running_loop().call_soon(request.failed, errors.closed(self._where))
