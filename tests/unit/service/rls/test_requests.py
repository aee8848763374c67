"""What is refused before anything is counted."""

from __future__ import annotations

import pytest

from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import RlsOptions
from headgate.service.rls.requests import Descriptor, Limit, read_call
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
