"""The connections to one server: a pool for threads, one connection that comes back for a loop.

Both connect when they are needed, one attempt at a time. When an attempt fails, those who wait for
it fail too, and so does every caller until a pause is over, which grows with each failure.

A call that has to connect, or waits while another one does, waits up to the connect timeout for
that; its own timeout begins when the connection is there.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from threading import Condition
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headgate.errors import StoreError
from headgate.runtime.drivers import adrive, drive
from headgate.stores.redis import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.redis.connect import Dialer
    from headgate.stores.redis.connection import AsyncConnection, BlockingConnection, InFlight
    from headgate.stores.redis.request import Request
    from headgate.stores.redis.url import RedisURL

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0
_monotonic: Final = time.monotonic


class Backoff:
    """Pauses between attempts to connect that double from 50 ms to 1 s, with full jitter.

    So a dead server sees few attempts, and a fleet does not come back in step. *chance* gives
    numbers from 0 to 1. Times are seconds of a monotonic clock.
    """

    __slots__ = ("_chance", "_error", "_failures", "_until")

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._failures = 0
        self._until = 0.0
        self._error: StoreError | None = None

    def failed(self, error: StoreError, now: float) -> None:
        """Begin a pause at *now*, longer than the last."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self._until = now + longest * self._chance()
        self._error = error

    def succeeded(self) -> None:
        """Forget the failures."""
        self._failures, self._until, self._error = 0, 0.0, None

    def refusal(self, now: float) -> StoreError | None:
        """Return the last error during a pause, with the time of the next attempt; else None."""
        if self._error is None or now >= self._until:
            return None
        wait_ms = (self._until - now) * 1_000
        return StoreError(
            f"{self._error} (the next attempt is in {wait_ms:.0f} ms)",
            reason=self._error.reason,
            is_undone=True,
        )


class ConnectionPool:
    """At most `connections` blocking connections to the server *where*, shared among threads."""

    def __init__(self, dialer: Dialer, where: str, url: RedisURL) -> None:
        self._dialer = dialer
        self._where = where
        self._most = url.options.connections
        self._timeout, self._connect_timeout = url.timeout, url.connect_timeout
        self._idle: deque[BlockingConnection] = deque()
        self._connections: set[BlockingConnection] = set()
        self._changed = Condition()
        self._waiting = 0
        self._open = 0
        self._is_closed = False
        self._generation = 0
        self._backoff = Backoff()
        self.connecting_until = 0.0
        """When the attempt to connect that is in progress ends at the latest; 0.0 if none is."""

    def acquire(self, deadline: float) -> tuple[BlockingConnection, float]:
        """Return a connection for one's own, until `release` or `drop`, and the call's deadline.

        The deadline is *deadline*, or the timeout from now on if the call waited for connecting.
        Raises `StoreError`.
        """
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection, deadline = self._acquire_slowly(deadline)
            if connection.is_usable(_monotonic()):
                return connection, deadline
            self.drop(connection)  # nothing was sent on it: open another

    def acquire_idle(self) -> BlockingConnection | None:
        """Return a connection that is open and not in use, if there is one; never wait."""
        while (connection := self._pop_idle()) is not None:
            if connection.is_usable(_monotonic()):
                return connection
            self.drop(connection)
        return None

    def release(self, connection: BlockingConnection) -> None:
        """Put *connection* aside for the next caller."""
        connection.used_at = _monotonic()
        if self._is_closed or connection.generation != self._generation:
            self.drop(connection)
            return
        self._idle.append(connection)
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._is_closed:  # in this very moment
            self._drop_idle()

    def drop(self, connection: BlockingConnection) -> None:
        """Close *connection*, which cannot be used any more."""
        connection.close()
        with self._changed:
            self._connections.discard(connection)
            self._open -= 1
            self._changed.notify_all()

    def renew(self) -> None:
        """Use none of the open connections again: the server has failed or changed its role."""
        self._generation += 1
        self._drop_idle()

    def close(self) -> None:
        """Drop all connections; wake those who wait for a reply."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            connections = list(self._connections)
        self._drop_idle()
        for connection in connections:
            connection.interrupt()

    def _drop_idle(self) -> None:
        while (connection := self._pop_idle()) is not None:
            self.drop(connection)

    def _pop_idle(self) -> BlockingConnection | None:
        try:
            return self._idle.pop()  # others do so without the lock
        except IndexError:
            return None

    def _acquire_slowly(self, deadline: float) -> tuple[BlockingConnection, float]:
        connect_until = 0.0
        with self._changed:
            self._waiting += 1
            try:
                while not self._may_dial():
                    if (connection := self._pop_idle()) is not None:
                        return connection, deadline
                    now = _monotonic()
                    if self.connecting_until:
                        connect_until = connect_until or now + self._connect_timeout
                        is_changed = self._changed.wait(max(connect_until - now, 0.0))
                        deadline = max(deadline, _monotonic() + self._timeout)
                    else:
                        is_changed = self._changed.wait(max(deadline - now, 0.0))
                    if not is_changed:
                        raise self._out_of_time()
                connect_until = connect_until or _monotonic() + self._connect_timeout
                self.connecting_until = connect_until
                self._open += 1
            finally:
                self._waiting -= 1
        connection = self._connect(connect_until)
        return connection, _monotonic() + self._timeout

    def _may_dial(self) -> bool:
        """Return True if this thread is to connect; raise if there is nothing to wait for."""
        if self._is_closed:
            raise errors.closed(self._where)
        if self._idle or self.connecting_until or self._open >= self._most:
            return False
        refusal = self._backoff.refusal(_monotonic())
        if refusal is None:
            return True
        if self._open:
            return False  # another thread's connection will do
        raise refusal

    def _out_of_time(self) -> StoreError:
        if self._is_closed:
            return errors.closed(self._where)
        if self.connecting_until:
            text = f"no connection to {self._where} within {self._connect_timeout:g} s"
        else:
            text = (
                f"all {self._open} connections to {self._where} were in use for "
                f"{self._timeout:g} s; nothing was sent (the option connections allows more)"
            )
        return StoreError(text, reason="timeout", is_undone=True)

    def _connect(self, until: float) -> BlockingConnection:
        generation = self._generation
        connection: BlockingConnection | None = None
        error: StoreError | None = None
        try:
            connection = drive(self._dialer(until))
            connection.generation, connection.used_at = generation, _monotonic()
        except StoreError as caught:
            error = caught
            raise
        finally:
            with self._changed:
                self.connecting_until = 0.0
                if connection is None:
                    self._open -= 1
                else:
                    self._connections.add(connection)
                    self._backoff.succeeded()
                if error is not None:
                    self._backoff.failed(error, _monotonic())
                self._changed.notify_all()
        return connection


class ErrorHandler(Protocol):
    """Decides what to do with a request that was answered with an error."""

    def __call__(
        self, link: ReconnectingConnection, via: AsyncConnection, pending: InFlight, text: str
    ) -> None: ...


class _Waiting(NamedTuple):
    request: Request
    packed: bytes
    detours: int
    asking: bool


class ReconnectingConnection:
    """Requests to one server in one event loop, in their order.

    It is used in the thread of its loop. *on_trouble* is called when the server could not be
    reached, or its connection broke.
    """

    def __init__(
        self,
        dialer: Dialer,
        on_error_reply: ErrorHandler,
        where: str,
        url: RedisURL,
        *,
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        self.where = where
        self._dialer = dialer
        self._on_error_reply = on_error_reply
        self._on_trouble = on_trouble
        self._timeout, self._connect_timeout = url.timeout, url.connect_timeout
        self._loop = asyncio.get_running_loop()
        self._connection: AsyncConnection | None = None
        self._connections: list[AsyncConnection] = []
        self._waiting: deque[_Waiting] = deque()
        self._attempt: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self._is_closed = False

    def submit(self, request: Request) -> None:
        """Send *request* now, or as soon as there is a connection."""
        connection = self._connection
        if connection is not None:
            connection.send(request)
        else:
            self._wait(_Waiting(request, request.packed(), 0, asking=False))

    def forward(self, pending: InFlight, packed: bytes, *, asking: bool = False) -> None:
        """Send a request that has been sent before; after ASKING if it was redirected by ASK."""
        request, deadline, detours = pending
        if self._connection is None:
            self._wait(_Waiting(request, packed, detours, asking))
        elif deadline <= _monotonic():
            self._fail_soon(request, errors.too_late(self.where, self._timeout))
        else:
            self._connection.forward(pending, packed, asking=asking)

    def _wait(self, one: _Waiting) -> None:
        if self._attempt is None:
            refusal = self._refusal()
            if refusal is not None:
                self._fail_soon(one.request, refusal)
                self._on_trouble()
                return
            self._attempt = self._loop.create_task(self._connect())
        self._waiting.append(one)

    def _fail_soon(self, request: Request, error: StoreError) -> None:
        # Not from here: the caller may not be ready for it.
        self._loop.call_soon(request.failed, errors.unsent(error))

    def renew(self) -> None:
        """Use this connection no more: the server has changed its role."""
        if self._connection is not None:
            self._connection.retire()
            self._connection = None

    def error_reply(self, connection: AsyncConnection, pending: InFlight, text: str) -> None:
        """Handle a request that the server answered with an error."""
        self._on_error_reply(self, connection, pending, text)

    def lost(self, connection: AsyncConnection) -> None:
        """Stop using *connection*."""
        if self._connection is connection:
            self._connection = None
            self._on_trouble()

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

    def _refusal(self) -> StoreError | None:
        if self._is_closed:
            return errors.closed(self.where)
        return self._backoff.refusal(_monotonic())

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
            self._give_up(errors.fault(error, self.where))  # no caller may wait for ever
            raise
        else:
            self._serve(connection)

    def _serve(self, connection: AsyncConnection) -> None:
        if connection.is_over:  # the server closed it after the greeting
            self._give_up(errors.broken(connection.where))
            return
        self._backoff.succeeded()
        self._attempt = None
        self._connection = connection
        self._connections = [connection, *(one for one in self._connections if not one.is_closed)]
        connection.serve(self)
        deadline = _monotonic() + self._timeout
        waiting, self._waiting = self._waiting, deque()
        for request, packed, detours, asking in waiting:
            self.forward((request, deadline, detours), packed, asking=asking)

    def _give_up(self, error: StoreError) -> None:
        self._backoff.failed(error, _monotonic())
        self._attempt = None
        self._fail_waiting(error)
        self._on_trouble()

    def _fail_waiting(self, error: StoreError) -> None:
        waiting, self._waiting = self._waiting, deque()
        errors.fail_all((one.request for one in waiting), errors.unsent(error))
