"""What a gRPC method is to us: bytes in, bytes out, whatever carries them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from enum import IntEnum

from headgate.errors import HeadgateError

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
