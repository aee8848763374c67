"""What a gRPC method is to us: bytes in, bytes out, whatever carries them."""

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

It answers at once (bytes) where it can, and with an awaitable only where it must wait: what is
awaited may be cancelled when the caller is gone. It raises `CallError`, and nothing else that is
meant for the caller.
"""

Stream = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""A method with any number of messages each way. The iterator that it is given ends when the
caller will send no more, or the server is about to stop; the one that it returns is closed when
the caller is gone.

Of a message that is too long it gets one byte more than may be, which tells that it is, and may
make something of that: whoever says all it has in one message would begin again, and say the same.
(From grpcio it gets nothing: the call ends.)"""

Methods = dict[str, Unary]
"""Methods by their paths: `/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`."""

Streams = dict[str, Stream]
"""The same for methods of many messages."""


class Code(IntEnum):
    """The statuses of gRPC that we send."""

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
    """A call that ends with a status other than OK; the text is for the caller."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


# How much of a server one peer may take.


MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcLimits:
    """What a gRPC server grants: bytes are counted, times are seconds. All are above zero.

    A peer that goes beyond one loses the call or the connection, as each says; never another's.
    """

    message_bytes: int = 4 * MEBIBYTE
    """The longest message. A longer one is answered RESOURCE_EXHAUSTED, or in a call of many
    messages cut off there: see `Stream`."""
    connection_bytes: int = 16 * MEBIBYTE
    """What is kept of a connection: messages that have begun, or wait to be taken or sent."""
    calls: int = 100
    """Calls at the same time on a connection, as advertised. More wait until the methods of others
    have answered, or are refused if none is at work. The lean server goes no higher than 128,
    grpcio no lower than 1024."""
    connections: int = 1024
    """Connections at the same time; more are closed as soon as they come (lean server)."""
    control_frames: int = 1000
    """Frames a second that ask for no call, beyond four for each call: pings, settings, resets."""
    preface_s: float = 10.0
    """How long a connection may take to begin with HTTP/2."""
    request_s: float = 30.0
    """How long a call of one message may take to bring it."""
    stall_s: float = 30.0
    """How long a peer may leave unread what it is sent."""
    idle_s: float = 900.0
    """How long a connection may stand without a call."""

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


# What a gRPC server can do, whichever it is.


class GrpcServer(Protocol):
    """Carries calls to methods, from `start` to `drain`; each of them once."""

    async def start(self, sock: socket.socket) -> None:
        """Listen on *sock*, which is bound already (TCP or unix) and is the server's from now on.

        Raises `OptionError` if this server cannot listen on it.
        """

    async def drain(self, grace: float) -> None:
        """Take no more connections and calls, let those there are end, and stop.

        Streams are told that the caller will send no more. What has not ended after *grace*
        seconds is cut off with UNAVAILABLE.
        """


# The files that a server proves itself with, and knows its callers by.


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: the server's *certificate* with its chain, the *key* to it, and, if callers must
    have certificates too (mTLS), the authorities *client_ca* that have to have signed those."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """For HTTP/2 and at least TLS 1.2; `OptionError` if a file cannot be used."""
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
        """What is in the files: certificate, key, authorities. `OptionError` if unreadable."""
        self.context()  # says what is wrong with them before anyone else stumbles
        ca = None if self.client_ca is None else self.client_ca.read_bytes()
        return self.certificate.read_bytes(), self.key.read_bytes(), ca

    def _named(self) -> str:
        named = f"certificate {self.certificate}, key {self.key}"
        return named if self.client_ca is None else f"{named}, client CA {self.client_ca}"


# Accepting connections from a socket that was bound by somebody else.


BACKLOG: Final = 1024


async def listen(
    sock: socket.socket, make: Callable[[], asyncio.Protocol]
) -> asyncio.AbstractServer:
    """Accept connections of *sock*, TCP or unix, each with a protocol that *make* makes."""
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"sock": sock, "backlog": BACKLOG}
    if sock.family != socket.AF_UNIX:
        return await loop.create_server(make, **options)
    if sys.version_info >= (3, 13):
        options["cleanup_socket"] = False  # others may listen on it too
    return await loop.create_unix_server(make, **options)


# The gRPC server that a service wants, of those that are installed.


Kind = Literal["auto", "lean", "grpcio"]


def open_server(
    kind: Kind,
    methods: Methods,
    streams: Streams,
    *,
    limits: GrpcLimits = DEFAULT,
    tls: TlsFiles | None = None,
) -> GrpcServer:
    """A server for *methods* and *streams*, not yet listening.

    *kind* "lean" is quick, "grpcio" is Google's own; "auto" takes the lean one where its package
    is installed. `OptionError` if the package is missing, or a file of *tls* unusable.
    """
    both = sorted(methods.keys() & streams.keys())
    if both:
        raise OptionError(f"a path is of one method, and these are of two: {', '.join(both)}")
    if kind == "auto":
        kind = "lean" if find_spec("zttp") is not None else "grpcio"
    if kind == "lean":
        _need("zttp")
        from headgate.service.grpc.h2_server.server import LeanServer

        return LeanServer(methods, streams, limits=limits, tls=tls)
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
