"""Reports are read whole, or refused with what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs import RlqsOptions
from headgate.service.rlqs.messages import REPORTS, reported_bytes
from headgate.service.rlqs.reports import Usage, read_reports, whole_fields
from headgate.units import SECOND

SMALL = RlqsOptions(most_buckets=2, most_entries=2, longest_key=4, longest_value=5, most_bytes=200)


def _message(*buckets: dict[str, str], domain: str = "edge") -> Any:
    message = REPORTS(domain=domain)
    for bucket in buckets:
        message.bucket_quota_usages.add().bucket_id.bucket.update(bucket)
    return message


def test_a_report_is_read_with_its_bucket_sorted() -> None:
    message = _message({"b": "2", "a": "1"})
    one = message.bucket_quota_usages[0]
    one.time_elapsed.seconds, one.num_requests_allowed, one.num_requests_denied = 5, 2**64 - 1, 3
    reports = read_reports(message.SerializeToString(), RlqsOptions())
    assert reports.domain == "edge"
    assert reports.usages == (Usage((("a", "1"), ("b", "2")), 5 * SECOND, 2**64 - 1, 3),)


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (b"\xff\xff\xff", Code.INVALID_ARGUMENT, "not a RateLimitQuotaUsageReports"),
        (b"\x0a\x03\xff\xfe", Code.INVALID_ARGUMENT, "not a RateLimitQuotaUsageReports"),
        (_message({}), Code.INVALID_ARGUMENT, r"\[0\]: the bucket_id is empty"),
        (_message({"a": "1"}, {"": "1"}), Code.INVALID_ARGUMENT, r"\[1\].*an empty key"),
        (
            _message({"a": "", "b": "", "c": ""}),
            Code.RESOURCE_EXHAUSTED,
            "3 entries; the maximum is 2",
        ),
        (_message({"abcde": "1"}), Code.RESOURCE_EXHAUSTED, "a key has 5 .*maximum is 4"),
        (_message(domain="edge-1"), Code.RESOURCE_EXHAUSTED, "the domain has 6"),
    ],
)
def test_what_is_wrong_is_said(message: Any, code: Code, words: str) -> None:
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    with pytest.raises(CallError, match=words) as caught:
        read_reports(raw, SMALL)
    assert caught.value.code == code


def test_buckets_that_are_too_long_are_told_apart_and_far_too_many_are_not_read() -> None:
    message = _message({"a": "123456"}, {"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "4"})
    reports = read_reports(message.SerializeToString(), SMALL)
    assert [usage.bucket for usage in reports.usages] == [(("a", one),) for one in "123"]
    assert reports.unfit == ((("a", "123456"),),)


@given(
    st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=300), min_size=1, max_size=9),
    st.integers(0, 2**64 - 1),
)
def test_a_report_is_no_longer_than_is_reckoned_with(bucket: dict[str, str], count: int) -> None:
    message = _message(bucket, domain="")
    one = message.bucket_quota_usages[0]
    one.num_requests_allowed = one.num_requests_denied = count
    one.time_elapsed.seconds, one.time_elapsed.nanos = 2**31, 999_999_999
    assert message.ByteSize() <= reported_bytes(tuple(bucket.items()))


@given(st.binary(min_size=1, max_size=6))
@example(b"\xff")
@example("é".encode())
def test_a_bucket_is_read_or_passed_over_whatever_a_client_sends(value: bytes) -> None:
    """Its bytes stand as they are on the wire, as C++ writes them."""
    marker = "x" * len(value)
    raw = _message({"a": marker}, {"b": "2"}).SerializeToString()
    reports = read_reports(raw.replace(marker.encode(), value, 1), RlqsOptions())
    buckets = [usage.bucket for usage in reports.usages]
    is_utf8 = value.decode(errors="ignore").encode() == value
    first = [(("a", value.decode()),)] if is_utf8 else []
    assert buckets == [*first, (("b", "2"),)]
    assert not reports.unfit


@given(st.integers(0, 10), st.integers(1, 400))
def test_of_a_message_that_is_too_long_the_beginning_is_read(users: int, most: int) -> None:
    buckets = [{"user": f"{n}", "plan": "free"} for n in range(users)]
    raw = _message(*buckets).SerializeToString()
    reports = read_reports(raw, RlqsOptions(most_bytes=most))
    one = len(_message({"user": "0", "plan": "free"}, domain="").SerializeToString())
    front = len(_message().SerializeToString())
    whole = users if len(raw) <= most else max(0, most - front) // one
    assert reports.domain == ("edge" if most >= front else "")
    found = [dict(usage.bucket)["user"] for usage in reports.usages]
    assert found == [f"{n}" for n in range(whole)]


@given(st.binary(max_size=60), st.integers(0, 60))
def test_whatever_is_cut_off_something_comes_of_it(raw: bytes, most: int) -> None:
    found = whole_fields(raw, most)
    assert raw.startswith(found)
    assert whole_fields(found, most) == found


def test_of_numbers_and_other_fields_those_that_are_whole_are_left() -> None:
    fields = [b"\x08\x80\x01", b"\x11" + b"8" * 8, b"\x1d" + b"4" * 4, b"\x22\x03abc"]
    raw = b"".join(fields)
    ends = {0, 3, 12, 17, 22}
    for cut in range(len(raw) + 1):
        assert len(whole_fields(raw[:cut], 9)) == max(end for end in ends if end <= cut)
    assert whole_fields(raw, 2) == fields[0] + fields[1]
    assert whole_fields(b"\x08\x01\x0b", 9) == b"\x08\x01", "groups are of another time"


def test_a_negative_time_is_refused() -> None:
    message = _message({"a": "1"})
    message.bucket_quota_usages[0].time_elapsed.seconds = -1
    with pytest.raises(CallError, match="time_elapsed is negative"):
        read_reports(message.SerializeToString(), SMALL)
