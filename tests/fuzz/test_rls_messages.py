"""Any bytes are a rate limit call that is answered or refused, and reports are read or refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs import RlqsOptions
from headgate.service.rlqs.messages import REPORTS
from headgate.service.rlqs.reports import read_reports
from headgate.service.rls import RlsOptions
from headgate.service.rls.requests import read_call
from tests.support import envoy_messages
from tests.support.fuzzing import (
    Changes,
    anything,
    bounded,
    changed,
    changes,
    fuzz_count,
    paths_in,
    replaced,
)
from tests.support.rls_client import Asker, desc, request

POLICY = """
version: 1
rules:
  - {id: all, key_by: global, limit: 5/minute}
  - {id: address, key_by: ip, limit: 3/minute sliding_window_log}
  - {id: paths, match: {endpoint: /a/**}, key_by: [endpoint, method, host], limit: 3/minute}
  - {id: trial, key_by: "header:x", limit: 1/hour, mode: shadow}
  - {id: spent, key_by: ip, limit: 9/hour, cost: {after: {header: x}}}
  - {id: spent-too, key_by: ip, limit: 9/hour, mode: shadow, cost: {after: {bytes: true, per: 3}}}
  - {id: tokens, match: {model: "*"}, key_by: ip, limit: 99999/hour, cost: {llm: tokens}}
  - {id: slots, key_by: header:x, concurrency: {limit: 9, ttl: 1m}}
"""
ENVOY = """
domain: legacy
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: c, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
"""
ASKER = Asker(POLICY, ENVOY, RlsOptions(most_descriptors=8, metadata=True))
REFUSALS = (Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED)

texts = st.one_of(
    st.sampled_from(["headgate.report", "headgate.decided", "spent", "all"]),
    st.sampled_from(["headgate.settles", "headgate.settle", "headgate.reservation"]),
    st.sampled_from(["headgate.llm.max_tokens", "headgate.llm.bytes", "headgate.llm.input", "9"]),
    st.sampled_from(["a", "b", "c", ":path", "/a/b", "remote_address", "::1", "x", ""]),
    st.text(max_size=8),
)
limits = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(["SECOND", "MONTH", "YEAR"]))
descs = st.builds(
    lambda entries, hits, limit, negative: desc(
        *entries, hits=hits, limit=limit, negative=negative
    ),
    st.lists(st.tuples(texts, texts), max_size=5),
    st.one_of(st.none(), st.integers(0, 3), st.integers(0, 2**64 - 1)),
    st.one_of(st.none(), limits),
    st.booleans(),
)
messages = st.builds(
    lambda domain, several, hits: request(domain, *several, hits=hits),
    st.one_of(st.sampled_from(["legacy", "edge", "headgate"]), st.text(max_size=5)),
    st.lists(descs, max_size=4),
    st.one_of(st.just(0), st.integers(0, 2**32 - 1)),
)
GOOD = request(
    "legacy",
    desc("a=1", hits=2, limit=(7, "HOUR")),
    desc("b=é", negative=True),
    desc("headgate.report=spent", "remote_address=192.0.2.1", hits=3),
    hits=5,
)
PIECES = st.binary(max_size=3) | st.sampled_from(
    (
        *(
            b"\x0a",
            b"\x12",
            b"\x1a",
            b"\x00",
            b"\xff" * 9 + b"\x01",
            b"\xff" * 10,
            b"\x0b",
            b"\x7f",
        ),
        *(b"\x80\x80\x80\x80\x00", b"\xed\xa0\x80", b"legacy", b"\x0a\x01a", b"\x12\x00"),
    )
)


def answer(message: bytes) -> None:
    """The answer to *message* is one that Envoy can read, or a refusal."""
    with bounded():
        try:
            reply = ASKER.calls.should_rate_limit(message)
        except CallError as error:
            assert error.code in REFUSALS
        else:
            envoy_messages.service.RateLimitResponse.FromString(reply)


@settings(max_examples=fuzz_count(300))
@given(st.binary(max_size=64))
@example(b"")
@example(b"\x0a\x06legacy\x12\x00" * 9)
def test_noise_is_answered_or_refused(message: bytes) -> None:
    answer(message)


@settings(max_examples=fuzz_count(300))
@given(messages)
def test_every_message_is_answered_or_refused(message: bytes) -> None:
    answer(message)


@settings(max_examples=fuzz_count(300))
@given(changes(len(GOOD), PIECES))
def test_a_damaged_message_is_answered_or_refused(several: Changes) -> None:
    answer(changed(GOOD, several))


@pytest.mark.parametrize("domain", ["edge", "headgate", "legacy"])
@given(st.binary(min_size=1, max_size=8))
@example(b"\xff")
@example(b"caf\xe9")
@example("café".encode())
@example(b"\xed\xb3\xbf")  # what stands for 0xff, written out
def test_values_are_read_whatever_bytes_a_client_sends(domain: str, value: bytes) -> None:
    """Envoy passes them on as they are. If the call failed, a rule that is open would let pass."""
    marker = "x" * len(value)
    message = request(domain, desc("path=/a/b", f"k={marker}")).replace(marker.encode(), value, 1)
    (one,) = read_call(message, RlsOptions()).descriptors
    assert [key for key, _ in one.entries] == ["path", "k"]
    assert one.entries[1][1].encode("utf-8", "surrogateescape") == value
    reply = ASKER.calls.should_rate_limit(message)
    envoy_messages.service.RateLimitResponse.FromString(reply)


REPORT = REPORTS(domain="edge")
for _user in ("ada", "bob"):
    _usage = REPORT.bucket_quota_usages.add(num_requests_allowed=3, num_requests_denied=1)
    _usage.bucket_id.bucket.update({"user": _user, "plan": "free"})
    _usage.time_elapsed.seconds = 5
REPORT_BYTES = REPORT.SerializeToString()


@settings(max_examples=fuzz_count(300))
@given(changes(len(REPORT_BYTES), PIECES) | st.just([]), st.integers(1, 400))
def test_a_damaged_report_is_read_or_refused(several: Changes, most: int) -> None:
    with bounded():
        try:
            reports = read_reports(changed(REPORT_BYTES, several), RlqsOptions(most_bytes=most))
        except CallError as error:
            assert error.code in REFUSALS
        else:
            assert all(usage.bucket for usage in reports.usages)


DATA: Any = {
    "domain": "legacy",
    "descriptors": [{"entries": [{"key": "a", "value": "1"}], "hitsAddend": "2"}],
    "hitsAddend": 1,
}


@settings(max_examples=fuzz_count(300))
@given(st.sampled_from(paths_in(DATA)), anything)
@example((), {"domain": "\ud800", "descriptors": [{"entries": [{"key": "\ud800"}]}]})
@example((), {"domain": "legacy", "descriptors": [{"entries": [{"key": "a", "value": "\ud800"}]}]})
def test_any_json_is_answered_or_refused(path: tuple[Any, ...], value: Any) -> None:
    body = json.dumps(replaced(DATA, path, value)).encode()
    with bounded():
        status, reply = asyncio.run(ASKER.calls.json(body))
    assert status in (200, 400, 429), reply
    json.loads(reply)
