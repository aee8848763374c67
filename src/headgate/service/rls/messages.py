"""The messages of `envoy.service.ratelimit.v3`, as far as a server needs them.

A test compares the definitions with `xds-protos`, and `is_negative_hits`, which is younger than
that package, with Envoy itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from headgate.service.grpc.protobuf import decoder, message_class

PATH: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

_PACKAGE: Final = "envoy.service.ratelimit.v3"
RateLimitRequest: Final = message_class(f"{_PACKAGE}.RateLimitRequest")
RateLimitResponse: Final[Any] = message_class(f"{_PACKAGE}.RateLimitResponse")
decode_request: Final = decoder(f"{_PACKAGE}.RateLimitRequest")

UNITS: Final = dict(RateLimitResponse.RateLimit.Unit.items())
"""The units of a reply. Those of a limit in a request are the same without the week."""

OK: Final = RateLimitResponse.OK
OVER_LIMIT: Final = RateLimitResponse.OVER_LIMIT


# The fields of a reply as bytes.
#
# That takes a fifth of the time of a message object; a test reads the bytes with Envoy's messages.
#
#     RateLimitResponse: 1 overall_code, 2 statuses, 3 response_headers_to_add, 5 raw_body,
#                        6 dynamic_metadata
#     DescriptorStatus:  1 code, 2 current_limit, 3 limit_remaining, 4 duration_until_reset
#     RateLimit:         1 requests_per_unit, 2 unit, 3 name
#     HeaderValue:       1 key, 2 value           Duration: 1 seconds


MOST: Final = 2**32 - 1
"""The largest number in 32 bits."""

_LONGEST_DURATION: Final = 315_576_000_000
"""The most seconds of a Duration."""

_SMALL: Final = 1 << 12
_SHORT: Final = 60
"""Two texts that are shorter, and what is around them, have a length of one byte."""

_CODE: Final = {True: b"\x08%c" % OK, False: b"\x08%c" % OVER_LIMIT}


def _number(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


_NUMBERS: Final = tuple(map(_number, range(_SMALL)))


def number(value: int) -> bytes:
    """*value*, from 0 on, as a varint."""
    return _NUMBERS[value] if value < _SMALL else _number(value)


def sized(content: bytes) -> bytes:
    """*content* with its length in front."""
    return number(len(content)) + content


@lru_cache(maxsize=4096)
def current_limit(requests: int, unit: int, name: str) -> bytes:
    """The field of a status for a limit."""
    content = b""
    if requests:
        content += b"\x08" + number(min(requests, MOST))
    if unit:
        content += b"\x10" + number(unit)
    if name:
        content += b"\x1a" + sized(name.encode())
    return b"\x12" + sized(content)


def status(limit: bytes, remaining: int, reset_seconds: int | None, *, passes: bool) -> bytes:
    """A status, as a field of the reply. *limit* is that of `current_limit`, or empty."""
    content = _CODE[passes] + limit
    if remaining:
        content += b"\x18" + number(remaining if remaining < MOST else MOST)
    if reset_seconds is not None:
        content += b'"' + _duration(reset_seconds)
    return b"\x12" + sized(content)


def header(name: str, value: str) -> bytes:
    """A header for the response, as a field of the reply; its name in lower case."""
    return header_line(name.lower().encode(), value.encode())


@lru_cache(maxsize=8192)
def header_line(name: bytes, value: bytes) -> bytes:
    """The same of bytes; *name* is in lower case. Most lines are the same in many replies."""
    size = len(value)
    if len(name) + size < 2 * _SHORT:
        return b"\x1a%c\x0a%c%b\x12%c%b" % (len(name) + size + 4, len(name), name, size, value)
    return b"\x1a" + sized(b"\x0a" + sized(name) + b"\x12" + sized(value))


def metadata(struct: bytes) -> bytes:
    """Dynamic metadata, as a field of the reply."""
    return b"2" + sized(struct)


def body(content: bytes) -> bytes:
    """The body of a denial, as a field of the reply."""
    return b"*" + sized(content)


def overall(*, passes: bool) -> bytes:
    """The code of the reply, as a field."""
    return _CODE[passes]


@lru_cache(maxsize=4096)
def _duration(seconds: int) -> bytes:
    if not seconds:
        return b"\x00"
    return sized(b"\x08" + number(min(seconds, _LONGEST_DURATION)))
