"""Usage reports: decodes and validates them, or raises `CallError`.

The values of a bucket come from clients, so they must not end the stream that all callers of a
gateway share. A gateway is made to forget a bucket with values that are too long. A bucket with
values that are not UTF-8 (see `grpc.protobuf`) is skipped: Envoy ends a stream that names such a
bucket. Requests of both are handled as before the first assignment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.protobuf import text_of
from headgate.service.rlqs.messages import decode_reports
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.service.rlqs.messages import BucketId
    from headgate.service.rlqs.options import RlqsOptions


# Truncated Protocol Buffers messages.


_LENGTH_DELIMITED: Final = 2
_SIZES: Final = {1: 8, 5: 4}
_LONGEST_NUMBER: Final = 10


def whole_fields(message: bytes, most: int) -> bytes:
    """The first complete fields of *message*, at most *most*."""
    end = 0
    for _ in range(most):
        after = _field_end(message, end)
        if after is None or after > len(message):
            break
        end = after
    return message[:end]


def _field_end(message: bytes, start: int) -> int | None:
    """The end of the field that starts at *start*, or None if it cannot be determined."""
    tag, at = _number(message, start)
    if tag is None:
        return None
    kind = tag & 7
    if kind == 0:
        value, at = _number(message, at)
        return None if value is None else at
    if kind == _LENGTH_DELIMITED:
        length, at = _number(message, at)
        return None if length is None else at + length
    return at + _SIZES[kind] if kind in _SIZES else None


def _number(message: bytes, start: int) -> tuple[int | None, int]:
    """The varint at *start* and its end; None if it is incomplete."""
    value = 0
    for place, byte in enumerate(message[start : start + _LONGEST_NUMBER]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    return None, start


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Usage:
    """The requests of *bucket* in the last *elapsed_ns* (0 in the first report of a bucket)."""

    bucket: BucketId
    elapsed_ns: int
    allowed: int
    denied: int


@dataclass(frozen=True, slots=True)
class Reports:
    """One message of a gateway; *domain* is "" if absent. *unfit* buckets are too long."""

    domain: str
    usages: tuple[Usage, ...]
    unfit: tuple[BucketId, ...] = ()


def read_reports(message: bytes, options: RlqsOptions) -> Reports:
    """Decode *message*. Raises `CallError` if it is malformed or exceeds the bounds.

    Of a message that is too long, or has far too many buckets, the rest is skipped. A gateway
    reports all its buckets again and again, also on its next stream, so skipped buckets get their
    chance when others are forgotten.
    """
    most_buckets = 2 * options.most_buckets
    if len(message) > options.most_bytes:
        message = whole_fields(message[: options.most_bytes], most_buckets)
    read = decode_reports(message)
    domain = text_of(read.domain)
    if len(domain) > options.longest_value:
        raise _beyond(f"the domain has {len(domain)} characters", options.longest_value)
    usages: list[Usage] = []
    unfit: list[BucketId] = []
    for n, one in enumerate(islice(read.bucket_quota_usages, most_buckets)):
        where = f"bucket_quota_usages[{n}]"
        bucket = _bucket(one.bucket_id.bucket, where, options)
        if isinstance(read.domain, bytes) and not _is_utf8(bucket):
            continue
        if _fits(bucket, options):
            usages.append(_usage(bucket, one, where))
        else:
            unfit.append(bucket)
    return Reports(domain, tuple(usages), tuple(unfit))


def _bucket(read: Any, where: str, options: RlqsOptions) -> BucketId:
    """The bucket from *read*, a map, or a list of entries where strings are bytes."""
    pairs = read.items() if hasattr(read, "items") else [(one.key, one.value) for one in read]
    entries = {text_of(key): text_of(value) for key, value in pairs}
    if not entries:
        raise _invalid(f"{where}: the bucket_id is empty; expected at least one key")
    if len(entries) > options.most_entries:
        raise _beyond(f"{where}: the bucket_id has {len(entries)} entries", options.most_entries)
    for key in entries:
        if len(key) > options.longest_key:
            raise _beyond(f"{where}: a key has {len(key)} characters", options.longest_key)
        if not key:
            raise _invalid(f"{where}: the bucket_id has an empty key")
    return tuple(sorted(entries.items()))


def _is_utf8(bucket: BucketId) -> bool:
    return all(_SURROGATE.search(text) is None for entry in bucket for text in entry)


def _fits(bucket: BucketId, options: RlqsOptions) -> bool:
    is_short = all(len(value) <= options.longest_value for _, value in bucket)
    return (
        is_short and sum(len(key) + len(value) for key, value in bucket) <= options.longest_bucket
    )


def _usage(bucket: BucketId, read: Any, where: str) -> Usage:
    elapsed_ns = read.time_elapsed.seconds * SECOND + read.time_elapsed.nanos
    if elapsed_ns < 0:
        raise _invalid(f"{where}: time_elapsed is negative")
    return Usage(bucket, elapsed_ns, read.num_requests_allowed, read.num_requests_denied)


def _invalid(problem: str) -> CallError:
    return CallError(Code.INVALID_ARGUMENT, problem)


def _beyond(problem: str, most: int) -> CallError:
    return CallError(Code.RESOURCE_EXHAUSTED, f"{problem}; the maximum is {most}")
