"""The messages of `envoy.service.rate_limit_quota.v3`, as far as a server needs them.

A test compares the definitions with `xds-protos`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.service.grpc.protobuf import decoder, message_class

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.service.rlqs.rates import TokenBucket

PATH: Final = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"

_PACKAGE: Final = "envoy.service.rate_limit_quota.v3"
REPORTS: Final = message_class(f"{_PACKAGE}.RateLimitQuotaUsageReports")
RESPONSE: Final = message_class(f"{_PACKAGE}.RateLimitQuotaResponse")
decode_reports: Final = decoder(f"{_PACKAGE}.RateLimitQuotaUsageReports")
_STRATEGY: Final[Any] = message_class("envoy.type.v3.RateLimitStrategy")
ALLOW_ALL: Final[int] = _STRATEGY.ALLOW_ALL
DENY_ALL: Final[int] = _STRATEGY.DENY_ALL

BucketId = tuple[tuple[str, str], ...]
"""A bucket as gateways name it: keys and values, sorted by key."""

_BYTES_OF_ENTRY: Final = 10
_BYTES_OF_REPORT: Final = 48


def reported_bytes(bucket: BucketId) -> int:
    """The maximum length of a report on *bucket*."""
    texts = sum(len(text.encode()) for entry in bucket for text in entry)
    return texts + _BYTES_OF_ENTRY * len(bucket) + _BYTES_OF_REPORT


@dataclass(frozen=True, slots=True)
class Action:
    """An assignment for *bucket*: for *ttl_seconds* allow what *token_bucket* says; without one,
    all if *is_open*, or nothing. *is_abandoned*: forget the bucket instead.

    *replaces*: replace whatever the gateway has. Otherwise Envoy keeps a bucket that looks the same
    (see `rates`)."""

    bucket: BucketId
    ttl_seconds: int = 0
    token_bucket: TokenBucket | None = None
    is_open: bool = False
    replaces: bool = False
    is_abandoned: bool = False


def encoded(actions: Iterable[Action]) -> bytes:
    """Encode all *actions* as one message."""
    response = RESPONSE()
    for action in actions:
        if action.replaces and action.token_bucket is not None:
            # Envoy applies a message as a whole, so the DENY_ALL never takes effect.
            _write(response.bucket_action.add(), replace(action, token_bucket=None, is_open=False))
        _write(response.bucket_action.add(), action)
    encoded_: bytes = response.SerializeToString()
    return encoded_


def _write(one: Any, action: Action) -> None:
    one.bucket_id.bucket.update(action.bucket)
    if action.is_abandoned:
        one.abandon_action.SetInParent()
        return
    assignment = one.quota_assignment_action
    assignment.assignment_time_to_live.seconds = action.ttl_seconds
    strategy = assignment.rate_limit_strategy
    token_bucket = action.token_bucket
    if token_bucket is None:
        strategy.blanket_rule = ALLOW_ALL if action.is_open else DENY_ALL
        return
    strategy.token_bucket.max_tokens = token_bucket.burst
    strategy.token_bucket.tokens_per_fill.value = token_bucket.tokens
    strategy.token_bucket.fill_interval.seconds = token_bucket.seconds
