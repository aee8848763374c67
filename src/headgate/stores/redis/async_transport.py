"""Requests of event loops: a connection of each loop to each server, and the way to the right one.

A connection opens when it is needed and again after it is lost, one attempt at a time. When an
attempt fails, the requests that wait for it fail too, and so does every request until a pause is
over, which grows with each failure. The timeout of a request begins when its connection is open.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.runtime.drivers import adrive
from headgate.stores.redis import errors
from headgate.stores.redis.cluster import Attempt, Failure, Nodes, pause
from headgate.stores.redis.connection import Backoff, Endpoint, dial_server, dialer_for
from headgate.stores.redis.naming import slot_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from headgate.server_urls import Address
    from headgate.stores.redis.cluster import SlotMap
    from headgate.stores.redis.connection import AsyncConnection, Dialer, InFlight
    from headgate.stores.redis.requests import Request
    from headgate.stores.redis.url import RedisURL

_CLOSE_SECONDS: Final = 1.0  # that another loop may take to close its connections
_monotonic: Final = time.monotonic


class ReconnectingConnection:
    """Requests to one server in one event loop, in their order.

    It is used in the thread of its loop. *owner* is notified of error replies and lost connections.
    *address* is that by which the owner knows it, *where* its name in messages.
    """

    def __init__(
        self, dialer: Dialer, url: RedisURL, owner: LoopConnections, address: Address, where: str
    ) -> None:
        self.where = where
        self.address = address
        self._dialer = dialer
        self._owner = owner
        self._timeout, self._connect_timeout = url.timeout, url.connect_timeout
        self._loop = asyncio.get_running_loop()
        self._connection: AsyncConnection | None = None
        self._connections: list[AsyncConnection] = []
        self._waiting: deque[Attempt] = deque()
        self._attempt: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._is_closed = False

    def submit(self, request: Request) -> None:
        """Send *request* now, or as soon as there is a connection."""
        connection = self._connection
        if connection is not None:
            connection.send(request)
        else:
            self._wait(Attempt(request))

    def forward(self, one: Attempt, deadline: float) -> None:
        """Send a request until *deadline*."""
        if self._connection is None:
            self._wait(one)
        elif deadline <= _monotonic():
            self._fail_soon(one.request, errors.too_late(self.where, self._timeout))
        else:
            pending = one.request, deadline, one.detours
            self._connection.forward(pending, one.packed(), asking=one.asking)

    def _wait(self, one: Attempt) -> None:
        if self._attempt is None:
            error = self._unavailable()
            if error is not None:
                self._fail_soon(one.request, error)
                self._owner.request_map()
                return
            self._attempt = self._loop.create_task(self._connect())
        self._waiting.append(one)

    def _fail_soon(self, request: Request, error: StoreError) -> None:
        # Later: the caller may not be ready for it.
        self._loop.call_soon(request.failed, errors.unsent(error))

    def renew(self) -> None:
        """Stop using the connection: the server has changed its role."""
        if self._connection is not None:
            self._connection.retire()
            self._connection = None

    def error_reply(self, connection: AsyncConnection, pending: InFlight, text: str) -> None:
        """Handle a request that the server answered with an error."""
        self._owner.error_reply(self, connection.where, pending, text)

    def lost(self, connection: AsyncConnection) -> None:
        """Stop using *connection*."""
        if self._connection is connection:
            self._connection = None
            self._owner.request_map()

    @property
    def is_idle(self) -> bool:
        """True if it holds nothing: no connection and no request."""
        is_waiting = self._attempt is not None or self._waiting
        return not is_waiting and all(one.is_closed for one in self._connections)

    async def aclose(self) -> None:
        """Drop all connections, and fail what is in flight."""
        self._is_closed = True
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)
        self._fail_waiting(errors.closed(self.where))
        for connection in self._connections:
            connection.end(errors.closed(self.where, is_undone=False))
            await connection.wait_closed()

    def _unavailable(self) -> StoreError | None:
        if self._is_closed:
            return errors.closed(self.where)
        return self._backoff.pause_error(_monotonic())

    async def _connect(self) -> None:
        until = _monotonic() + self._connect_timeout
        try:
            connection: AsyncConnection = await adrive(self._dialer(until))
        except StoreError as error:
            self._give_up(error)
        except asyncio.CancelledError:  # this object is closed, or the loop
            self._attempt = None
            self._fail_waiting(errors.closed(self.where))
            raise
        except Exception as error:
            self._give_up(errors.fault(error, self.where))  # no caller may wait without end
            raise
        else:
            self._serve(connection)

    def _serve(self, connection: AsyncConnection) -> None:
        if connection.has_ended:  # the server closed it after the greeting
            self._give_up(errors.broken(connection.where))
            return
        self._backoff.succeeded()
        self._attempt = None
        self._connection = connection
        self._connections = [connection, *(one for one in self._connections if not one.is_closed)]
        connection.serve(self)
        deadline = _monotonic() + self._timeout
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            self.forward(one, deadline)

    def _give_up(self, error: StoreError) -> None:
        self._backoff.failed(error, _monotonic())
        self._attempt = None
        self._fail_waiting(error)
        self._owner.request_map()

    def _fail_waiting(self, error: StoreError) -> None:
        waiting, self._waiting = self._waiting, deque()
        errors.fail_all((one.request for one in waiting), errors.unsent(error))


class LoopConnections:
    """The connections of one event loop to the servers that *url* names."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        self.nodes = Nodes(url)
        self._servers: dict[Address, ReconnectingConnection] = {}
        self._waiting: list[Attempt] = []  # for the map
        self._fetching: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._is_closed = False
        if not url.is_cluster:
            address = url.addresses[0]
            server = ReconnectingConnection(dialer_for(url), url, self, address, str(url))
            self._servers[address] = server
            self.submit = server.submit  # type: ignore[method-assign]

    def submit(self, request: Request) -> None:
        """Send *request* to the node that owns its slot."""
        address = self.nodes.owners[slot_of(request.key)]
        server = None if address is None else self._servers.get(address)
        if server is not None:
            server.submit(request)
        else:
            self._route(Attempt(request), _monotonic() + self._url.timeout)

    async def aclose(self) -> None:
        """Drop all connections, and fail what is in flight."""
        self._is_closed = True
        if self._later is not None:
            self._later.cancel()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        waiting, self._waiting = self._waiting, []
        errors.fail_all((one.request for one in waiting), errors.closed(str(self._url)))
        for server in list(self._servers.values()):
            await server.aclose()

    def _route(self, one: Attempt, deadline: float) -> None:
        """Send a request until *deadline*, or as soon as the map is known."""
        slot = 0 if one.target else slot_of(one.request.key)
        address = one.target or self.nodes.owners[slot]
        if address is not None:
            self._server_at(address).forward(one, deadline)
            return
        self.request_map()
        if self._fetching is not None:
            self._waiting.append(one)
            return
        error = self.nodes.unserved(slot, _monotonic())
        self._loop.call_soon(
            one.request.failed, errors.closed(str(self._url)) if self._is_closed else error
        )

    def request_map(self) -> None:
        """Request the map if it is due and not requested yet; otherwise a little later."""
        nodes, now = self.nodes, _monotonic()
        nodes.is_stale = True
        if self._is_closed or self._fetching is not None or not self._url.is_cluster:
            return
        if nodes.is_due(now):
            nodes.begin(now)
            self._fetching = self._loop.create_task(self._fetch_map())
        elif self._later is None and (wait := nodes.spacing(now)):
            self._later = self._loop.call_later(wait, self._request_map_again)

    def _request_map_again(self) -> None:
        self._later = None
        if self.nodes.is_stale:
            self.request_map()

    async def _fetch_map(self) -> None:
        nodes, url = self.nodes, self._url
        error: StoreError | None = None
        try:
            found = await adrive(nodes.dial(_monotonic() + url.connect_timeout))
        except StoreError as caught:
            error = caught
            nodes.failed(error, _monotonic())
        else:
            nodes.learned(found)
            self._adopt(found)
        finally:
            self._fetching = None
        waiting, self._waiting = self._waiting, []
        now = _monotonic()
        for one in waiting:
            slot = slot_of(one.request.key)
            if nodes.owners[slot] is not None:
                self._route(one, now + url.timeout)
            else:
                one.request.failed(errors.unsent(error or nodes.unserved(slot, now)))

    def _adopt(self, found: SlotMap) -> None:
        known = {address for address in found if address is not None}
        for address in known:
            self._server_at(address)
        for address, server in list(self._servers.items()):
            if address not in known:
                server.renew()  # it closes when all that is in flight has been answered
                if server.is_idle:
                    del self._servers[address]

    def _server_at(self, address: Address) -> ReconnectingConnection:
        server = self._servers.get(address)
        if server is None:
            dialer = dial_server(Endpoint(self._url, address))
            server = ReconnectingConnection(dialer, self._url, self, address, str(address))
            self._servers[address] = server
        return server

    def error_reply(
        self, server: ReconnectingConnection, where: str, pending: InFlight, text: str
    ) -> None:
        """React to the error reply of *where* to the *pending* request, which *server* has sent."""
        request, deadline, detours = pending
        found = self.nodes.react(Attempt(request, None, detours), server.address, where, text)
        if isinstance(found, Failure):
            request.failed(found.error)
            if found.is_stale:
                server.renew()
                self.request_map()
            return
        for one in found:
            if one.waits:
                self._route_later(one, deadline, errors.store_error(text, where))
            else:  # the time to send the script's text begins now: nothing was executed
                fresh = _monotonic() + self._url.timeout
                self._route(one, fresh if one.is_whole else deadline)
        if self.nodes.is_stale:
            self.request_map()

    def _route_later(self, one: Attempt, deadline: float, error: StoreError) -> None:
        left = deadline - _monotonic()
        wait = pause(self._url.timeout, left)
        if wait < left:
            self._loop.call_later(wait, self._route, one, deadline)
        else:
            one.request.failed(error)


async def _closing_with_loop(connections: LoopConnections) -> AsyncGenerator[None, None]:
    """Close *connections* when this generator is closed, by its loop at the latest.

    A loop that ends, as `asyncio.run` ends it, closes the asynchronous generators that were begun
    in it (`shutdown_asyncgens`), and a generator that is collected is closed in its loop.
    """
    try:
        yield
    finally:
        await connections.aclose()


class _LoopEntry(NamedTuple):
    """The connections of a loop, and the generator that closes them."""

    connections: LoopConnections
    guard: AsyncGenerator[None, None]


class AsyncTransport:
    """Requests of several event loops, each with connections of its own.

    Loops may run in different threads. The entry of a closed loop is forgotten.
    """

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._entries: dict[asyncio.AbstractEventLoop, _LoopEntry] = {}
        self._is_closed = False
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin with a lock that is free, in a new transport or a forked process."""
        self._lock = threading.Lock()

    def submit(self, request: Request) -> None:
        """Send *request* now, if its server is connected, else as soon as it is.

        To be called in a running event loop, where `answered` or `failed` is called too, as soon
        as by `Transport.perform`. Requests for one server are executed in their order.
        """
        self.submitter()(request)

    def submitter(self) -> Callable[[Request], None]:
        """Return `submit` for the running event loop alone, which need not look for that."""
        loop = asyncio.get_running_loop()
        entry = self._entries.get(loop) or self._enter(loop)
        if entry is not None:
            return entry.connections.submit
        closed = errors.closed(str(self._url))
        return lambda request: cast("None", loop.call_soon(request.failed, closed))

    def owner_of(self, slot: int) -> str:
        """Return the owner of *slot* as far as is known in the running event loop; else ""."""
        try:
            entry = self._entries.get(asyncio.get_running_loop())
        except RuntimeError:  # this thread has no loop
            return ""
        return "" if entry is None else entry.connections.nodes.owner_of(slot)

    async def aclose(self) -> None:
        """Drop all connections. Requests from now on fail."""
        with self._lock:
            self._is_closed = True
            entries, self._entries = self._entries, {}
        here = asyncio.get_running_loop()
        for loop, entry in entries.items():
            if loop is here:
                await entry.guard.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_closed(entry), loop)
                with suppress(TimeoutError):  # a loop that stops meanwhile closes its own
                    await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSE_SECONDS)

    def _enter(self, loop: asyncio.AbstractEventLoop) -> _LoopEntry | None:
        """Return the new entry of *loop*; None if the transport is closed."""
        with self._lock:
            if self._is_closed:
                return None
            connections = LoopConnections(self._url)
            entry = _LoopEntry(connections, _closing_with_loop(connections))
            with suppress(StopIteration):
                entry.guard.__anext__().send(None)
            open_loops = {one: e for one, e in self._entries.items() if not one.is_closed()}
            self._entries = {**open_loops, loop: entry}
            return entry


async def _closed(entry: _LoopEntry) -> None:
    await entry.guard.aclose()
