"""Usage reports, read from the wire: checked values, or a `CallError` that says what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs.messages import REPORTS
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.service.rlqs.assignment import BucketId
    from headgate.service.rlqs.options import RlqsOptions


@dataclass(frozen=True, slots=True)
class Usage:
    """What came for *bucket* in the last *elapsed_ns* (0 in the first report of a bucket)."""

    bucket: BucketId
    elapsed_ns: int
    allowed: int
    denied: int


@dataclass(frozen=True, slots=True)
class Reports:
    """One message of a gateway; *domain* is "" if it does not say."""

    domain: str
    usages: tuple[Usage, ...]


def read_reports(message: bytes, options: RlqsOptions) -> Reports:
    """The reports in *message*. Raises `CallError` for what cannot be one, or is beyond bounds."""
    if len(message) > options.most_bytes:
        raise _beyond(f"the message has {len(message)} bytes", options.most_bytes)
    try:
        read = REPORTS.FromString(message)
    except DecodeError as error:
        raise _invalid("the message is no RateLimitQuotaUsageReports") from error
    if len(read.domain) > options.longest_value:
        raise _beyond(f"the domain has {len(read.domain)} characters", options.longest_value)
    if len(read.bucket_quota_usages) > options.most_buckets:
        count = len(read.bucket_quota_usages)
        raise _beyond(f"the message has {count} buckets", options.most_buckets)
    usages = (
        _usage(one, f"bucket_quota_usages[{n}]", options)
        for n, one in enumerate(read.bucket_quota_usages)
    )
    return Reports(read.domain, tuple(usages))


def _usage(read: Any, where: str, options: RlqsOptions) -> Usage:
    entries = read.bucket_id.bucket
    if not entries:
        raise _invalid(f"{where}: the bucket_id is empty; expected at least one key")
    if len(entries) > options.most_entries:
        raise _beyond(f"{where}: the bucket_id has {len(entries)} entries", options.most_entries)
    for key, value in entries.items():
        if len(key) > options.longest_key:
            raise _beyond(f"{where}: a key has {len(key)} characters", options.longest_key)
        if len(value) > options.longest_value:
            raise _beyond(f"{where}: a value has {len(value)} characters", options.longest_value)
        if not key:
            raise _invalid(f"{where}: the bucket_id has an empty key")
    size = sum(len(key) + len(value) for key, value in entries.items())
    if size > options.longest_bucket:
        raise _beyond(f"{where}: the bucket_id has {size} characters", options.longest_bucket)
    elapsed_ns = read.time_elapsed.seconds * SECOND + read.time_elapsed.nanos
    if elapsed_ns < 0:
        raise _invalid(f"{where}: time_elapsed is negative")
    return Usage(
        tuple(sorted(entries.items())),
        elapsed_ns,
        read.num_requests_allowed,
        read.num_requests_denied,
    )


def _invalid(problem: str) -> CallError:
    return CallError(Code.INVALID_ARGUMENT, problem)


def _beyond(problem: str, most: int) -> CallError:
    return CallError(Code.RESOURCE_EXHAUSTED, f"{problem}; at most {most} are taken")
