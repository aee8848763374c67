"""Message classes, and messages with strings that are not UTF-8."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool

from headgate.service.grpc.method import CallError, Code
from headgate.service.grpc.protobuf import decoder, message_class, text_of

REPORTS = "envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports"


def test_nothing_is_added_to_the_shared_pool() -> None:
    message_class("grpc.health.v1.HealthCheckRequest")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("grpc.health.v1.HealthCheckRequest")


def test_a_map_of_strings_can_be_read_as_bytes() -> None:
    message = message_class(REPORTS)(domain="edge")
    message.bucket_quota_usages.add().bucket_id.bucket["user"] = "ada"
    sent = message.SerializeToString().replace(b"ada", b"\xffda")
    read = decoder(REPORTS)(sent)
    (usage,) = read.bucket_quota_usages
    (entry,) = usage.bucket_id.bucket
    assert (text_of(read.domain), text_of(entry.key), text_of(entry.value)) == (
        "edge",
        "user",
        "\udcffda",
    )


def test_a_message_of_another_type_is_rejected() -> None:
    with pytest.raises(CallError, match="is not a RateLimitQuotaUsageReports") as raised:
        decoder(REPORTS)(b"\xff")
    assert raised.value.code == Code.INVALID_ARGUMENT


def test_headgate_itself_does_not_need_the_packages_of_the_service() -> None:
    code = (
        "import sys, headgate, headgate.control\n"
        "print([m for m in ('google.protobuf', 'grpc', 'zttp', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
