"""Requests of threads: a pool of connections to each server, and the way to the right one.

A pool connects when that is needed, one attempt at a time. When an attempt fails, those that wait
for it fail too, and so does every caller until a pause has ended, which grows with each failure. A
call that has to connect, or waits while another one does, waits up to the connect timeout for that;
its own timeout begins when the connection is open.

Requests are executed in rounds: all that are to be sent are grouped by server, written to each
server in one write, and read back; what has to be sent again goes into the next round. Opening a
transport does no I/O.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.runtime.drivers import drive
from headgate.stores.redis import errors
from headgate.stores.redis.cluster import Attempt, Failure, Nodes, pause
from headgate.stores.redis.connection import Backoff, Endpoint, dial_server, dialer_for
from headgate.stores.redis.naming import slot_of
from headgate.stores.redis.requests import ASKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.server_urls import Address
    from headgate.stores.redis.connection import BlockingConnection, Dialer
    from headgate.stores.redis.requests import Request
    from headgate.stores.redis.url import RedisURL

_ReplyError: Final = hiredis.ReplyError
_monotonic: Final = time.monotonic


class ConnectionPool:
    """At most `connections` blocking connections to the server *where*, shared among threads."""

    def __init__(self, dialer: Dialer, where: str, url: RedisURL) -> None:
        self._dialer = dialer
        self._where = where
        self._most = url.connections
        self._timeout, self._connect_timeout = url.timeout, url.connect_timeout
        self._idle: deque[BlockingConnection] = deque()
        self._connections: set[BlockingConnection] = set()
        self._changed = threading.Condition()
        self._waiting = 0
        self._open = 0
        self._is_closed = False
        self._generation = 0
        self._backoff = Backoff()
        self.connecting_until = 0.0
        """The deadline of the attempt to connect that is in progress; 0.0 if none is."""

    def acquire(self, deadline: float) -> tuple[BlockingConnection, float]:
        """Return a connection for one's own, until `release` or `drop`, and the call's deadline.

        Call `acquire_idle` first, which takes no lock.

        The deadline is *deadline*, or the timeout from now on if the call waited for connecting.
        Raises `StoreError`.
        """
        while True:
            connection, deadline = self._acquire_slowly(deadline)
            if connection.is_usable(_monotonic()):
                return connection, deadline
            self.drop(connection)  # nothing was sent on it: open another

    def acquire_idle(self) -> BlockingConnection | None:
        """Return a connection that is open and not in use, if there is one; never wait."""
        while (connection := self._pop_idle()) is not None:
            if connection.is_usable(_monotonic()):
                break
            self.drop(connection)
        return connection

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
        error = self._backoff.pause_error(_monotonic())
        if error is None:
            return True
        if self._open:
            return False  # another thread's connection will do
        raise error

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
        try:
            connection = drive(self._dialer(until))
            connection.generation, connection.used_at = generation, _monotonic()
            self._backoff.succeeded()
        except StoreError as error:
            self._backoff.failed(error, _monotonic())
            raise
        finally:
            with self._changed:
                self.connecting_until = 0.0
                if connection is None:
                    self._open -= 1
                else:
                    self._connections.add(connection)
                self._changed.notify_all()
        return connection


_Sending = tuple["Address", "ConnectionPool", "BlockingConnection", list[Attempt]]
"""A server, a connection to it out of its pool, and the requests for it."""


class Transport:
    """Requests to one server, the primary of Sentinels, or a cluster. Safe to share by threads."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._is_cluster = url.is_cluster
        self._is_closed = False
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin without connections, locks and map, in a new transport or a forked process."""
        url = self._url
        self.nodes = Nodes(url)
        self._pools: dict[Address, ConnectionPool] = {}
        self._lock = threading.Lock()
        self._asking_for_map = threading.Lock()
        self._map_until = 0.0
        if not url.is_cluster:
            pool = ConnectionPool(dialer_for(url), str(url), url)
            self._pools[url.addresses[0]] = pool
            if self._is_closed:
                pool.close()

    def primaries(self) -> list[Address]:
        """Return the addresses of the primaries; one by which the primary of Sentinels is meant.

        Raises `StoreError` if no node of a cluster knows them.
        """
        if not self._is_cluster:
            return [self._url.addresses[0]]
        self._refresh(self.nodes, _monotonic() + self._url.timeout)
        found = sorted({one for one in self.nodes.owners if one is not None})
        if not found:
            raise self._unowned(0)
        return found

    def perform(
        self,
        requests: Sequence[Request],
        deadline: float | None = None,
        *,
        at: Address | None = None,
    ) -> None:
        """Send all *requests* and wait until each is answered or has failed.

        They are sent to the primary *at* an address, or else to the owners of their slots.

        Requests for one server are sent in one write and executed in their order. Returns at the
        *deadline* (monotonic seconds; the store's timeout from now on if there is none), whatever
        the server does. A call that has to connect has the connect timeout for that, and its full
        timeout afterwards.
        """
        if deadline is None:
            deadline = _monotonic() + self._url.timeout
        routed = [Attempt(request, at) for request in requests]
        while routed:
            nodes = self.nodes
            if self._is_cluster and (nodes.is_stale or not nodes.is_known):
                deadline = self._refresh(nodes, deadline)
            if _monotonic() >= deadline:
                self._fail(routed, errors.too_late(str(self._url), self._url.timeout))
                return
            routed, deadline = self._round(routed, deadline)
            if routed and any(one.is_whole for one in routed):  # nothing was executed
                deadline = _monotonic() + self._url.timeout
            if routed and any(one.waits for one in routed):
                routed = self._wait(routed, deadline)

    def connecting_until(self, key: bytes) -> float:
        """Return the deadline of connecting to the server of *key*; 0.0 if it is not in progress.

        A call that waits for it waits longer than its timeout.
        """
        address = self._owner(key)
        pool = None if address is None else self._pools.get(address)
        return max(self._map_until, 0.0 if pool is None else pool.connecting_until)

    def close(self) -> None:
        """Drop all connections. Requests from now on fail."""
        with self._lock:
            self._is_closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()

    def _refresh(self, nodes: Nodes, deadline: float) -> float:
        """Request the map if it is due and no other thread does; return the new deadline.

        The first map has the time of connecting; a later one is found within half the time left.
        """
        url = self._url
        is_first = not nodes.is_known  # then there is nothing to do but wait for it
        if not self._asking_for_map.acquire(timeout=url.connect_timeout if is_first else 0):
            return deadline
        try:
            now = _monotonic()
            if nodes.is_due(now) and not self._is_closed:
                nodes.begin(now)
                until = now + url.connect_timeout if is_first else now + (deadline - now) / 2
                self._map_until = until if is_first else 0.0
                nodes.learned(drive(nodes.dial(until)))
                self._forget(set(nodes.owners))
        except StoreError as error:
            nodes.failed(error, _monotonic())
        finally:
            self._map_until = 0.0
            self._asking_for_map.release()
        return _monotonic() + url.timeout if is_first else deadline

    def _forget(self, known: set[Address | None]) -> None:
        with self._lock:
            gone = [self._pools.pop(one) for one in list(self._pools) if one not in known]
        for pool in gone:
            pool.close()

    def _round(self, routed: list[Attempt], deadline: float) -> tuple[list[Attempt], float]:
        """Send *routed*, read the replies; return what to send again, and the new deadline.

        Servers that are connected come first: one that has to be connected to may hang, and take
        all the time there is. No thread waits for a connection while it holds one, or threads could
        wait for each other.
        """
        sending: list[_Sending] = []
        not_connected: list[tuple[Address, ConnectionPool, list[Attempt]]] = []
        for address, group in self._grouped(routed).items():
            pool = self._pool(address)
            connection = pool.acquire_idle()
            if connection is None:
                not_connected.append((address, pool, group))
            else:
                sending.append((address, pool, connection, group))
        again = self._exchange(sending, deadline)
        for address, pool, group in not_connected:
            try:
                connection, deadline = pool.acquire(deadline)
            except StoreError as error:
                self._fail(group, errors.unsent(error))
            else:
                again += self._exchange([(address, pool, connection, group)], deadline)
        return again, deadline

    def _grouped(self, routed: list[Attempt]) -> dict[Address, list[Attempt]]:
        """Return the requests of each server; fail those that none serves."""
        if not self._is_cluster:
            return {self._url.addresses[0]: routed}
        groups: dict[Address, list[Attempt]] = {}
        for one in routed:
            address = one.target or self._owner(one.request.key)
            if address is None:
                one.request.failed(self._unowned(slot_of(one.request.key)))
            else:
                asking = [Attempt(ASKING)] if one.asking else []
                groups.setdefault(address, []).extend((*asking, one))
        return groups

    def _exchange(self, sending: list[_Sending], deadline: float) -> list[Attempt]:
        """Send to all servers before reading from any; return what to send again."""
        again: list[Attempt] = []
        done = 0
        try:
            lost = [
                _caught(connection.send, b"".join([one.packed() for one in group]), deadline)
                for _, _, connection, group in sending
            ]
            for (address, pool, connection, group), error in zip(sending, lost, strict=True):
                replies = error or _caught(connection.receive, len(group), deadline)
                done += 1
                if isinstance(replies, Exception):
                    pool.drop(connection)
                    pool.renew()  # the other connections have likely failed too
                    self._fail(group, self._loss(replies, connection))
                    continue
                pool.release(connection)
                for one, reply in zip(group, replies, strict=True):
                    if reply.__class__ is _ReplyError:
                        again += self._react(address, connection.where, one, str(reply))
                    else:
                        errors.deliver(one.request, reply, connection.where)
        except BaseException:
            for _, pool, connection, _ in sending[done:]:
                pool.drop(connection)
            raise
        return again

    def _owner(self, key: bytes) -> Address | None:
        if not self._is_cluster:
            return self._url.addresses[0]
        return None if self._is_closed else self.nodes.owners[slot_of(key)]

    def _unowned(self, slot: int) -> StoreError:
        if self._is_closed:
            return errors.closed(str(self._url))
        self.nodes.is_stale = True
        return self.nodes.unserved(slot, _monotonic())

    def _react(self, address: Address, where: str, sent: Attempt, text: str) -> Sequence[Attempt]:
        """React to an error reply: fail the request, or return what to send instead."""
        found = self.nodes.react(sent, address, where, text)
        if not isinstance(found, Failure):
            return found
        sent.request.failed(found.error)
        if found.is_stale:
            self._pool(address).renew()
            self.nodes.is_stale = True
        return ()

    def _wait(self, routed: Sequence[Attempt], deadline: float) -> list[Attempt]:
        """Wait a little after TRYAGAIN, or give up those that would be too late."""
        left = max(deadline - _monotonic(), 0.0)
        wait = pause(self._url.timeout, left)
        if wait < left:
            time.sleep(wait)
            return [replace(one, waits=False) for one in routed]
        error = errors.store_error("TRYAGAIN", str(self._url))
        errors.fail_all((one.request for one in routed if one.waits), error)
        return [one for one in routed if not one.waits]

    def _loss(self, error: BaseException, connection: BlockingConnection) -> StoreError:
        if self._is_closed:
            return errors.closed(str(self._url), is_undone=False)
        return errors.loss(error, connection.where, self._url.timeout)

    def _fail(self, group: Iterable[Attempt], error: StoreError) -> None:
        self.nodes.is_stale = True
        errors.fail_all((one.request for one in group), error)

    def _pool(self, address: Address) -> ConnectionPool:
        pool = self._pools.get(address)
        if pool is None:
            with self._lock:
                dialer = dial_server(Endpoint(self._url, address))
                new = ConnectionPool(dialer, str(address), self._url)
                pool = self._pools.setdefault(address, new)
                if self._is_closed:
                    pool.close()
        return pool


def _caught(call: Callable[..., Any], *args: object) -> Any:
    """Return the result of *call*, or the error of the driver that it raised."""
    try:
        return call(*args)
    except errors.DRIVER_ERRORS as error:
        return error
