"""A gRPC server on a loopback port, with methods for tests to call."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import uvloop

from headgate.service.grpc.method import CallError, Code, GrpcLimits
from headgate.service.grpc.server import GrpcServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from grpc import aio

    from headgate.service.tls import TlsFiles

Loop = Literal["asyncio", "uvloop"]
DEFAULT = GrpcLimits()
HOST = "127.0.0.1"


def run(main: Coroutine[Any, Any, None], loop: Loop = "asyncio") -> None:
    """Run *main* on a new loop, for 30 seconds at most."""
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main, 30))


class Trial:
    """Methods that do one thing each, and remember what became of them."""

    def __init__(self) -> None:
        self.asked = 0
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()

    def methods(self) -> dict[str, Any]:
        return {
            "/t.T/Echo": self.echo,
            "/t.T/Later": self.later,
            "/t.T/Fail": self.fail,
            "/t.T/FailLater": self.fail_later,
            "/t.T/Break": self.fall_over,
            "/t.T/BreakLater": self.fall_over_later,
            "/t.T/Hang": self.hang,
            "/t.T/Big": lambda request: b"x" * int(request),
        }

    def streams(self) -> dict[str, Any]:
        return {
            "/t.T/Chat": self.chat,
            "/t.T/Push": self.push,
            "/t.T/Ticks": self.ticks,
            "/t.T/Flood": self.flood,
            "/t.T/Deaf": self.deaf,
            "/t.T/Replies": lambda _: Replies(self),
            "/t.T/FailChat": self.fail_chat,
            "/t.T/BreakChat": self.break_chat,
        }

    def echo(self, request: bytes) -> bytes:
        self.asked += 1
        return request

    async def later(self, request: bytes) -> bytes:
        await asyncio.sleep(0)
        return request

    def fail(self, request: bytes) -> bytes:
        raise CallError(Code.NOT_FOUND, "nö, 100% not there\n")

    async def fail_later(self, request: bytes) -> bytes:
        await asyncio.sleep(0)
        raise CallError(Code.RESOURCE_EXHAUSTED, "later")

    def fall_over(self, request: bytes) -> bytes:
        raise ValueError("a secret")

    async def fall_over_later(self, request: bytes) -> bytes:
        await asyncio.sleep(0)
        raise ValueError("a secret")

    async def hang(self, request: bytes) -> bytes:
        self.began.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return request

    async def chat(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def push(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d" % number

    async def ticks(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                self.began.set()
                await self.release.wait()
        finally:
            self.cancelled.set()

    async def flood(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            self.asked += 1
            yield b"x" * 10_000

    async def deaf(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.began.set()
        await self.release.wait()
        async for request in requests:
            yield request

    async def fail_chat(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request
            raise CallError(Code.INVALID_ARGUMENT, "enough")

    async def break_chat(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for _ in requests:
            raise ValueError("a secret")
        yield b""


class Replies:
    """Replies that are no generator: whoever iterates has to close it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._trial.began.is_set():
            await self._trial.release.wait()
        self._trial.began.set()
        return b"one"

    async def aclose(self) -> None:
        self._trial.cancelled.set()


class Serving:
    """A server that runs, where it listens, and what its methods remember."""

    def __init__(self, server: GrpcServer, trial: Trial, port: int) -> None:
        self.server = server
        self.trial = trial
        self.port = port

    @property
    def target(self) -> str:
        return f"{HOST}:{self.port}"


def unary(channel: aio.Channel, path: str) -> Any:
    """The method at *path*, bytes to bytes."""
    return channel.unary_unary(path)


def many(channel: aio.Channel, path: str) -> Any:
    """A stream to the method at *path*."""
    return channel.stream_stream(path)()


def bound_socket() -> socket.socket:
    """A socket on a port of its own."""
    sock = socket.socket()
    sock.bind((HOST, 0))
    sock.setblocking(False)
    return sock


@asynccontextmanager
async def serving(
    *, limits: GrpcLimits = DEFAULT, tls: TlsFiles | None = None
) -> AsyncIterator[Serving]:
    """A server; drained without grace at the end."""
    trial = Trial()
    context = None if tls is None else tls.context("h2")
    server = GrpcServer(trial.methods(), trial.streams(), limits=limits, context=context)
    sock = bound_socket()
    port = sock.getsockname()[1]
    await server.start(sock)
    try:
        yield Serving(server, trial, port)
    finally:
        await server.drain(0.0)
