"""The messages on the wire are Envoy's own."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.service.rate_limit_quota.v3 import (  # type: ignore[import-untyped]  # it has no types
    rlqs_pb2,
)
from envoy.type.v3 import (  # type: ignore[import-untyped]  # it has no types
    ratelimit_strategy_pb2,
    token_bucket_pb2,
)

from headgate.service.rlqs.messages import PATH, Action, encoded
from headgate.service.rlqs.rates import TokenBucket
from tests.support.envoy_messages import defined_messages

MESSAGES = defined_messages("envoy.service.rate_limit_quota.", "envoy.type.")


def _theirs() -> dict[str, Any]:
    files = (rlqs_pb2, ratelimit_strategy_pb2, token_bucket_pb2)
    pending = [one for file in files for one in file.DESCRIPTOR.message_types_by_name.values()]
    found: dict[str, Any] = {}
    while pending:
        one = pending.pop()
        found[one.full_name] = one
        pending += one.nested_types
    return found


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_field_is_numbered_and_typed_as_envoys(name: str) -> None:
    theirs = {field.name: field for field in _theirs()[name].fields}
    for field in MESSAGES[name].DESCRIPTOR.fields:
        other = theirs[field.name]
        assert (field.number, field.type, field.is_repeated) == (
            other.number,
            other.type,
            other.is_repeated,
        )
        for kind in ("message_type", "enum_type", "containing_oneof"):
            own, their = getattr(field, kind), getattr(other, kind)
            assert (own and own.name) == (their and their.name)


def test_the_path_is_that_of_the_service() -> None:
    service = rlqs_pb2.DESCRIPTOR.services_by_name["RateLimitQuotaService"]
    assert f"/{service.full_name}/{service.methods[0].name}" == PATH


def test_a_token_bucket_has_whole_seconds_and_a_time_to_live() -> None:
    message = encoded([Action((("user", "ada"),), 10, TokenBucket(7, 3, 5))])
    (action,) = rlqs_pb2.RateLimitQuotaResponse.FromString(message).bucket_action
    assert dict(action.bucket_id.bucket) == {"user": "ada"}
    assigned = action.quota_assignment_action
    assert assigned.assignment_time_to_live.seconds == 10
    bucket = assigned.rate_limit_strategy.token_bucket
    assert (bucket.max_tokens, bucket.tokens_per_fill.value) == (5, 7)
    assert (bucket.fill_interval.seconds, bucket.fill_interval.nanos) == (3, 0)


@pytest.mark.parametrize(("is_open", "rule"), [(True, "ALLOW_ALL"), (False, "DENY_ALL")])
def test_without_a_bucket_all_pass_or_none(is_open: bool, rule: str) -> None:
    message = encoded([Action((("user", "ada"),), 10, is_open=is_open)])
    (action,) = rlqs_pb2.RateLimitQuotaResponse.FromString(message).bucket_action
    strategy = action.quota_assignment_action.rate_limit_strategy
    assert strategy.WhichOneof("strategy") == "blanket_rule"
    assert strategy.BlanketRule.Name(strategy.blanket_rule) == rule


def test_an_abandoned_bucket_is_told_as_such() -> None:
    message = encoded([Action((("user", "ada"),), is_abandoned=True)])
    (action,) = rlqs_pb2.RateLimitQuotaResponse.FromString(message).bucket_action
    assert action.WhichOneof("bucket_action") == "abandon_action"


def test_one_that_is_anew_takes_the_place_of_whatever_the_gateway_has() -> None:
    # Envoy leaves a token bucket as it is if only the seconds differ; after a denial it cannot.
    message = encoded([Action((("user", "ada"),), 10, TokenBucket(7, 3, 5), replaces=True)])
    first, then = rlqs_pb2.RateLimitQuotaResponse.FromString(message).bucket_action
    denied = first.quota_assignment_action.rate_limit_strategy
    assert denied.BlanketRule.Name(denied.blanket_rule) == "DENY_ALL"
    assert then.quota_assignment_action.rate_limit_strategy.token_bucket.max_tokens == 5
    assert first.bucket_id == then.bucket_id
