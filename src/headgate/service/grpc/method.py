"""gRPC methods as functions from bytes to bytes, and the port of the servers that call them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from headgate.errors import HeadgateError, OptionError

if TYPE_CHECKING:
    from pathlib import Path


Unary = Callable[[bytes], bytes | Awaitable[bytes]]
"""A method with one message each way: the request's bytes to the reply's.

Returns bytes if the reply is ready, an awaitable only if it has to wait. The awaitable is cancelled
when the caller is gone. `CallError` is the only exception whose text reaches the caller.
"""

Stream = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""A method with any number of messages each way. Its argument ends when the caller sends no more
or the server begins to drain; its result is closed when the caller is gone.

A message that is too long arrives cut to one byte above the limit, so that the method can detect it
and go on: a client that sends its whole state in one message would reconnect and send it again.
(grpcio ends the call instead.)"""

Methods = dict[str, Unary]
"""Methods by their paths: `/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`."""

Streams = dict[str, Stream]
"""The same for methods of many messages."""


class Code(IntEnum):
    """The gRPC status codes that we send."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallError(HeadgateError):
    """A call that ends with a status other than OK; the caller receives the text."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


# Limits of one peer.


MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """Limits of a gRPC server, all above zero. Sizes in bytes, times in seconds.

    A peer that exceeds one loses the call or the connection, as stated below, and never affects
    others.
    """

    message_bytes: int = 4 * MEBIBYTE
    """The longest message. A longer one is answered RESOURCE_EXHAUSTED; in a streaming call it is
    truncated, see `Stream`."""
    connection_bytes: int = 16 * MEBIBYTE
    """Memory for one connection: incomplete messages, and messages waiting to be read or sent."""
    calls: int = 100
    """Concurrent calls per connection, as advertised. More calls wait until running methods have
    answered, or are rejected if none is running. The lean server uses at most 128, grpcio at
    least 1024."""
    connections: int = 1024
    """Concurrent connections; more are closed on handshake (lean server)."""
    control_frames: int = 1000
    """Frames per second that belong to no call, beyond four per call: pings, settings, resets."""
    preface_s: float = 10.0
    """Time for a new connection to send the HTTP/2 preface."""
    request_s: float = 30.0
    """Time for a unary call to send its request."""
    stall_s: float = 30.0
    """Time that a peer may leave replies unread."""
    idle_s: float = 900.0
    """Time that a connection may stay open without a call."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not value > 0:
                raise OptionError(f"the limit {field.name} must be above 0, not {value!r}")
        if self.connection_bytes < self.message_bytes:
            raise OptionError(
                f"connection_bytes ({self.connection_bytes}) must hold one message"
                f" of message_bytes ({self.message_bytes})"
            )


DEFAULT: Final = GrpcLimits()


# The port of a gRPC server.


class GrpcServer(Protocol):
    """Carries calls to methods, from `start` to `drain`; call each once."""

    async def start(self, sock: socket.socket) -> None:
        """Listen on *sock*, a bound TCP or unix socket that the server owns from now on.

        Raises `OptionError` if this server cannot listen on it.
        """

    async def drain(self, grace: float) -> None:
        """Accept no more connections and calls, let open calls finish, and stop.

        The input of streaming methods ends. Calls that are still open after *grace* seconds end
        with UNAVAILABLE.
        """


# TLS files.


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the server's *certificate* with its chain, its private *key*, and, for mTLS, the
    authorities *client_ca* that must have signed the clients' certificates."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """An SSL context for HTTP/2 and TLS 1.2 or later. Raises `OptionError` if a file is
        unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # SSLError is one
            raise OptionError(f"TLS with {self._named()}: {error}") from error
        return context

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Read certificate, key and authorities. Raises `OptionError` if a file is unusable."""
        self.context()  # raises the better error
        ca = None if self.client_ca is None else self.client_ca.read_bytes()
        return self.certificate.read_bytes(), self.key.read_bytes(), ca

    def _named(self) -> str:
        named = f"certificate {self.certificate}, key {self.key}"
        return named if self.client_ca is None else f"{named}, client CA {self.client_ca}"


# Listening on a bound socket.


BACKLOG: Final = 1024


async def listen(
    sock: socket.socket, make: Callable[[], asyncio.Protocol]
) -> asyncio.AbstractServer:
    """Accept connections on *sock*, TCP or unix, each with a protocol made by *make*."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"sock": sock, "backlog": BACKLOG}
    if sock.family != socket.AF_UNIX:
        return await loop.create_server(make, **options)
    if sys.version_info >= (3, 13):
        options["cleanup_socket"] = False  # other processes may listen on it too
    return await loop.create_unix_server(make, **options)


# The choice of a server.


Kind = Literal["auto", "lean", "grpcio"]


def open_server(
    kind: Kind,
    methods: Methods,
    streams: Streams,
    *,
    limits: GrpcLimits = DEFAULT,
    tls: TlsFiles | None = None,
) -> GrpcServer:
    """Make a server for *methods* and *streams* that does not listen yet.

    *kind* "lean" is the fast server on zttp, "grpcio" the server of that package; "auto" takes
    the lean one if zttp is installed. Raises `OptionError` if the package is missing or a file of
    *tls* is unusable.
    """
    both = sorted(methods.keys() & streams.keys())
    if both:
        raise OptionError(f"a path is either unary or streaming, not both: {', '.join(both)}")
    if kind == "auto":
        kind = "lean" if find_spec("zttp") is not None else "grpcio"
    if kind == "lean":
        _need("zttp")
        from headgate.service.grpc.h2_server.server import H2Server

        return H2Server(methods, streams, limits=limits, tls=tls)
    if kind == "grpcio":
        _need("grpc")
        from headgate.service.grpc.grpcio_server import GrpcioServer

        return GrpcioServer(methods, streams, limits=limits, tls=tls)
    raise OptionError(f"a gRPC server is 'auto', 'lean' or 'grpcio', not {kind!r}")


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise OptionError(
            f"this gRPC server needs the package {package!r}: pip install 'headgate[service]'"
        )
