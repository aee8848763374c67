"""Message classes from `.proto` files."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pool

from headgate.service.grpc.protobuf import load, parse, text_of

RLS = "envoy/service/ratelimit/v3/rls.proto"
RLQS = "envoy/service/rate_limit_quota/v3/rlqs.proto"
REPORTS = "envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports"


def test_nothing_is_added_to_the_shared_pool() -> None:
    load("grpc/health/v1/health.proto")
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("grpc.health.v1.HealthCheckRequest")


def test_the_same_file_can_be_loaded_twice() -> None:
    one, other = load(RLS), load(RLS)
    assert one.keys() == other.keys()
    assert "google.protobuf.Struct" in one


def test_a_map_of_strings_can_be_read_as_bytes() -> None:
    message = load(RLQS)[REPORTS](domain="edge")
    message.bucket_quota_usages.add().bucket_id.bucket["user"] = "ada"
    sent = message.SerializeToString().replace(b"ada", b"\xffda")
    read = load(RLQS, strings_as_bytes=True)[REPORTS].FromString(sent)
    (usage,) = read.bucket_quota_usages
    (entry,) = usage.bucket_id.bucket
    assert (text_of(read.domain), text_of(entry.key), text_of(entry.value)) == (
        "edge",
        "user",
        "\udcffda",
    )


@pytest.mark.parametrize("text", ["message A string", "message A { string b 1; }", "enum A { X; }"])
def test_a_malformed_file_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="was expected"):
        parse("a.proto", text)


def test_headgate_itself_does_not_need_the_packages_of_the_service() -> None:
    code = (
        "import sys, headgate, headgate.control\n"
        "print([m for m in ('google.protobuf', 'grpc', 'zttp', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
