"""Calls to the gRPC interceptors without a network: servicer contexts that record."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from headgate.integrations.grpc import AsyncRateLimitInterceptor, RateLimitInterceptor

if TYPE_CHECKING:
    from collections.abc import Callable

METHOD = "/shop.Orders/Create"


class AbortedError(Exception):
    """What `abort` raises."""


class FakeContext:
    """A servicer context of a blocking server."""

    def __init__(self, peer: str = "ipv4:192.0.2.7:5000", **metadata: str | bytes) -> None:
        self._peer = peer
        self._metadata = tuple((key.replace("_", "-"), value) for key, value in metadata.items())
        self.status: grpc.StatusCode | None = None
        self.details = ""
        self.trailers: dict[str, Any] = {}

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Any:
        return self._metadata

    def set_trailing_metadata(self, lines: Any) -> None:
        self.trailers = dict(lines)

    def trailing_metadata(self) -> Any:
        return tuple(self.trailers.items())

    def code(self) -> grpc.StatusCode | None:
        return self.status

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code

    def abort(self, code: grpc.StatusCode, details: str) -> Any:
        self.status, self.details = code, details
        raise AbortedError


class AsyncFakeContext(FakeContext):
    """A servicer context of `grpc.aio`."""

    def __init__(self, **metadata: Any) -> None:
        super().__init__(**metadata)
        self.has_written = asyncio.Event()

    async def abort(self, code: grpc.StatusCode, details: str) -> Any:
        self.status, self.details = code, details
        raise AbortedError

    async def write(self, message: bytes) -> None:
        self.has_written.set()


def handler(
    interceptor: RateLimitInterceptor | AsyncRateLimitInterceptor,
    behavior: Callable[..., Any],
    kind: str = "unary_unary",
    method: str = METHOD,
) -> Callable[..., Any]:
    """The function that a server calls for *behavior* behind *interceptor*."""
    made = getattr(grpc, f"{kind}_rpc_method_handler")(behavior)

    class Details:
        invocation_metadata: Any = ()

    details = Details()
    details.method = method  # type: ignore[attr-defined]
    if isinstance(interceptor, RateLimitInterceptor):
        found = interceptor.intercept_service(lambda _: made, details)  # type: ignore[arg-type]
    else:

        async def continuation(_: Any) -> Any:
            return made

        found = asyncio.run(interceptor.intercept_service(continuation, details))  # type: ignore[arg-type]
    assert found is not None
    function: Callable[..., Any] = getattr(found, kind)
    return function
