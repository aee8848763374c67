"""gRPC methods as functions from bytes to bytes, their errors, and the limits of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from headgate.errors import HeadgateError

Unary = Callable[[bytes], bytes | Coroutine[Any, Any, bytes]]
"""A method with one message each way: the request's bytes to the reply's.

Returns bytes if the reply is ready, a coroutine only if it has to wait. The coroutine is cancelled
when the caller is gone. `CallError` is the only exception whose text reaches the caller.
"""

Stream = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""A method with any number of messages each way. Its argument ends when the caller sends no more
or the server begins to drain; its result is closed when the caller is gone.

A message that is too long arrives cut to one byte above the limit, so that the method can detect it
and continue: a client that sends its whole state in one message would reconnect and send it again.
"""

Methods = dict[str, Unary]
"""Methods by their paths: `/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`."""

Streams = dict[str, Stream]
"""The same for streaming methods."""


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
    """Memory for one connection, at least that of one message: incomplete messages, and messages
    waiting to be read or sent."""
    server_bytes: int = 256 * MEBIBYTE
    """The same for all connections together, replies that are not read included. Beyond it the
    connection with the most is closed."""
    calls: int = 100
    """Concurrent calls per connection, as advertised; at most 128 are used. More calls wait until
    running methods have answered, or are rejected if none is running."""
    connections: int = 1024
    """Concurrent connections. At the limit, those that have been without a call for longest give
    way to a new one; if there are none, the new one is closed."""
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


DEFAULT: Final = GrpcLimits()
