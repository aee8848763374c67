"""Opening connections: name lookup, TCP, TLS, AUTH and SELECT, and the primary of Sentinels.

A connection is opened within a budget of its own, `RedisURL.connect_timeout`; the timeout of a call
begins when the connection is there. AUTH, CLIENT SETNAME, SELECT and a question of the caller go
out in one write, so that the greeting costs one round trip. Nothing is retried.

A *dial* is a generator that yields `Open` and `Pause` and returns what it has found, such as a
connection to the primary. So the logic is written once: `run_dial` carries it out for threads,
`arun_dial` in event loops.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.connection import AsyncConnection, BlockingConnection

if TYPE_CHECKING:
    from headgate.stores.redis.request import Reply
    from headgate.stores.redis.url import RedisURL, TLSFiles

R = TypeVar("R")

SocketAddress = tuple[int, tuple[Any, ...] | str]
"""The family of a socket, and the address that it connects to."""

CLIENT_NAME: Final = "headgate"
_OPTIONAL: Final = ("CLIENT", "ROLE")  # commands that an ACL may forbid
_FORBIDDEN: Final = ("NOPERM ", "ERR unknown ")
_LEAST: Final = 0.001  # seconds; a timeout of 0 would mean "do not block"


class _Lookup:
    """A name lookup in progress, and its result."""

    __slots__ = ("done", "error", "found", "waiters")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.found: list[SocketAddress] = []
        self.error: OSError | None = None
        self.waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def result(self) -> list[SocketAddress]:
        if self.error is not None:
            raise type(self.error)(*self.error.args)  # a copy: several callers wait for it
        return self.found


class Resolver:
    """Name lookups that callers wait for no longer than they may.

    The system's resolver knows no deadline: one that hangs would hold up the thread that connects,
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
        self._lookups: dict[str, _Lookup] = {}

    def resolve(self, host: str, port: int, deadline: float) -> list[SocketAddress]:
        """Return the addresses of *host*; `OSError`, or `TimeoutError` at *deadline*."""
        if is_ip_address(host):
            return [(family, _at_port(one, port)) for family, one in _numeric(host)]
        lookup, _ = self._join(host)
        if not lookup.done.wait(max(deadline - time.monotonic(), 0)):
            raise TimeoutError
        return [(family, _at_port(one, port)) for family, one in lookup.result()]

    async def aresolve(self, host: str, port: int) -> list[SocketAddress]:
        """Return the addresses of *host* in an event loop. The caller sets the deadline."""
        if is_ip_address(host):
            return [(family, _at_port(one, port)) for family, one in _numeric(host)]
        lookup, waiter = self._join(host, asyncio.get_running_loop())
        if waiter is not None:
            await waiter
        return [(family, _at_port(one, port)) for family, one in lookup.result()]

    def _join(
        self, host: str, loop: asyncio.AbstractEventLoop | None = None
    ) -> tuple[_Lookup, asyncio.Future[None] | None]:
        waiter = None if loop is None else loop.create_future()
        with self._lock:
            lookup = self._lookups.get(host)
            is_new = lookup is None
            if lookup is None:
                lookup = self._lookups[host] = _Lookup()
            if loop is not None and waiter is not None:
                live = [one for one in lookup.waiters if not one[1].done()]
                lookup.waiters = [*live, (loop, waiter)]
        if is_new:
            threading.Thread(
                target=self._find, args=(host, lookup), name="headgate-names", daemon=True
            ).start()
        return lookup, waiter

    def _find(self, host: str, lookup: _Lookup) -> None:
        try:
            infos = self._look_up(host, None, type=socket.SOCK_STREAM)
            lookup.found = [(family, address) for family, _, _, _, address in infos]
        except OSError as error:
            lookup.error = error
        except UnicodeError as error:  # not a valid name
            lookup.error = OSError(str(error))
        finally:
            with self._lock:
                if self._lookups.get(host) is lookup:
                    del self._lookups[host]
                waiters = list(lookup.waiters)
            lookup.done.set()
            for loop, waiter in waiters:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _numeric(host: str) -> list[SocketAddress]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [(family, address) for family, _, _, _, address in infos]


def _at_port(address: Any, port: int) -> tuple[Any, ...]:
    return (address[0], port, *address[2:])


def is_ip_address(host: str) -> bool:
    """Return True if *host* needs no lookup."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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

    def __str__(self) -> str:
        return str(self.address)

    def greeting(self, question: Sequence[str]) -> list[tuple[str, ...]]:
        """The commands that begin a connection, with *question* as the last if there is one."""
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
    """The server or cluster node of *url* at *address*."""
    return Endpoint(address, url.username, url.password, url.db, url.tls)


def sentinel_at(url: RedisURL, address: Address) -> Endpoint:
    """The Sentinel of *url* at *address*; Sentinels have credentials of their own."""
    options = url.options
    return Endpoint(address, options.sentinel_username, options.sentinel_password, 0, url.tls)


def _packed(commands: Sequence[tuple[str, ...]]) -> list[bytes]:
    pack: Callable[[tuple[str, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
    return list(map(pack, commands))


def _tls_context(files: TLSFiles) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = files.check_hostname
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "optional": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[files.cert_reqs]
    if files.certfile is not None:
        context.load_cert_chain(files.certfile, files.keyfile)
    if files.ca_certs is not None:
        context.load_verify_locations(files.ca_certs)
    return context


def _tune(sock: socket.socket) -> None:
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class _Attempt:
    """One attempt to connect to *endpoint* until *deadline*; *stage* is for error messages."""

    def __init__(self, endpoint: Endpoint, deadline: float) -> None:
        self.endpoint = endpoint
        self.deadline = deadline
        self.stage = "connect"
        self._begin = time.monotonic()

    def left(self, share: float = 1.0) -> float:
        return max((self.deadline - time.monotonic()) * share, _LEAST)

    def failed(self, error: BaseException) -> StoreError:
        """The `StoreError` for *error*: it says which stage failed, and after how long."""
        if isinstance(error, TimeoutError) and not isinstance(error, ConnectionError):
            took_ms = (time.monotonic() - self._begin) * 1_000
            return StoreError(
                f"no connection to {self.endpoint}: {self.stage} not done after {took_ms:.0f} ms",
                reason="timeout",
                is_undone=True,
            )
        return errors.not_connected(error, str(self.endpoint), self.stage)


def open_blocking(
    endpoint: Endpoint, deadline: float, call_timeout: float, question: Sequence[str] = ()
) -> tuple[BlockingConnection, Reply]:
    """Open a connection for calls of up to *call_timeout*; return the reply to *question* too.

    Everything is done by *deadline* (monotonic seconds). Raises `StoreError`.
    """
    attempt = _Attempt(endpoint, deadline)
    sock: socket.socket | None = None
    try:
        sock = _connected(attempt)
        if endpoint.tls is not None:
            attempt.stage = "TLS handshake"
            context = _tls_context(endpoint.tls)
            sock.settimeout(attempt.left())
            sock = context.wrap_socket(
                sock, server_hostname=endpoint.address.host, do_handshake_on_connect=False
            )
            sock.do_handshake()
        attempt.stage = "greeting"
        connection = BlockingConnection(sock, str(endpoint), call_timeout)
        commands = endpoint.greeting(question)
        connection.send(b"".join(_packed(commands)), deadline)
        return connection, endpoint.accepted(commands, connection.receive(len(commands), deadline))
    except BaseException as error:
        if sock is not None:
            sock.close()
        if isinstance(error, errors.DRIVER_ERRORS):
            raise attempt.failed(error) from error
        raise


def _connected(attempt: _Attempt) -> socket.socket:
    """Connect to the first address of the endpoint that answers."""
    host, port = attempt.endpoint.address
    places: list[SocketAddress] = [(socket.AF_UNIX, host)]
    if port:
        attempt.stage = "name lookup"
        places = RESOLVER.resolve(host, port, attempt.deadline)
        attempt.stage = "TCP connect"
    error: OSError = OSError("no address")
    for tried, (family, address) in enumerate(places):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(attempt.left(1 / (len(places) - tried)))
            sock.connect(address)
            _tune(sock)
        except BaseException as caught:
            sock.close()
            if not isinstance(caught, OSError):
                raise
            error = caught
        else:
            return sock
    raise error


async def open_async(
    endpoint: Endpoint, deadline: float, call_timeout: float, question: Sequence[str] = ()
) -> tuple[AsyncConnection, Reply]:
    """Open a connection in an event loop: `open_blocking` without blocking."""
    attempt = _Attempt(endpoint, deadline)
    loop = asyncio.get_running_loop()
    sock: socket.socket | None = None
    connection: AsyncConnection | None = None

    def protocol() -> AsyncConnection:
        return AsyncConnection(str(endpoint), call_timeout)

    try:
        async with asyncio.timeout(attempt.left()):
            sock = await _aconnected(attempt, loop)
            if not endpoint.address.port:
                _, connection = await loop.create_unix_connection(protocol, sock=sock)
            elif endpoint.tls is None:
                _, connection = await loop.create_connection(protocol, sock=sock)
            else:
                attempt.stage = "TLS handshake"
                _, connection = await loop.create_connection(
                    protocol,
                    sock=sock,
                    ssl=_tls_context(endpoint.tls),
                    server_hostname=endpoint.address.host,
                )
            attempt.stage = "greeting"
            commands = endpoint.greeting(question)
            replies = await connection.greet(_packed(commands))
            return connection, endpoint.accepted(commands, replies)
    except BaseException as error:
        if connection is not None:
            connection.close()
        elif sock is not None:
            sock.close()
        if isinstance(error, errors.DRIVER_ERRORS):
            raise attempt.failed(error) from error
        raise


async def _aconnected(attempt: _Attempt, loop: asyncio.AbstractEventLoop) -> socket.socket:
    """Connect to the first address of the endpoint that answers, in an event loop."""
    host, port = attempt.endpoint.address
    places: list[SocketAddress] = [(socket.AF_UNIX, host)]
    if port:
        attempt.stage = "name lookup"
        places = await RESOLVER.aresolve(host, port)
        attempt.stage = "TCP connect"
    error: OSError = OSError("no address")
    for tried, (family, address) in enumerate(places):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)  # noqa: FBT003
            async with asyncio.timeout(attempt.left(1 / (len(places) - tried))):
                await loop.sock_connect(sock, address)
            _tune(sock)
        except BaseException as caught:
            sock.close()
            if not isinstance(caught, OSError):
                raise
            error = caught
        else:
            return sock
    raise error


@dataclass(frozen=True, slots=True)
class Open:
    """Open a connection; the reply is the connection and the server's reply to *question*.

    It may take *share* of the time that is left, from 0 to 1.
    """

    endpoint: Endpoint
    question: Sequence[str] = ()
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds."""

    seconds: float


class Closable(Protocol):
    """A connection of either kind."""

    def close(self) -> None:
        """Close it."""


Dial = Generator[Open | Pause, Any, R]
"""Yields steps, is sent their results or thrown a `StoreError`, returns what was found."""


def run_dial(dial: Dial[R], deadline: float, call_timeout: float) -> R:
    """Carry out *dial* until *deadline* (monotonic seconds), for callers that may block."""
    step: Callable[[], Open | Pause] = dial.__next__
    while True:
        try:
            wanted = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        result: object = None
        try:
            if isinstance(wanted, Pause):
                time.sleep(wanted.seconds)
            else:
                until = _share_of(deadline, wanted.share)
                result = open_blocking(wanted.endpoint, until, call_timeout, wanted.question)
        except StoreError as error:
            step = _throwing(dial, error)
        else:
            step = _sending(dial, result)


async def arun_dial(dial: Dial[R], deadline: float, call_timeout: float) -> R:
    """Carry out *dial* in an event loop."""
    step: Callable[[], Open | Pause] = dial.__next__
    while True:
        try:
            wanted = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        result: object = None
        try:
            if isinstance(wanted, Pause):
                await asyncio.sleep(wanted.seconds)
            else:
                until = _share_of(deadline, wanted.share)
                result = await open_async(wanted.endpoint, until, call_timeout, wanted.question)
        except StoreError as error:
            step = _throwing(dial, error)
        else:
            step = _sending(dial, result)


def _share_of(deadline: float, share: float) -> float:
    now = time.monotonic()
    return now + (deadline - now) * share


def _throwing(dial: Dial[R], error: StoreError) -> Callable[[], Open | Pause]:
    return lambda: dial.throw(error)


def _sending(dial: Dial[R], result: object) -> Callable[[], Open | Pause]:
    return lambda: dial.send(result)


def dial_server(endpoint: Endpoint) -> Callable[[float], Dial[Any]]:
    """Dial one server."""

    def dial(deadline: float) -> Dial[Any]:  # noqa: ARG001 (as others)
        connection, _ = yield Open(endpoint)
        return connection

    return dial


def ask_each(
    endpoints: Sequence[Endpoint], command: Sequence[str], read: Callable[[Endpoint, Reply], R]
) -> Dial[tuple[Endpoint, R]]:
    """Ask one server after the other; return the first that gave an answer that *read* accepts.

    A server that hangs takes up its share of the time only. Raises the last `StoreError`.
    """
    error = StoreError("no server to ask", is_undone=True)
    for asked, endpoint in enumerate(endpoints):
        try:
            connection, reply = yield Open(endpoint, command, 1 / (len(endpoints) - asked + 1))
            connection.close()
            return endpoint, read(endpoint, reply)
        except StoreError as caught:
            error = caught
    raise error


_FAILOVER_PAUSE: Final = 0.05  # seconds between two attempts to find the new primary


class SentinelDialer:
    """Dials the primary that the Sentinels of *url* name, if it says itself that it is one."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._order = [sentinel_at(url, address) for address in url.addresses]

    def __call__(self, deadline: float) -> Dial[Any]:
        while True:
            address = yield from self._primary()
            connection, role = yield Open(server_at(self._url, address), ("ROLE",))
            if not isinstance(role, list) or role[0] == b"master":  # not a list: ROLE is forbidden
                return connection
            connection.close()
            if deadline - time.monotonic() < 2 * _FAILOVER_PAUSE:
                raise StoreError(
                    f"the Sentinels name {address} as primary, but it is a replica: "
                    "a failover is in progress",
                    reason="readonly",
                )
            yield Pause(_FAILOVER_PAUSE)

    def _primary(self) -> Dial[Address]:
        name = self._url.primary_name
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
        try:
            first, address = yield from ask_each(self._order, command, self._read)
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
