"""Opening connections: name lookup, TCP, TLS, AUTH and SELECT, and the primary of Sentinels.

A connection is opened within a budget of its own, `RedisURL.connect_timeout`; the timeout of a call
begins when the connection is open. AUTH, CLIENT SETNAME, SELECT and a question of the caller go out
in one write, so that the greeting costs one round trip. Nothing is retried.

To *dial* is to find a server and open a connection to it: a generator of effects, written once for
threads and for event loops.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.runtime.effects import Effect, Effects, Sleep
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.connection import AsyncConnection, BlockingConnection
from headgate.stores.redis.requests import pack

if TYPE_CHECKING:
    from headgate.stores.redis.requests import Reply
    from headgate.stores.redis.url import RedisURL, TLSFiles

R = TypeVar("R")

Dialer = Callable[[float], Effects[Any]]
"""Makes the effects that open a connection until a deadline (monotonic seconds)."""

SocketAddress = tuple[int, tuple[Any, ...] | str]
"""The family of a socket, and the address that it connects to."""

CLIENT_NAME: Final = "headgate"
_OPTIONAL: Final = ("CLIENT", "ROLE")  # commands that an ACL may forbid
_FORBIDDEN: Final = ("NOPERM ", "ERR unknown ")
_LEAST: Final = 0.001  # seconds; a timeout of 0 would mean "do not block"


class Resolver:
    """Name lookups that callers wait for no longer than they may.

    The system's resolver knows no deadline: one that hangs would block the thread that connects,
    or the threads of an event loop's executor. So a name is looked up in a thread of its own, one
    for each name at a time. Nothing is cached.
    """

    def __init__(self, look_up: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Forget the lookups of the parent process, whose threads are not in this one."""
        self._lock = threading.Lock()
        self._lookups: dict[str, Future[list[SocketAddress]]] = {}

    def look_up(self, host: str) -> Future[list[SocketAddress]]:
        """Return the addresses of *host*, with port 0; the error is an `OSError`."""
        found: Future[list[SocketAddress]] = Future()
        found.set_running_or_notify_cancel()  # a waiter that gives up does not cancel it
        with suppress(OSError, UnicodeError):  # it is a name, not an address
            numeric = socket.AI_NUMERICHOST
            found.set_result(_addresses(socket.getaddrinfo(host, None, flags=numeric, **_STREAM)))
            return found
        with self._lock:
            pending = self._lookups.setdefault(host, found)
        if pending is found:
            threading.Thread(
                target=self._find, args=(host, found), name="headgate-names", daemon=True
            ).start()
        return pending

    def _find(self, host: str, found: Future[list[SocketAddress]]) -> None:
        result: list[SocketAddress] | OSError
        try:
            result = _addresses(self._look_up(host, None, **_STREAM))
        except (OSError, UnicodeError) as error:  # the latter: it is not a valid name
            result = OSError(str(error))
        with self._lock:
            if self._lookups.get(host) is found:
                del self._lookups[host]
        if isinstance(result, OSError):
            found.set_exception(result)
        else:
            found.set_result(result)


_STREAM: Final[dict[str, Any]] = {"type": socket.SOCK_STREAM}


def _addresses(infos: Sequence[Any]) -> list[SocketAddress]:
    return [(family, address) for family, _, _, _, address in infos]


RESOLVER: Final = Resolver()
"""The resolver of this process."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server, and the credentials and TLS files for it. A Unix socket has port 0."""

    address: Address
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    tls: TLSFiles | None = None
    timeout: float = 0.05
    """Seconds that a call may take once there is a connection."""

    def __str__(self) -> str:
        return str(self.address)

    def greeting(self, question: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the commands that begin a connection; *question* is the last, if there is one."""
        auth: list[tuple[str, ...]] = []
        if self.password is not None:
            auth = [("AUTH", *([self.username] if self.username else []), self.password)]
        select = [("SELECT", str(self.db))] if self.db else []
        asked = [tuple(question)] if question else []
        return [*auth, ("CLIENT", "SETNAME", CLIENT_NAME), *select, *asked]

    def accepted(self, commands: Sequence[tuple[str, ...]], replies: Sequence[Reply]) -> Reply:
        """Return the reply to the last of *commands*; raise the first error that matters."""
        for command, reply in zip(commands, replies, strict=True):
            if not isinstance(reply, hiredis.ReplyError):
                continue
            if command[0] in _OPTIONAL and str(reply).startswith(_FORBIDDEN):
                continue
            raise errors.store_error(str(reply), str(self))
        return replies[-1]


def server_at(url: RedisURL, address: Address) -> Endpoint:
    """Return the server or cluster node of *url* at *address*."""
    return Endpoint(address, url.username, url.password, url.db, url.tls, url.timeout)


def sentinel_at(url: RedisURL, address: Address) -> Endpoint:
    """Return the Sentinel of *url* at *address*; Sentinels have credentials of their own."""
    name, secret = url.sentinel_username, url.sentinel_password
    return Endpoint(address, name, secret, 0, url.tls, url.timeout)


def _tls_context(files: TLSFiles) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = files.check_hostname
    context.verify_mode = ssl.VerifyMode[f"CERT_{files.cert_reqs.upper()}"]
    if files.certfile is not None:
        context.load_cert_chain(files.certfile, files.keyfile)
    if files.ca_certs is not None:
        context.load_verify_locations(files.ca_certs)
    return context


class _Step(Effect):
    """One step of connecting: *blocking* in a thread, *waiting* in an event loop.

    Both get *arguments*; the blocking form gets the seconds left until *deadline* too.
    """

    __slots__ = ("_arguments", "_blocking", "_deadline", "_waiting")

    def __init__(
        self,
        blocking: Callable[..., Any],
        waiting: Callable[..., Awaitable[Any]],
        deadline: float,
        *arguments: Any,
    ) -> None:
        self._blocking = blocking
        self._waiting = waiting
        self._deadline = deadline
        self._arguments = arguments

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), _LEAST)

    def perform(self) -> Any:
        return self._blocking(*self._arguments, self._left())

    async def aperform(self) -> Any:
        async with asyncio.timeout(self._left()):
            return await self._waiting(*self._arguments)


def open_connection(
    endpoint: Endpoint, deadline: float, question: Sequence[str] = ()
) -> Effects[tuple[Any, Reply]]:
    """Open a `BlockingConnection` in a thread, an `AsyncConnection` in an event loop.

    Returns it with the reply to *question*. Everything is done by *deadline* (monotonic seconds).
    The message of a `StoreError` has the stage that failed, and the time it took.
    """
    began, stage = time.monotonic(), ["connect"]
    opened: Any = None
    try:
        opened = yield from _open_socket(endpoint.address, deadline, stage)
        if endpoint.tls is not None:
            stage[0] = "TLS handshake"
        opened = yield _Step(_wrap, _awrap, deadline, opened, endpoint)
        stage[0] = "greeting"
        commands = endpoint.greeting(question)
        packed = list(map(pack, commands))
        replies = yield _Step(_greet, AsyncConnection.greet, deadline, opened, packed)
        return opened, endpoint.accepted(commands, replies)
    except BaseException as error:
        if opened is not None:
            opened.close()
        if isinstance(error, TimeoutError):
            took_ms = (time.monotonic() - began) * 1_000
            text = f"no connection to {endpoint}: {stage[0]} not done after {took_ms:.0f} ms"
            raise StoreError(text, reason="timeout", is_undone=True) from error
        if isinstance(error, errors.DRIVER_ERRORS):
            raise errors.not_connected(error, str(endpoint), stage[0]) from error
        raise


def _open_socket(address: Address, deadline: float, stage: list[str]) -> Effects[socket.socket]:
    """Connect to the first address of a host that answers; set *stage*."""
    host, port = address
    places: list[SocketAddress] = [(socket.AF_UNIX, host)]
    if port:
        stage[0] = "name lookup"
        found = yield _Step(Future.result, asyncio.wrap_future, deadline, RESOLVER.look_up(host))
        places = [(family, (one[0], port, *one[2:])) for family, one in found]
        stage[0] = "TCP connect"
    error: OSError = OSError("no address")
    for tried, place in enumerate(places):
        until = _share_of(deadline, 1 / (len(places) - tried))
        try:
            sock: socket.socket = yield _Step(_connect, _aconnect, until, place)
        except OSError as caught:
            error = caught
        else:
            return sock
    raise error


def _share_of(deadline: float, share: float) -> float:
    now = time.monotonic()
    return now + (deadline - now) * share


@contextmanager
def _new_socket(family: int) -> Iterator[socket.socket]:
    """Yield a socket, which is closed if an error comes out of the block."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        yield sock
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise


def _connect(place: SocketAddress, timeout: float) -> socket.socket:
    with _new_socket(place[0]) as sock:
        sock.settimeout(timeout)
        sock.connect(place[1])
    return sock


async def _aconnect(place: SocketAddress) -> socket.socket:
    with _new_socket(place[0]) as sock:
        sock.setblocking(False)  # noqa: FBT003
        await asyncio.get_running_loop().sock_connect(sock, place[1])
    return sock


def _wrap(sock: socket.socket, endpoint: Endpoint, timeout: float) -> BlockingConnection:
    if endpoint.tls is not None:
        sock.settimeout(timeout)
        context = _tls_context(endpoint.tls)
        sock = context.wrap_socket(sock, server_hostname=endpoint.address.host)
    return BlockingConnection(sock, str(endpoint), endpoint.timeout)


async def _awrap(sock: socket.socket, endpoint: Endpoint) -> AsyncConnection:
    loop = asyncio.get_running_loop()

    def protocol() -> AsyncConnection:
        return AsyncConnection(str(endpoint), endpoint.timeout)

    host, port = endpoint.address
    if not port:
        return (await loop.create_unix_connection(protocol, sock=sock))[1]
    context = None if endpoint.tls is None else _tls_context(endpoint.tls)
    name = None if context is None else host
    connected = await loop.create_connection(protocol, sock=sock, ssl=context, server_hostname=name)
    return connected[1]


def _greet(connection: BlockingConnection, packed: Sequence[bytes], timeout: float) -> list[Reply]:
    deadline = time.monotonic() + timeout
    connection.send(b"".join(packed), deadline)
    return connection.receive(len(packed), deadline)


def dial_server(endpoint: Endpoint) -> Dialer:
    """Dial one server."""

    def dial(deadline: float) -> Effects[Any]:
        connection, _ = yield from open_connection(endpoint, deadline)
        return connection

    return dial


def ask_each(
    endpoints: Sequence[Endpoint],
    deadline: float,
    command: Sequence[str],
    read: Callable[[Endpoint, Reply], R],
) -> Effects[tuple[Endpoint, R]]:
    """Ask one server after the other; return the first whose reply *read* accepts.

    A server that hangs takes up its share of the time only. Raises the last `StoreError`.
    """
    error = StoreError("no server to ask", is_undone=True)
    for asked, endpoint in enumerate(endpoints):
        until = _share_of(deadline, 1 / (len(endpoints) - asked + 1))
        try:
            connection, reply = yield from open_connection(endpoint, until, command)
            connection.close()
            return endpoint, read(endpoint, reply)
        except StoreError as caught:
            error = caught
    raise error


_FAILOVER_PAUSE: Final = 0.05  # seconds between two attempts to find the new primary


class SentinelDialer:
    """Dials the primary that the Sentinels of *url* name, if its ROLE is that of a primary."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._order = [sentinel_at(url, address) for address in url.addresses]

    def __call__(self, deadline: float) -> Effects[Any]:
        while True:
            address = yield from self._primary(deadline)
            server = server_at(self._url, address)
            connection, role = yield from open_connection(server, deadline, ("ROLE",))
            if not isinstance(role, list) or role[0] == b"master":  # not a list: ROLE is forbidden
                return connection
            connection.close()
            if deadline - time.monotonic() < 2 * _FAILOVER_PAUSE:
                raise StoreError(
                    f"the Sentinels name {address} as primary, but it is a replica: "
                    "a failover is in progress",
                    reason="readonly",
                )
            yield Sleep(_FAILOVER_PAUSE)

    def _primary(self, deadline: float) -> Effects[Address]:
        name = self._url.primary_name
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
        try:
            first, address = yield from ask_each(self._order, deadline, command, self._read)
        except StoreError as error:
            raise StoreError(
                f"no Sentinel names a primary for {name!r}; the last error: {error}",
                reason=error.reason,
                is_undone=True,
            ) from error
        self._order = [first, *(one for one in self._order if one != first)]
        return address

    def _read(self, asked: Endpoint, reply: Reply) -> Address:
        if reply is None:
            raise StoreError(
                f"the Sentinel at {asked} knows no primary called {self._url.primary_name!r}",
                reason="unreachable",
            )
        try:
            host, port = reply
            return Address(host.decode(), int(port))
        except (TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{asked} is no Sentinel: its reply is {reply!r}") from error


def dialer_for(url: RedisURL) -> Dialer:
    """Dial the one server of *url*, or the primary that its Sentinels name."""
    if url.topology == "sentinel":
        return SentinelDialer(url)
    return dial_server(server_at(url, url.addresses[0]))


FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0


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

    def pause_error(self, now: float) -> StoreError | None:
        """Return the last error during a pause, with the time until the next attempt; else None."""
        if self._error is None or now >= self._until:
            return None
        wait_ms = (self._until - now) * 1_000
        return StoreError(
            f"{self._error} (the next attempt is in {wait_ms:.0f} ms)",
            reason=self._error.reason,
            is_undone=True,
        )
