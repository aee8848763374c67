"""The answer as bytes, written field by field.

That takes a fifth of the time of building a message of objects and having it serialised; a test
reads what comes out with the messages of others.

    RateLimitResponse: 1 overall_code, 2 statuses, 3 response_headers_to_add, 5 raw_body,
                       6 dynamic_metadata
    DescriptorStatus:  1 code, 2 current_limit, 3 limit_remaining, 4 duration_until_reset
    RateLimit:         1 requests_per_unit, 2 unit, 3 name
    HeaderValue:       1 key, 2 value           Duration: 1 seconds
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.errors import UsageError
from headgate.service.rls.messages import OK, OVER_LIMIT

MOST: Final = 2**32 - 1
"""The largest number in 32 bits."""

_LONGEST_DURATION: Final = 315_576_000_000
"""Seconds: what a Duration may be."""

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
    """The field of a status that says what the limit is."""
    content = b""
    if requests:
        content += b"\x08" + number(min(requests, MOST))
    if unit:
        content += b"\x10" + number(unit)
    if name:
        content += b"\x1a" + sized(name.encode())
    return b"\x12" + sized(content)


def status(limit: bytes, remaining: int, reset_seconds: int | None, *, passes: bool) -> bytes:
    """A status, as a field of the answer. *limit* is that of `current_limit`, or empty."""
    content = _CODE[passes] + limit
    if remaining:
        content += b"\x18" + number(remaining if remaining < MOST else MOST)
    if reset_seconds is not None:
        content += b'"' + _duration(reset_seconds)
    return b"\x12" + sized(content)


def header(name: str, value: str) -> bytes:
    """A header for the response, as a field of the answer; its name in lower case."""
    content = value.encode()
    front, size = _front(name), len(content)
    if size < _SHORT:
        return b"\x1a%c%b%c%b" % (len(front) + 1 + size, front, size, content)
    return b"\x1a" + sized(front + sized(content))


@lru_cache(maxsize=256)
def _front(name: str) -> bytes:
    """The name of a header, and that its value follows."""
    content = name.lower().encode()
    if len(content) >= _SHORT:
        raise UsageError(f"the name {name!r} is too long for a header of ours")
    return b"\x0a" + sized(content) + b"\x12"


def metadata(struct: bytes) -> bytes:
    """Dynamic metadata, as a field of the answer."""
    return b"2" + sized(struct)


def body(content: bytes) -> bytes:
    """The body for a refused request, as a field of the answer."""
    return b"*" + sized(content)


def overall(*, passes: bool) -> bytes:
    """The code of the whole answer, as a field of it."""
    return _CODE[passes]


@lru_cache(maxsize=4096)
def _duration(seconds: int) -> bytes:
    if not seconds:
        return b"\x00"
    return sized(b"\x08" + number(min(seconds, _LONGEST_DURATION)))
