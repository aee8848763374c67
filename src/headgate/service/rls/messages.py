"""The messages of `envoy.service.ratelimit.v3`, as far as a server needs them.

Field numbers are those of Envoy's definitions; a test holds them against `xds-protos`, and
`is_negative_hits`, which is younger than that package, against Envoy itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from headgate.protos import (
    BOOL,
    BYTES,
    STRING,
    UINT32,
    Enum,
    Field,
    File,
    Message,
    define,
)
from headgate.service.wire_text import in_octets

PATH: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

UNITS: Final = {
    "UNKNOWN": 0,
    "SECOND": 1,
    "MINUTE": 2,
    "HOUR": 3,
    "DAY": 4,
    "MONTH": 5,
    "YEAR": 6,
    "WEEK": 7,
}
"""The units of a reply. Those of a limit in a request are the same without the week."""

CODES: Final = {"UNKNOWN": 0, "OK": 1, "OVER_LIMIT": 2}
OK: Final = CODES["OK"]
OVER_LIMIT: Final = CODES["OVER_LIMIT"]

_PB: Final = "google.protobuf"
_STANDARD: Final = tuple(
    [f"google/protobuf/{name}.proto" for name in ("duration", "wrappers", "timestamp", "struct")]
)
_UNIT: Final = File(
    "envoy/type/v3/ratelimit_unit.proto",
    "envoy.type.v3",
    enums=(Enum("RateLimitUnit", {name: UNITS[name] for name in UNITS if name != "WEEK"}),),
)
_HEADER: Final = File(
    "envoy/config/core/v3/base.proto",
    "envoy.config.core.v3",
    (
        Message(
            "HeaderValue",
            (Field(1, "key", STRING), Field(2, "value", STRING), Field(3, "raw_value", BYTES)),
        ),
    ),
)
_DESCRIPTOR_NAME: Final = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"
_DESCRIPTOR: Final = File(
    "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
    "envoy.extensions.common.ratelimit.v3",
    (
        Message(
            "RateLimitDescriptor",
            (
                Field(1, "entries", f"{_DESCRIPTOR_NAME}.Entry", many=True),
                Field(2, "limit", f"{_DESCRIPTOR_NAME}.RateLimitOverride"),
                Field(3, "hits_addend", f"{_PB}.UInt64Value"),
                Field(4, "is_negative_hits", BOOL),
            ),
            (
                Message("Entry", (Field(1, "key", STRING), Field(2, "value", STRING))),
                Message(
                    "RateLimitOverride",
                    (
                        Field(1, "requests_per_unit", UINT32),
                        Field(2, "unit", "envoy.type.v3.RateLimitUnit", is_enum=True),
                    ),
                ),
            ),
        ),
    ),
    needs=(_UNIT.name, "google/protobuf/wrappers.proto"),
)
_SERVICE_NAME: Final = "envoy.service.ratelimit.v3"
_RESPONSE_NAME: Final = f"{_SERVICE_NAME}.RateLimitResponse"
_LIMIT: Final = Message(
    "RateLimit",
    (
        Field(1, "requests_per_unit", UINT32),
        Field(2, "unit", f"{_RESPONSE_NAME}.RateLimit.Unit", is_enum=True),
        Field(3, "name", STRING),
    ),
    enums=(Enum("Unit", UNITS),),
)
_QUOTA: Final = Message(
    "Quota",
    (
        Field(1, "requests", UINT32),
        Field(2, "valid_until", f"{_PB}.Timestamp", one_of="expiration_specifier"),
        Field(3, "id", STRING),
    ),
)
_STATUS: Final = Message(
    "DescriptorStatus",
    (
        Field(1, "code", f"{_RESPONSE_NAME}.Code", is_enum=True),
        Field(2, "current_limit", f"{_RESPONSE_NAME}.RateLimit"),
        Field(3, "limit_remaining", UINT32),
        Field(4, "duration_until_reset", f"{_PB}.Duration"),
        Field(5, "quota", f"{_RESPONSE_NAME}.Quota"),
    ),
)
_RESPONSE: Final = Message(
    "RateLimitResponse",
    (
        Field(1, "overall_code", f"{_RESPONSE_NAME}.Code", is_enum=True),
        Field(2, "statuses", f"{_RESPONSE_NAME}.DescriptorStatus", many=True),
        Field(3, "response_headers_to_add", "envoy.config.core.v3.HeaderValue", many=True),
        Field(4, "request_headers_to_add", "envoy.config.core.v3.HeaderValue", many=True),
        Field(5, "raw_body", BYTES),
        Field(6, "dynamic_metadata", f"{_PB}.Struct"),
        Field(7, "quota", f"{_RESPONSE_NAME}.Quota"),
    ),
    (_LIMIT, _QUOTA, _STATUS),
    (Enum("Code", CODES),),
)
_SERVICE: Final = File(
    "envoy/service/ratelimit/v3/rls.proto",
    _SERVICE_NAME,
    (
        Message(
            "RateLimitRequest",
            (
                Field(1, "domain", STRING),
                Field(2, "descriptors", _DESCRIPTOR_NAME, many=True),
                Field(3, "hits_addend", UINT32),
            ),
        ),
        _RESPONSE,
    ),
    needs=(_DESCRIPTOR.name, _HEADER.name, *_STANDARD),
)
FILES: Final = (_UNIT, _HEADER, _DESCRIPTOR, _SERVICE)

MESSAGES: Final[dict[str, type[Any]]] = define(*_STANDARD, *FILES)
"""The message classes, by full name."""

RateLimitRequest: Final[type[Any]] = MESSAGES[f"{_SERVICE_NAME}.RateLimitRequest"]
_OCTETS: Final = define(*_STANDARD, *map(in_octets, FILES))
OctetRequest: Final[type[Any]] = _OCTETS[f"{_SERVICE_NAME}.RateLimitRequest"]
"""The same with bytes where it has texts: see `wire_text`."""

RateLimitResponse: Final[type[Any]] = MESSAGES[_RESPONSE_NAME]
Struct: Final[type[Any]] = MESSAGES[f"{_PB}.Struct"]


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
