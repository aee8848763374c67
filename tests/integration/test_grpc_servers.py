"""The gRPC interceptors on real servers, blocking and async, with real clients."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from headgate.integrations.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor
from headgate.limits import Concurrency
from tests.support.servers import RedisServer, free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "grpc_server.py"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
RETRYING = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "20s",
                "maxBackoff": "20s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}


def echo(message: bytes, _context: Any) -> bytes:
    return message


def join(messages: Iterator[bytes], _context: Any) -> bytes:
    return b"".join(messages)


def ticks(_message: bytes, context: Any) -> Iterator[bytes]:
    while context.is_active():
        yield b"."
        time.sleep(0.01)


def chat(messages: Iterator[bytes], _context: Any) -> Iterator[bytes]:
    for message in messages:
        yield message.upper()


async def async_echo(message: bytes, _context: Any) -> bytes:
    return message


async def async_join(messages: AsyncIterator[bytes], _context: Any) -> bytes:
    return b"".join([message async for message in messages])


async def async_ticks(_message: bytes, _context: Any) -> AsyncIterator[bytes]:
    while True:
        yield b"."
        await asyncio.sleep(0.01)


async def async_chat(messages: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message.upper()


KINDS = ("unary_unary", "stream_unary", "unary_stream", "stream_stream")


def handlers(*behaviors: Any) -> Any:
    made = {
        kind: getattr(grpc, f"{kind}_rpc_method_handler")(behavior)
        for kind, behavior in zip(KINDS, behaviors, strict=True)
    }
    return (grpc.method_handlers_generic_handler("t.T", made),)


@contextmanager
def blocking(**options: Any) -> Iterator[str]:
    """The address of a `grpc.server`."""
    pool = ThreadPoolExecutor(8)
    interceptor = RateLimitInterceptor(**options)
    server = grpc.server(pool, interceptors=[interceptor])
    server.add_generic_rpc_handlers(handlers(echo, join, ticks, chat))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
        pool.shutdown()
        interceptor.limiter.close()


@contextmanager
def asynchronous(**options: Any) -> Iterator[str]:
    """The address of a `grpc.aio.server`, in a thread."""
    addresses: list[str] = []
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        interceptor = AsyncRateLimitInterceptor(**options)
        server = grpc.aio.server(interceptors=[interceptor])
        server.add_generic_rpc_handlers(handlers(async_echo, async_join, async_ticks, async_chat))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        done = asyncio.Event()
        loops.append((asyncio.get_running_loop(), done))
        addresses.append(f"127.0.0.1:{port}")
        await done.wait()
        await server.stop(0)
        await interceptor.limiter.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    wait_until(lambda: bool(addresses) or not thread.is_alive(), "the server listens")
    try:
        yield addresses[0]
    finally:
        loop, done = loops[0]
        loop.call_soon_threadsafe(done.set)
        thread.join()


SERVERS = pytest.mark.parametrize("serve", [blocking, asynchronous])


def ask(channel: grpc.Channel, kind: str) -> Any:
    call: Any = getattr(channel, kind)(f"/t.T/{kind}")
    return call(iter([b"a", b"b"]) if kind.startswith("stream") else b"a")


def code_of(channel: grpc.Channel, kind: str) -> grpc.StatusCode:
    """The status of a call of which a client reads the first response."""
    try:
        result = ask(channel, kind)
        if not isinstance(result, bytes):
            next(result)
            result.cancel()
    except grpc.RpcError as error:
        status: grpc.StatusCode = error.code()
        return status
    return grpc.StatusCode.OK


@SERVERS
@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_every_shape_are_limited(serve: Any, kind: str) -> None:
    with serve(limits="2/minute") as address, grpc.insecure_channel(address) as channel:
        codes = [code_of(channel, kind) for _ in range(3)]
        assert codes == [grpc.StatusCode.OK] * 2 + [EXHAUSTED]


@SERVERS
def test_both_sides_of_a_stream_pass_as_they_come(serve: Any) -> None:
    with serve(limits="9/minute") as address, grpc.insecure_channel(address) as channel:
        assert ask(channel, "stream_unary") == b"ab"
        assert list(ask(channel, "stream_stream")) == [b"A", b"B"]


@SERVERS
def test_metadata_tells_what_is_left_and_when_to_retry(serve: Any) -> None:
    with serve(limits="1/minute") as address, grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/t.T/unary_unary")
        _, allowed = call.with_call(b"x")
        assert dict(allowed.trailing_metadata())["ratelimit-policy"] == '"default";q=1;w=60'
        with pytest.raises(grpc.RpcError) as denied:
            call(b"x")
        error: Any = denied.value
        assert 50_000 < int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) <= 60_000


@SERVERS
def test_a_client_that_retries_waits_as_long_as_it_is_told(serve: Any) -> None:
    options = [("grpc.service_config", json.dumps(RETRYING)), ("grpc.enable_retries", 1)]
    with (
        serve(limits="1/s") as address,
        grpc.insecure_channel(address, options=options) as channel,
    ):
        call: Any = channel.unary_unary("/t.T/unary_unary")
        # its own backoff of 20 s would exceed the deadline of the call
        assert [call(b"x", timeout=10) for _ in range(2)] == [b"x", b"x"]


@SERVERS
def test_a_stream_that_the_client_cancels_releases_its_slot(serve: Any) -> None:
    with serve(limits=Concurrency(1, 60)) as address, grpc.insecure_channel(address) as channel:
        stream = ask(channel, "unary_stream")
        next(stream)
        assert code_of(channel, "unary_unary") is EXHAUSTED
        stream.cancel()
        wait_until(
            lambda: code_of(channel, "unary_unary") is grpc.StatusCode.OK, "the slot is released"
        )


@SERVERS
def test_a_client_whose_connection_drops_releases_its_slot(serve: Any) -> None:
    with serve(limits=Concurrency(1, 60)) as address, grpc.insecure_channel(address) as channel:
        gone = grpc.insecure_channel(address)
        stream = ask(gone, "unary_stream")
        next(stream)
        assert code_of(channel, "unary_unary") is EXHAUSTED
        gone.close()
        wait_until(
            lambda: code_of(channel, "unary_unary") is grpc.StatusCode.OK, "the slot is released"
        )


def test_two_servers_share_a_limit_on_redis() -> None:
    with (
        RedisServer() as store,
        blocking(limits="3/minute", store=store.url) as one,
        asynchronous(limits="3/minute", store=store.url) as other,
        grpc.insecure_channel(one) as first,
        grpc.insecure_channel(other) as second,
    ):
        codes = [code_of(channel, "unary_unary") for channel in (first, second) * 2]
        assert codes == [grpc.StatusCode.OK] * 3 + [EXHAUSTED]


def test_the_example_does_what_it_says(tmp_path: Path) -> None:
    port = free_port()
    call = ["env", f"PORT={port}", sys.executable, str(EXAMPLE)]
    process = Process(call, tmp_path / "log")
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(30)
            login: Any = channel.unary_unary("/demo.Words/Login")
            assert [login(b"ann") for _ in range(5)] == [b"welcome, ann"] * 5
            with pytest.raises(grpc.RpcError) as denied:
                login(b"ann")
            error: Any = denied.value
            assert error.code() is EXHAUSTED
            assert login(b"ann", metadata=(("x-api-key", "other"),)) == b"welcome, ann"
            watch: Any = channel.unary_stream("/demo.Words/Watch")
            stream = watch(b"")
            assert next(stream) == b"0"
            with pytest.raises(grpc.RpcError):
                next(watch(b""))
            stream.cancel()
            check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert check(b"") == b"\x08\x01"
    finally:
        process.terminate()
        release_port(port)
