"""Connections: how one is opened, and how requests go over it, in a thread or in an event loop.

A connection is opened within a budget of its own, `RedisURL.connect_timeout`; the timeout of a call
begins when the connection is open. AUTH, CLIENT SETNAME, SELECT and a question of the caller go out
in one write, so that the greeting costs one round trip. Nothing is retried.

To *dial* is to find a server and open a connection to it: a generator of effects, written once for
threads and for event loops.

A request that is not answered in time, or a connection that breaks, ends the connection with all
that is in flight on it: a late reply is never taken for the reply to another request.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import hiredis

from headgate.chance import chance
from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.runtime.effects import Effect, Effects, Sleep
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.requests import ASKING, Command, Request, pack

if TYPE_CHECKING:
    from headgate.stores.redis.async_transport import ReconnectingConnection
    from headgate.stores.redis.requests import Reply
    from headgate.stores.redis.url import RedisURL, TLSFiles

R = TypeVar("R")

_INCOMPLETE: Final = object()  # the parser's value for a reply that has not arrived as a whole
_CHUNK: Final = 65_536
_NEARLY_ALL: Final = 0.99  # with so much time left a system call to set a timeout is not worth it
_LEAST: Final = 0.001  # seconds: read what has arrived even at the deadline
_FRESH_SECONDS: Final = 0.05  # a connection used so recently is not checked before use
_ReplyError: Final = hiredis.ReplyError
_monotonic: Final = time.monotonic


def _python_timeout(sock: socket.socket, seconds: float) -> None:
    """Let the interpreter watch the time, as TLS sockets need it."""
    sock.settimeout(seconds)


def _kernel_timeout(sock: socket.socket, seconds: float) -> None:
    """Let the kernel watch the time, which saves two of four system calls."""
    whole, rest = divmod(max(round(seconds * 1_000_000), 1), 1_000_000)
    span = struct.pack("@ll", whole, rest)
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)


class BlockingConnection:
    """A connection of one thread at a time: write some commands, read as many replies.

    *where* is the server's address for messages. A caller that gets an exception of
    `errors.DRIVER_ERRORS` closes the connection.
    """

    def __init__(self, sock: socket.socket, where: str, timeout: float) -> None:
        self.where = where
        self.used_at = 0.0
        self.generation = 0
        """A pool drops connections of an older generation than its own."""
        self._sock = sock
        self._timeout = timeout
        self._enough = timeout * _NEARLY_ALL
        self._is_limited = False
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._limit = _python_timeout if isinstance(sock, ssl.SSLSocket) else _kernel_timeout
        self._limit(sock, timeout)

    def __del__(self) -> None:
        self._sock.close()  # of a store that was dropped without being closed

    def send(self, packed: bytes, deadline: float) -> None:
        """Write *packed*, any number of commands, until *deadline* (monotonic seconds)."""
        left = deadline - _monotonic()
        if not self._enough <= left <= self._timeout:  # a greeting may take longer than a call
            self._limit_to(left)
        try:
            self._sock.sendall(packed)
        except BlockingIOError as error:
            raise TimeoutError from error

    def receive(self, count: int, deadline: float) -> list[Reply]:
        """Read *count* replies until *deadline*."""
        gets = self._reader.gets
        replies: list[Any] = []
        left = deadline - _monotonic()
        if not self._enough <= left <= self._timeout:
            self._limit_to(max(left, _LEAST))
        while True:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError as error:
                raise TimeoutError from error
            if not data:
                raise EOFError("the server closed it")
            self._reader.feed(data)
            while (reply := gets()) is not _INCOMPLETE:
                replies.append(reply)
            if len(replies) >= count:
                break
            self._limit_to(deadline - _monotonic())
        if len(replies) > count:
            raise hiredis.ProtocolError("more replies than commands")
        if self._is_limited:
            self._limit(self._sock, self._timeout)
            self._is_limited = False
        return replies

    def _limit_to(self, left: float) -> None:
        if left <= 0:
            raise TimeoutError
        self._is_limited = True
        self._limit(self._sock, left)

    def is_usable(self, now: float) -> bool:
        """True if it may be used at *now*, as far as can be known without sending anything."""
        return now - self.used_at < _FRESH_SECONDS or self._is_quiet()

    def _is_quiet(self) -> bool:
        """True if the server has neither closed the connection nor sent something unasked."""
        if not self._poll.poll(0):
            return True
        if not isinstance(self._sock, ssl.SSLSocket):
            return False
        # TLS has messages of its own, such as session tickets, which are no reply.
        self._sock.settimeout(0)
        try:
            self._sock.recv(1)
        except ssl.SSLWantReadError:
            self._sock.settimeout(self._timeout)
            return True
        except OSError:
            pass
        return False

    def interrupt(self) -> None:
        """Wake the thread that waits on it: the connection reads as closed."""
        with suppress(OSError):
            # Not an SSLSocket's own shutdown, which takes its TLS away from the other thread.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this process's side: a parent process keeps the connection that it forked."""
        self._sock.close()


InFlight = tuple[Request, float, int]
"""A request, its deadline (monotonic seconds), and how often it has been sent again."""


class AsyncConnection(asyncio.Protocol):
    """A connection in an event loop: many requests in flight, replies in their order.

    It is made by the loop's `create_connection`. *timeout* is what a request may take, in seconds.
    """

    def __init__(self, where: str, timeout: float) -> None:
        self.where = where
        self._owner: ReconnectingConnection | None = None
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._in_flight: deque[InFlight] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_retired = False
        self.has_ended = False
        """True if nothing can be sent any more."""
        reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._feed, self._gets = reader.feed, reader.gets
        self._closed = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write

    async def greet(self, commands: Sequence[bytes]) -> list[Reply]:
        """Send *commands*, packed, before anything else; an error reply is an element."""
        replies: list[asyncio.Future[Reply]] = [self._loop.create_future() for _ in commands]
        self._write(b"".join(commands))
        for command, reply in zip(commands, replies, strict=True):
            self._in_flight.append((Command(command, reply), 0.0, 0))
        found = await asyncio.gather(*replies, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, _ReplyError):
                raise one
        return found

    def serve(self, owner: ReconnectingConnection) -> None:
        """Report events to *owner* from now on."""
        self._owner = owner

    def send(self, request: Request) -> None:
        """Write *request*. This is the fast path."""
        self._write(request.packed())
        self._in_flight.append((request, _monotonic() + self._timeout, 0))
        if self._timer is None:
            self._watch()

    def forward(self, pending: InFlight, packed: bytes, *, asking: bool = False) -> None:
        """Write a request with the deadline that it has."""
        if asking:
            self._write(ASKING.packed())
            self._in_flight.append((ASKING, pending[1], 0))
        self._write(packed)
        self._in_flight.append(pending)
        if self._timer is not None and self._timer.when() > self._loop.time() + (
            pending[1] - _monotonic()
        ):
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._watch()

    def retire(self) -> None:
        """Close the connection as soon as what is in flight has been answered."""
        self._is_retired = True
        if not self._in_flight:
            self.close()

    def end(self, error: StoreError) -> None:
        """Close the connection now, and fail what is in flight with *error*."""
        if self.has_ended:
            return
        self.has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._owner is not None:
            self._owner.lost(self)
        self._transport.abort()
        in_flight, self._in_flight = self._in_flight, deque()
        errors.fail_all((request for request, _, _ in in_flight), error)

    def close(self) -> None:
        """Close the connection now."""
        self.end(errors.broken(self.where))

    @property
    def is_closed(self) -> bool:
        """True if the socket is closed."""
        return self._closed.done()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after `end`."""
        await self._closed

    def data_received(self, data: bytes) -> None:
        """Pair the replies in *data* with requests, in order."""
        in_flight, gets = self._in_flight, self._gets
        try:
            self._feed(data)
            while (reply := gets()) is not _INCOMPLETE:
                if reply.__class__ is _ReplyError or not in_flight or self._is_retired:
                    self._settle(reply)
                    if self.has_ended:
                        return
                else:
                    request = in_flight.popleft()[0]
                    try:
                        request.answered(reply)
                    except errors.UNREADABLE as error:
                        request.failed(errors.unreadable(self.where, error))
        except hiredis.HiredisError as error:
            self.end(errors.fault(error, self.where))

    def connection_lost(self, exc: Exception | None) -> None:
        """End, whether the server or this side has closed the socket."""
        if not self._closed.done():
            self._closed.set_result(None)
        self.end(errors.broken(self.where, exc))

    def _watch(self) -> None:
        """Check again when the first request in flight is due: one timer, not one for each."""
        self._timer = None
        if not self._in_flight:
            return
        left = min(deadline for _, deadline, _ in self._in_flight) - _monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._watch)
        else:
            self.end(errors.timed_out(self.where, self._timeout))

    def _settle(self, reply: Reply) -> None:
        """Pass *reply* to the first request in flight."""
        if not self._in_flight:
            self.close()  # an unexpected message
            return
        pending = self._in_flight.popleft()
        if reply.__class__ is not _ReplyError or self._owner is None:
            errors.deliver(pending[0], reply, self.where)
        else:
            self._owner.error_reply(self, pending, str(reply))
        if self._is_retired and not self._in_flight:
            self.close()


# Opening connections: name lookup, TCP, TLS, AUTH and SELECT, and the primary of Sentinels.

Dialer = Callable[[float], Effects[Any]]
"""Makes the effects that open a connection until a deadline (monotonic seconds)."""

SocketAddress = tuple[int, tuple[Any, ...] | str]
"""The family of a socket, and the address that it connects to."""

CLIENT_NAME: Final = "headgate"
_OPTIONAL: Final = ("CLIENT", "ROLE")  # commands that an ACL may forbid
_FORBIDDEN: Final = ("NOPERM ", "ERR unknown ")


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
    """A server or cluster node of *url*, or one of its Sentinels. A Unix socket has port 0."""

    url: RedisURL
    address: Address
    is_sentinel: bool = False

    def __str__(self) -> str:
        return str(self.address)

    def greeting(self, question: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the commands that begin a connection; *question* is the last, if there is one."""
        url = self.url
        username, password, db = url.username, url.password, url.db
        if self.is_sentinel:  # it has credentials of its own
            username, password, db = url.sentinel_username, url.sentinel_password, 0
        auth: list[tuple[str, ...]] = []
        if password is not None:
            auth = [("AUTH", *([username] if username else []), password)]
        select = [("SELECT", str(db))] if db else []
        last = [tuple(question)] if question else []
        return [*auth, ("CLIENT", "SETNAME", CLIENT_NAME), *select, *last]

    def accepted(self, commands: Sequence[tuple[str, ...]], replies: Sequence[Reply]) -> Reply:
        """Return the reply to the last of *commands*; raise the first error that matters."""
        for command, reply in zip(commands, replies, strict=True):
            if not isinstance(reply, hiredis.ReplyError):
                continue
            if command[0] in _OPTIONAL and str(reply).startswith(_FORBIDDEN):
                continue
            raise errors.store_error(str(reply), str(self))
        return replies[-1]


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
        if endpoint.url.tls is not None:
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
    if endpoint.url.tls is not None:
        sock.settimeout(timeout)
        context = _tls_context(endpoint.url.tls)
        sock = context.wrap_socket(sock, server_hostname=endpoint.address.host)
    return BlockingConnection(sock, str(endpoint), endpoint.url.timeout)


async def _awrap(sock: socket.socket, endpoint: Endpoint) -> AsyncConnection:
    loop = asyncio.get_running_loop()

    def protocol() -> AsyncConnection:
        return AsyncConnection(str(endpoint), endpoint.url.timeout)

    host, port = endpoint.address
    if not port:
        return (await loop.create_unix_connection(protocol, sock=sock))[1]
    context = None if endpoint.url.tls is None else _tls_context(endpoint.url.tls)
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
    for tried, endpoint in enumerate(endpoints):
        until = _share_of(deadline, 1 / (len(endpoints) - tried + 1))
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
        self._order = [Endpoint(url, address, is_sentinel=True) for address in url.addresses]

    def __call__(self, deadline: float) -> Effects[Any]:
        while True:
            address = yield from self._primary(deadline)
            server = Endpoint(self._url, address)
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

    def _read(self, sentinel: Endpoint, reply: Reply) -> Address:
        if reply is None:
            raise StoreError(
                f"the Sentinel at {sentinel} knows no primary called {self._url.primary_name!r}",
                reason="unreachable",
            )
        try:
            host, port = reply
            return Address(host.decode(), int(port))
        except (TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{sentinel} is no Sentinel: its reply is {reply!r}") from error


def dialer_for(url: RedisURL) -> Dialer:
    """Dial the one server of *url*, or the primary that its Sentinels name."""
    if url.topology == "sentinel":
        return SentinelDialer(url)
    return dial_server(Endpoint(url, url.addresses[0]))


FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 1.0


class Backoff:
    """Pauses between attempts to connect that double from 50 ms to 1 s, with full jitter.

    So a dead server sees few attempts, and a fleet does not come back in step. *chance* gives
    numbers from 0 to 1. Times are seconds of a monotonic clock.
    """

    __slots__ = ("_chance", "_error", "_failures", "_until")

    def __init__(self, chance: Callable[[], float] = chance) -> None:
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
