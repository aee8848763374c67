"""What is refused before anything is counted, and that nothing else is ever raised."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import RlsOptions
from headgate.service.rls.requests import Descriptor, Limit, read_call
from tests.examples import example_count
from tests.support import envoy_messages
from tests.support.rls_client import OK, OVER, Asker, desc, request

OPTIONS = RlsOptions(most_descriptors=3, most_entries=2, longest_key=8, longest_value=9)


def refused(message: bytes, options: RlsOptions = OPTIONS) -> tuple[Code, str]:
    with pytest.raises(CallError) as caught:
        read_call(message, options)
    return caught.value.code, str(caught.value)


def test_every_field_is_read() -> None:
    call = read_call(
        request(
            "edge",
            desc("user=ada", "plan=free", hits=3, limit=(7, "HOUR")),
            desc("user=bob", negative=True),
            hits=5,
        ),
        OPTIONS,
    )
    assert call.domain == "edge"
    assert call.hits == 5
    assert call.descriptors == (
        Descriptor((("user", "ada"), ("plan", "free")), Limit(7, "hour"), 3),
        Descriptor((("user", "bob"),), None, None, is_refund=True),
    )


def test_hits_of_zero_are_none_for_the_call_and_zero_for_a_descriptor() -> None:
    call = read_call(request("edge", desc("a=b", hits=0), desc("a=b")), OPTIONS)
    assert call.hits is None
    assert [one.hits for one in call.descriptors] == [0, None]


def test_what_is_no_message_is_an_invalid_argument() -> None:
    assert refused(b"\xff\xff\xff")[0] is Code.INVALID_ARGUMENT
    assert refused(b"\x0a\x02\xff")[0] is Code.INVALID_ARGUMENT


def test_a_call_needs_a_domain_and_a_descriptor() -> None:
    code, told = refused(request("", desc("a=b")))
    assert (code, "domain" in told) == (Code.INVALID_ARGUMENT, True)
    code, told = refused(request("edge"))
    assert (code, "descriptors is empty" in told) == (Code.INVALID_ARGUMENT, True)


def test_a_domain_may_not_be_too_long() -> None:
    assert refused(request("d" * 9, desc("a=b")))[0] is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "message",
    [
        request("edge", *[desc("a=b")] * 4),
        request("edge", desc("a=b", "c=d", "e=f")),
        request("edge", desc("k" * 9 + "=v")),
        request("edge", desc("k=" + "v" * 10)),
    ],
)
def test_too_much_of_anything_exhausts_a_resource(message: bytes) -> None:
    assert refused(message)[0] is Code.RESOURCE_EXHAUSTED


def test_a_message_may_not_be_too_large() -> None:
    message = request("edge", desc("a=" + "b" * 100))
    assert refused(message, RlsOptions(most_bytes=99))[0] is Code.RESOURCE_EXHAUSTED


def test_what_is_within_bounds_is_read() -> None:
    most = [desc("k" * 8 + "=" + "v" * 9, "c=d")] * 3
    assert len(read_call(request("domain78", *most), OPTIONS).descriptors) == 3


@pytest.mark.parametrize("hits", [2**32, 2**63, 2**64 - 1])
def test_hits_beyond_all_measure_are_refused(hits: int) -> None:
    code, told = refused(request("edge", desc("a=b", hits=hits)))
    assert code is Code.INVALID_ARGUMENT
    assert f"descriptors[0].hits_addend is {hits}" in told


@pytest.mark.parametrize("unit", [0, 8, 99])
def test_a_limit_needs_a_unit(unit: int) -> None:
    message = envoy_messages.service.RateLimitRequest(domain="edge")
    message.descriptors.add().limit.unit = unit
    code, told = refused(message.SerializeToString())
    assert code is Code.INVALID_ARGUMENT
    assert "limit.unit" in told


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
    answered_or_refused(message, Code.OK)


def test_different_bytes_are_different_callers() -> None:
    asker = Asker("version: 1\nrules: [{id: k, key_by: 'header:k', limit: 1/hour}]\n")

    def code(value: bytes) -> int:
        marker = "x" * len(value)
        message = request("edge", desc(f"k={marker}")).replace(marker.encode(), value)
        answer = asker.calls.should_rate_limit(message)
        return int(envoy_messages.service.RateLimitResponse.FromString(answer).overall_code)

    ways = [b"a\xff", b"a\xfe", "a\xff".encode(), "a\ufffd".encode(), b"a?"]
    assert [code(way) for way in ways] == [OK] * 5
    assert [code(way) for way in ways] == [OVER] * 5


def test_a_value_may_be_as_long_as_all_headers_that_envoy_takes() -> None:
    message = request("headgate", *[desc("path=/" + "x" * 98_000, "k=v")] * 3)
    assert len(read_call(message, RlsOptions()).descriptors) == 3


POLICY = """
version: 1
rules:
  - {id: all, key_by: global, limit: 5/minute}
  - {id: address, key_by: ip, limit: 3/minute sliding_window_log}
  - {id: paths, match: {endpoint: /a/**}, key_by: [endpoint, method, host], limit: 3/minute}
  - {id: trial, key_by: "header:x", limit: 1/hour, mode: shadow}
  - {id: spent, key_by: ip, limit: 9/hour, cost: {after: {header: x}}}
  - {id: spent-too, key_by: ip, limit: 9/hour, mode: shadow, cost: {after: {bytes: true, per: 3}}}
"""
ENVOY = """
domain: legacy
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: c, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
"""
ASKER = Asker(POLICY, ENVOY, RlsOptions(most_descriptors=8, metadata=True))

texts = st.one_of(
    st.sampled_from(["headgate.report", "headgate.decided", "spent", "all"]),
    st.sampled_from(["a", "b", "c", ":path", "/a/b", "remote_address", "::1", "x", ""]),
    st.text(max_size=8),
)
limits = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(["SECOND", "MONTH", "YEAR"]))
descs = st.builds(
    lambda entries, hits, limit, negative: desc(
        *entries, hits=hits, limit=limit, negative=negative
    ),
    st.lists(st.tuples(texts, texts), max_size=3),
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


def answered_or_refused(message: bytes, *codes: Code) -> None:
    code = Code.OK
    answer: object = b""
    try:
        answer = ASKER.calls.should_rate_limit(message)
    except CallError as error:
        code = error.code
    assert code in (codes or (Code.OK, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED))
    envoy_messages.service.RateLimitResponse.FromString(answer)


@settings(max_examples=example_count(300), deadline=None)
@given(st.binary(max_size=64))
@example(b"")
def test_no_bytes_raise_anything_unexpected(message: bytes) -> None:
    answered_or_refused(message)


@settings(max_examples=example_count(400), deadline=None)
@given(messages)
def test_every_message_is_answered_or_refused(message: bytes) -> None:
    answered_or_refused(message)


@settings(max_examples=example_count(400), deadline=None)
@given(messages, st.data())
def test_messages_with_bytes_changed_raise_nothing_unexpected(
    message: bytes, data: st.DataObject
) -> None:
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed)))
        changed[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    answered_or_refused(bytes(changed))
