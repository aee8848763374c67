"""The messages of `envoy.service.rate_limit_quota.v3`, as far as a server needs them.

Field numbers are those of Envoy's definitions; a test holds them against `xds-protos`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from headgate.protos import (
    DURATION,
    STRING,
    UINT32,
    UINT64,
    WRAPPERS,
    Enum,
    Field,
    File,
    Message,
    define,
)
from headgate.service.wire_text import in_octets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.service.rlqs.ledger import Action

PATH: Final = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"

ALLOW_ALL: Final = 0
DENY_ALL: Final = 1

_PACKAGE: Final = "envoy.service.rate_limit_quota.v3"
_TYPES: Final = "envoy.type.v3"
_DURATION: Final = "google.protobuf.Duration"
_BUCKET: Final = File(
    "envoy/type/v3/token_bucket.proto",
    _TYPES,
    (
        Message(
            "TokenBucket",
            (
                Field(1, "max_tokens", UINT32),
                Field(2, "tokens_per_fill", "google.protobuf.UInt32Value"),
                Field(3, "fill_interval", _DURATION),
            ),
        ),
    ),
    needs=(DURATION.name, WRAPPERS.name),
)
_STRATEGY: Final = File(
    "envoy/type/v3/ratelimit_strategy.proto",
    _TYPES,
    (
        Message(
            "RateLimitStrategy",
            (
                Field(
                    1,
                    "blanket_rule",
                    f"{_TYPES}.RateLimitStrategy.BlanketRule",
                    is_enum=True,
                    one_of="strategy",
                ),
                Field(3, "token_bucket", f"{_TYPES}.TokenBucket", one_of="strategy"),
            ),
            enums=(Enum("BlanketRule", {"ALLOW_ALL": ALLOW_ALL, "DENY_ALL": DENY_ALL}),),
        ),
    ),
    needs=(_BUCKET.name,),
)
_USAGE: Final = Message(
    "BucketQuotaUsage",
    (
        Field(1, "bucket_id", f"{_PACKAGE}.BucketId"),
        Field(2, "time_elapsed", _DURATION),
        Field(3, "num_requests_allowed", UINT64),
        Field(4, "num_requests_denied", UINT64),
    ),
)
_RESPONSE: Final = f"{_PACKAGE}.RateLimitQuotaResponse"
_ACTION: Final = Message(
    "BucketAction",
    (
        Field(1, "bucket_id", f"{_PACKAGE}.BucketId"),
        Field(
            2,
            "quota_assignment_action",
            f"{_RESPONSE}.BucketAction.QuotaAssignmentAction",
            one_of="bucket_action",
        ),
        Field(
            3,
            "abandon_action",
            f"{_RESPONSE}.BucketAction.AbandonAction",
            one_of="bucket_action",
        ),
    ),
    (
        Message(
            "QuotaAssignmentAction",
            (
                Field(2, "assignment_time_to_live", _DURATION),
                Field(3, "rate_limit_strategy", f"{_TYPES}.RateLimitStrategy"),
            ),
        ),
        Message("AbandonAction"),
    ),
)
_FILE: Final = File(
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    _PACKAGE,
    (
        Message(
            "BucketId",
            (Field(1, "bucket", f"{_PACKAGE}.BucketId.BucketEntry", many=True),),
            (
                Message(
                    "BucketEntry", (Field(1, "key", STRING), Field(2, "value", STRING)), entry=True
                ),
            ),
        ),
        Message(
            "RateLimitQuotaUsageReports",
            (
                Field(1, "domain", STRING),
                Field(
                    2,
                    "bucket_quota_usages",
                    f"{_PACKAGE}.RateLimitQuotaUsageReports.BucketQuotaUsage",
                    many=True,
                ),
            ),
            (_USAGE,),
        ),
        Message(
            "RateLimitQuotaResponse",
            (Field(1, "bucket_action", f"{_RESPONSE}.BucketAction", many=True),),
            (_ACTION,),
        ),
    ),
    needs=(DURATION.name, _STRATEGY.name),
)

_FILES: Final = (DURATION, WRAPPERS, _BUCKET, _STRATEGY, _FILE)
_REPORTS: Final = f"{_PACKAGE}.RateLimitQuotaUsageReports"
MESSAGES: Final = define(*_FILES)
REPORTS: Final[Any] = MESSAGES[_REPORTS]
OCTET_REPORTS: Final[Any] = define(*map(in_octets, _FILES))[_REPORTS]
"""The same with bytes in place of strings: see `wire_text`."""

RESPONSE: Final[Any] = MESSAGES[_RESPONSE]


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
