"""Answers for gRPC clients."""

from headgate.responses import GrpcStatus, ResponseOptions, grpc_status
from tests.support.decisions import answer, decided, outage, refused, told


def test_what_is_allowed_is_ok() -> None:
    status = grpc_status(answer(told(decided())))
    assert status == GrpcStatus(0)
    assert status.trailers == []


def test_a_limit_that_was_exceeded_is_resource_exhausted_and_pushes_back() -> None:
    status = grpc_status(answer(told(refused())))
    assert status == GrpcStatus(
        8, "Too many requests: 100 per minute. Try again in 23 seconds.", 22_400
    )
    assert status.trailers == [("grpc-retry-pushback-ms", "22400")]


def test_an_outage_is_unavailable() -> None:
    status = grpc_status(answer(told(outage()), jitter=0.5))
    assert (status.code, status.pushback_ms) == (14, 3_000)


def test_a_client_that_waits_in_vain_is_told_not_to_retry() -> None:
    never = grpc_status(answer(told(decided(retry_ms=None))))
    assert never.trailers == [("grpc-retry-pushback-ms", "-1")]


def test_a_wait_that_32_bits_cannot_hold_is_no_wait() -> None:
    assert grpc_status(answer(told(refused(retry_ms=2**31 - 1)))).pushback_ms == 2**31 - 1
    assert grpc_status(answer(told(refused(retry_ms=2**31)))).pushback_ms == -1


def test_the_push_back_is_spread_like_retry_after() -> None:
    it = answer(told(refused(retry_ms=1_000)), jitter=1.0)
    assert grpc_status(it, options=ResponseOptions(jitter=0.25)).pushback_ms == 1_250
