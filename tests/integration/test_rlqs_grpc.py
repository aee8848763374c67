"""The quota service behind real gRPC servers, spoken to by grpcio with Envoy's own messages."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from envoy.service.rate_limit_quota.v3 import (  # type: ignore[import-untyped]  # it has no types
    rlqs_pb2,
)

from headgate.clock import MonotonicClock
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.grpc.server import GrpcServer
from headgate.service.rlqs import PATH, QuotaCalls, RlqsOptions
from tests.support.rlqs_gateways import PER_USER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


HOST = "127.0.0.1"
ADA = {"user": "ada"}

Opener = Any
"""Opens a stream: a grpcio multi-callable."""


@asynccontextmanager
async def _serving() -> AsyncIterator[tuple[Opener, QuotaCalls]]:
    clock = MonotonicClock()
    engine = AsyncRuleEngine(read_policy(PER_USER), clock=clock)
    core = Core(rules=engine, clock=clock, secret=b"secret")
    calls = QuotaCalls(core, RlqsOptions())
    server = GrpcServer({}, {PATH: calls.stream_usage})
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    await calls.start()
    await server.start(listener)
    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
        yield (
            channel.stream_stream(
                PATH,
                request_serializer=rlqs_pb2.RateLimitQuotaUsageReports.SerializeToString,
                response_deserializer=rlqs_pb2.RateLimitQuotaResponse.FromString,
            ),
            calls,
        )
    await calls.aclose()
    await server.drain(1.0)
    await engine.aclose()


def _reports(domain: str, *buckets: dict[str, str]) -> Any:
    reports = rlqs_pb2.RateLimitQuotaUsageReports(domain=domain)
    for bucket in buckets:
        usage = reports.bucket_quota_usages.add(num_requests_allowed=1)
        usage.bucket_id.bucket.update(bucket)
    return reports


def _run(scene: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scene

    asyncio.run(bounded())


def test_many_gateways_are_given_no_more_than_the_limit() -> None:
    async def scene() -> None:
        async with _serving() as (open_stream, _):
            streams = [open_stream() for _ in range(5)]
            rate = 0.0
            for stream in streams:
                await stream.write(_reports("edge", ADA))
                *_, action = (await stream.read()).bucket_action
                assert dict(action.bucket_id.bucket) == ADA
                strategy = action.quota_assignment_action.rate_limit_strategy
                assert strategy.WhichOneof("strategy") in {"token_bucket", "blanket_rule"}
                given = strategy.token_bucket
                if given.max_tokens:
                    rate += given.tokens_per_fill.value / given.fill_interval.seconds
                else:
                    assert strategy.blanket_rule == strategy.DENY_ALL
            assert 0 < rate <= 100
            for stream in streams:
                stream.cancel()

    _run(scene())


def test_thousands_of_buckets_are_answered() -> None:
    async def scene() -> None:
        async with _serving() as (open_stream, _):
            stream = open_stream()
            await stream.write(_reports("edge", *({"user": str(n)} for n in range(2_000))))
            answered: set[str] = set()
            while len(answered) < 2_000:
                actions = (await stream.read()).bucket_action
                answered |= {action.bucket_id.bucket["user"] for action in actions}
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == grpc.StatusCode.OK

    _run(scene())


def test_a_stream_without_a_domain_ends_with_what_is_wrong() -> None:
    async def scene() -> None:
        async with _serving() as (open_stream, _):
            stream = open_stream()
            await stream.write(_reports("", ADA))
            with pytest.raises(grpc.aio.AioRpcError, match="no domain") as caught:
                await stream.read()
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    _run(scene())


def test_closing_the_service_ends_streams_cleanly() -> None:
    async def scene() -> None:
        async with _serving() as (open_stream, calls):
            stream = open_stream()
            await stream.write(_reports("edge", ADA))
            await stream.read()
            await calls.aclose()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == grpc.StatusCode.OK

    _run(scene())
