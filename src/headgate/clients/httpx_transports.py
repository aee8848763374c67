"""The transports for httpx and for httpx2, its successor, which have the same classes.

`httpx` and `httpx2` make their transports of these, each with its own package as a `Package`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from headgate.clients.caller import (
    KEY_FIELD,
    Adapter,
    Caller,
    NotSentError,
    OutgoingRequest,
    RequestInfo,
    origin,
)
from headgate.clients.signals import ResponseInfo
from headgate.engine.request import Request
from headgate.errors import OptionError
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Unpack

    from headgate.clients.caller import DiscardBudget
    from headgate.clients.options import AsyncOptions, Options
    from headgate.clients.policy_limiter import LimitedCall
    from headgate.runtime.effects import Effects

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


class BlockingTransport(Generic[T, Q, R]):
    """A transport of *package* around another one, a *T*."""

    package: ClassVar[Package]

    def __init__(self, transport: T | None = None, **options: Unpack[Options[Q]]) -> None:
        package = self.package
        package.check(transport, package.module.BaseTransport)
        self._caller: Caller[Q, R] = Caller(
            package.info,
            _response,
            package.discard,
            package.error,
            options,
            adapter=Adapter(package.outgoing, package.with_body, package.watch, package.unsent),
        )
        self._transport: Any = package.module.HTTPTransport() if transport is None else transport

    def handle_request(self, request: Q) -> R:
        """Send *request* when it may be sent, and again if it should be."""
        return drive(self._caller.calling(request, self._transport.handle_request))

    def close(self) -> None:
        """Close the inner transport, and the store if it was opened here."""
        drive(self._caller.closing())
        self._transport.close()


class AsyncTransport(Generic[T, Q, R]):
    """`BlockingTransport` for an event loop."""

    package: ClassVar[Package]

    def __init__(self, transport: T | None = None, **options: Unpack[AsyncOptions[Q]]) -> None:
        package = self.package
        package.check(transport, package.module.AsyncBaseTransport)
        self._caller: Caller[Q, R] = Caller(
            package.info,
            _response,
            package.adiscard,
            package.error,
            options,
            is_async=True,
            adapter=Adapter(package.outgoing, package.with_body, package.awatch, package.unsent),
        )
        inner = package.module.AsyncHTTPTransport() if transport is None else transport
        self._transport: Any = inner

    async def handle_async_request(self, request: Q) -> R:
        """Send *request* when it may be sent, and again if it should be."""
        return await adrive(self._caller.calling(request, self._transport.handle_async_request))

    async def aclose(self) -> None:
        """Close the inner transport, and the store if it was opened here."""
        await adrive(self._caller.closing())
        await self._transport.aclose()


class Package:
    """The functions of a `Caller` for *module*, httpx or httpx2. *error* is raised for a call that
    is not sent."""

    def __init__(self, module: Any, error: type[NotSentError]) -> None:
        self.module = module
        self.error = error
        self.unsent = module.ConnectError, module.ConnectTimeout, module.PoolTimeout
        self._watched = type("WatchedStream", (_WatchedStream, module.SyncByteStream), {})
        self._awatched = type("WatchedStream", (_AsyncWatchedStream, module.AsyncByteStream), {})

    def check(self, transport: object, kind: type) -> None:
        """Raise `OptionError` unless *transport* is a *kind*, or None."""
        if transport is not None and not isinstance(transport, kind):
            raise OptionError(
                f"transport is {transport!r}; expected an {self.module.__name__}.{kind.__name__}; "
                "the pace is an option by name: pace='10/s'"
            )

    def info(self, request: Any) -> RequestInfo:
        url = request.url
        return RequestInfo(
            origin(url.scheme, url.host, url.port),
            url.path,
            request.method,
            request.headers.get(KEY_FIELD),
            self._is_whole(request),
        )

    def outgoing(self, request: Any) -> OutgoingRequest:
        url, headers = request.url, request.headers
        body = request.read() if self._is_whole(request) else None
        length = headers.get("content-length", "")
        size = len(body) if body is not None else int(length) if length.isdecimal() else 0
        path = url.raw_path.partition(b"?")[0].decode("ascii")
        lines = tuple(headers.multi_items())
        return OutgoingRequest(Request(request.method, path, url.host, lines), body, size)

    def with_body(self, request: Any, body: bytes) -> Any:
        lines = [line for line in request.headers.multi_items() if line[0] != "content-length"]
        return self.module.Request(
            request.method, request.url, headers=lines, content=body, extensions=request.extensions
        )

    def watch(self, response: Any, limited: LimitedCall) -> Effects[None]:
        """Have *limited* read *response*, at once if that came whole, from no network."""
        stream = response.stream
        if _is_read(response) and isinstance(stream, self.module.ByteStream):
            limited.feed(b"".join(stream))
            yield from limited.ending()
        else:
            response.stream = self._watched(stream, limited)

    def awatch(self, response: Any, limited: LimitedCall) -> Effects[None]:
        stream = response.stream
        if _is_read(response) and isinstance(stream, self.module.ByteStream):
            yield from self.watch(response, limited)
        else:
            response.stream = self._awatched(stream, limited)

    def discard(self, response: Any, budget: DiscardBudget) -> None:
        """Read a response that came over a network to its end, and close it.

        Reads the stream itself: `iter_raw` gives the connection back before the watch has ended.
        """
        try:
            if not _is_read(response) and isinstance(response.stream, self.module.SyncByteStream):
                with suppress(self.module.TransportError), budget.watch(_socket(response)):
                    for chunk in response.stream:
                        if not budget.allows_more(len(chunk)):
                            break
        finally:
            response.close()

    async def adiscard(self, response: Any, budget: DiscardBudget) -> None:
        try:
            if not _is_read(response):
                with suppress(self.module.TransportError, TimeoutError):
                    async with asyncio.timeout(budget.seconds):
                        async for chunk in response.aiter_raw():
                            if not budget.allows_more(len(chunk)):
                                break
        finally:
            await response.aclose()

    def _is_whole(self, request: Any) -> bool:
        """True if the body of *request* is there, so that it can be read and sent again."""
        return isinstance(request.stream, self.module.ByteStream)


class _WatchedStream:
    """The body of a response, read by a `LimitedCall` while it passes."""

    def __init__(self, stream: Any, limited: LimitedCall) -> None:
        self._stream = stream
        self._limited = limited

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._limited.feed(chunk)
            yield chunk

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            drive(self._limited.ending())


class _AsyncWatchedStream:
    """`_WatchedStream` for an event loop."""

    def __init__(self, stream: Any, limited: LimitedCall) -> None:
        self._stream = stream
        self._limited = limited

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._limited.feed(chunk)
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            await adrive(self._limited.ending())


def _response(response: Any) -> ResponseInfo:
    return ResponseInfo(response.status_code, response.headers.get)


def _is_read(response: Any) -> bool:
    """Return True if there is nothing to read: a transport without a network has such responses."""
    return bool(response.is_closed or response.is_stream_consumed)


def _socket(response: Any) -> object:
    """Return the socket of this response alone; that of HTTP/2 carries other responses too."""
    stream = response.extensions.get("network_stream")
    if stream is None or response.extensions.get("http_version") == b"HTTP/2":
        return None
    return stream.get_extra_info("socket")
