"""Connections to one server, opened by redis-py and greeted in one round trip.

redis-py resolves names, opens the socket and does TLS. What is said first (AUTH, CLIENT SETNAME,
SELECT, and a question of the caller's) goes out in one write of ours, so that connecting costs one
round trip and keeps a deadline as a whole; redis-py would wait for each answer in turn, each with a
timeout of its own. Nothing is retried.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import hiredis
from redis import asyncio as aio
from redis import connection as blocking
from redis.asyncio import connection as aio_parts
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from headgate.fork import watch_forks
from headgate.stores.redis import errors
from headgate.stores.redis.transport import raw_socket
from headgate.stores.redis.transport.blocking_connection import lane_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.server_urls import Address
    from headgate.stores.redis.request import Reply
    from headgate.stores.redis.url import RedisURL, TLSFiles


# Names of servers, looked up before the deadline or not at all.
#
# The system's resolver knows no deadline: one that hangs would hold up the thread that connects for
# as long as it likes, and in an event loop use up the threads of its executor, which are for all.
# So a name is looked up first in a thread of our own, one for each name at a time, for which
# callers wait no longer than they may. What is found is not kept: whoever connects looks it up
# again, which a resolver that has just answered answers at once.


if TYPE_CHECKING:
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
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
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


NAME: Final = "headgate"
_DISPENSABLE: Final = (
    "CLIENT",
    "ROLE",
)  # a name is a courtesy; the role may be none of our business
_NOT_FOR_US: Final = ("NOPERM ", "ERR unknown ")
_LEAST: Final = 0.001  # a timeout of 0 would mean "do not block"


@dataclass(frozen=True, slots=True)
class Door:
    """A server, and how to get in."""

    address: Address
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    tls: TLSFiles | None = None

    def __str__(self) -> str:
        return str(self.address)

    def greeting(self) -> list[tuple[str, ...]]:
        """The commands that begin a connection."""
        auth: list[tuple[str, ...]] = []
        if self.password is not None:
            auth = [("AUTH", *([self.username] if self.username else []), self.password)]
        select = [("SELECT", str(self.db))] if self.db else []
        return [*auth, ("CLIENT", "SETNAME", NAME), *select]


def door_to(url: RedisURL, address: Address) -> Door:
    """The way into a server or a node of *url*."""
    return Door(address, url.username, url.password, url.db, url.tls)


def door_to_sentinel(url: RedisURL, address: Address) -> Door:
    """The way into one of the Sentinels of *url*, which have credentials of their own."""
    options = url.options
    return Door(address, options.sentinel_username, options.sentinel_password, 0, url.tls)


class _Verbatim:
    """A mixin for redis-py's parsers: error replies are values, with the server's own words."""

    @classmethod
    def parse_error(cls, response: str) -> hiredis.ReplyError:
        return hiredis.ReplyError(response)


class _Parser(_Verbatim, blocking.DefaultParser):  # type: ignore[misc, valid-type]
    pass


class _AsyncParser(_Verbatim, aio_parts.DefaultParser):  # type: ignore[misc, valid-type]
    pass


class _Hurried:
    """A mixin for redis-py's blocking connections: one deadline for all steps of connecting."""

    deadline = 0.0

    @property
    def socket_timeout(self) -> float:
        return max(self.deadline - time.monotonic(), _LEAST)

    @socket_timeout.setter
    def socket_timeout(self, value: float | None) -> None:
        """What redis-py says is not asked."""

    socket_connect_timeout = socket_timeout


class _Connection(_Hurried, blocking.Connection):  # type: ignore[misc]
    pass


class _TLSConnection(_Hurried, blocking.SSLConnection):  # type: ignore[misc]
    pass


class _UnixConnection(_Hurried, blocking.UnixDomainSocketConnection):  # type: ignore[misc]
    pass


def _arguments(door: Door) -> dict[str, Any]:
    """What redis-py's connections need to know of *door*; we give the credentials ourselves."""
    common: dict[str, Any] = {
        "protocol": 2,
        "driver_info": None,
        "retry_on_timeout": False,
        "retry_on_error": [],
        "health_check_interval": 0,
        "maint_notifications_config": None,
    }
    if not door.address.port:
        return {**common, "path": door.address.host}
    place = {"host": door.address.host, "port": door.address.port, "socket_keepalive": True}
    if door.tls is None:
        return {**common, **place}
    return {
        **common,
        **place,
        "ssl_ca_certs": door.tls.ca_certs,
        "ssl_certfile": door.tls.certfile,
        "ssl_keyfile": door.tls.keyfile,
        "ssl_cert_reqs": door.tls.cert_reqs,
        "ssl_check_hostname": door.tls.check_hostname,
    }


def open_blocking(
    door: Door, deadline: float, question: Sequence[str] = (), *, plain: bool = False
) -> tuple[Any, Reply]:
    """A connection of redis-py's, and the answer to *question* if there is one.

    Everything is done until *deadline* (monotonic seconds), with redis-py's public methods alone if
    *plain*. Raises `StoreError`.
    """
    kind: Any = _Connection if door.tls is None else _TLSConnection
    kind = kind if door.address.port else _UnixConnection
    arguments = {"retry": Retry(NoBackoff(), 0), "parser_class": _Parser, **_arguments(door)}
    try:
        if door.address.port:
            RESOLVER.wait(door.address.host, deadline)
        connection = kind(**arguments)
        connection.deadline = deadline
        connection.connect()
    except (*errors.DRIVER_ERRORS, AttributeError) as error:  # redis-py asks a Unix path's host
        raise errors.fault(error, str(door)) from error
    try:
        commands = _opening(door, question)
        # On a lane, which keeps the deadline even if an answer comes in a byte at a time.
        lane = lane_on(connection, str(door), connection.socket_timeout, plain=plain)
        lane.send(_packed(commands), deadline)
        replies = lane.receive(len(commands), deadline)
        return connection, _accepted(door, commands, replies, question)
    except BaseException as error:
        connection.disconnect()
        if isinstance(error, errors.DRIVER_ERRORS):
            raise errors.fault(error, str(door)) from error
        raise


async def open_async(door: Door, question: Sequence[str] = ()) -> tuple[Any, Reply]:
    """The same in an event loop. The caller sets the deadline, by cancelling."""
    kind: Any = aio.Connection if door.tls is None else aio.SSLConnection
    kind = kind if door.address.port else aio.UnixDomainSocketConnection
    arguments = {
        "retry": AsyncRetry(NoBackoff(), 0),
        "parser_class": _AsyncParser,
        "socket_timeout": None,
        "socket_connect_timeout": None,
        **_arguments(door),
    }
    try:
        if door.address.port:
            await RESOLVER.wait_in_loop(door.address.host)
        connection = kind(**arguments)
        await connection.connect()
    except errors.DRIVER_ERRORS as error:
        raise errors.fault(error, str(door)) from error
    try:
        commands = _opening(door, question)
        await connection.send_packed_command(_packed(commands))
        replies = [await connection.read_response(disconnect_on_error=False) for _ in commands]
        return connection, _accepted(door, commands, replies, question)
    except BaseException as error:
        await drop(connection)
        if isinstance(error, errors.DRIVER_ERRORS):
            raise errors.fault(error, str(door)) from error
        raise


async def drop(connection: Any) -> None:
    """Close a connection of `open_async` at once: TLS would wait for the other side's goodbye."""
    taken = raw_socket.take_transport(connection)
    if taken is None:
        await connection.disconnect(nowait=True)
    else:
        taken[0].abort()


def _packed(commands: Sequence[tuple[str, ...]]) -> bytes:
    pack: Callable[[tuple[str, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
    return b"".join(map(pack, commands))


def _opening(door: Door, question: Sequence[str]) -> list[tuple[str, ...]]:
    return [*door.greeting(), *([tuple(question)] if question else [])]


def _accepted(
    door: Door, commands: Sequence[tuple[str, ...]], replies: Sequence[Reply], question: object
) -> Reply:
    """The answer to *question*; raises what the server has against us."""
    for command, reply in zip(commands, replies, strict=True):
        if not isinstance(reply, hiredis.ReplyError):
            continue
        if command[0] in _DISPENSABLE and str(reply).startswith(_NOT_FOR_US):
            continue
        raise errors.store_error(str(reply), str(door))
    return replies[-1] if question else None
