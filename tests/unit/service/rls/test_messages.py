"""Our definitions of Envoy's messages against those of others."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

from headgate.service.rls.messages import PATH
from tests.support import envoy_messages
from tests.support.envoy_messages import defined_messages

MESSAGES = defined_messages(
    "envoy.service.ratelimit.", "envoy.extensions.common.ratelimit.", "envoy.config.core."
)

_THEIRS = (
    envoy_messages.service,
    envoy_messages.descriptors,
    envoy_messages.base,
    duration_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
_YOUNGER = {("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", "is_negative_hits")}
"""What Envoy defines and the package does not yet; tests/integration looks for it in Envoy."""


def _all(descriptor: Any) -> list[Any]:
    found = [descriptor]
    for inner in descriptor.nested_types:
        found += _all(inner)
    return found


_BY_NAME = {
    one.full_name: one
    for module in _THEIRS
    for top in module.DESCRIPTOR.message_types_by_name.values()
    for one in _all(top)
}


def _shape(field: Any) -> tuple[object, ...]:
    message, enum, choice = field.message_type, field.enum_type, field.containing_oneof
    return (
        field.number,
        field.type,
        field.is_repeated,
        None if message is None else message.full_name,
        None if enum is None else enum.full_name,
        None if choice is None else choice.name,
    )


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_every_field_is_as_others_have_it(name: str) -> None:
    ours, others = MESSAGES[name].DESCRIPTOR, _BY_NAME[name]
    for field in ours.fields:
        if (name, field.name) in _YOUNGER and field.name not in others.fields_by_name:
            continue
        assert _shape(field) == _shape(others.fields_by_name[field.name]), field.name


@pytest.mark.parametrize(
    "name",
    [
        "envoy.service.ratelimit.v3.RateLimitRequest",
        "envoy.service.ratelimit.v3.RateLimitResponse",
        "envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus",
        "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit",
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor",
        "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride",
    ],
)
def test_no_field_of_theirs_is_missing(name: str) -> None:
    ours = MESSAGES[name].DESCRIPTOR.fields_by_name
    assert not [one.name for one in _BY_NAME[name].fields if one.name not in ours]


def test_the_enumerations_are_the_same() -> None:
    descriptor = MESSAGES["envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"]
    unit = descriptor.RateLimitOverride.DESCRIPTOR.fields_by_name["unit"].enum_type
    theirs = dict(envoy_messages.units.RateLimitUnit.items())
    assert {value.name: value.number for value in unit.values} == theirs
    response = MESSAGES["envoy.service.ratelimit.v3.RateLimitResponse"].DESCRIPTOR
    others = envoy_messages.service.RateLimitResponse.DESCRIPTOR
    for one, other in (
        (response.enum_types_by_name["Code"], others.enum_types_by_name["Code"]),
        (
            response.nested_types_by_name["RateLimit"].enum_types_by_name["Unit"],
            others.nested_types_by_name["RateLimit"].enum_types_by_name["Unit"],
        ),
    ):
        assert {v.name: v.number for v in one.values} == {v.name: v.number for v in other.values}


def test_the_path_is_that_of_the_service() -> None:
    (service,) = envoy_messages.service.DESCRIPTOR.services_by_name.values()
    (method,) = service.methods
    assert f"/{service.full_name}/{method.name}" == PATH
