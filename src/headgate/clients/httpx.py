"""Transports for httpx that pace calls and obey the limits of the server.

client = httpx.Client(transport=PacedTransport(pace="10/s"))
client = httpx.AsyncClient(transport=AsyncPacedTransport(pace="10/s"))
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

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
from headgate.errors import OptionError, not_installed
from headgate.runtime.drivers import adrive, drive

try:
    import httpx
except ModuleNotFoundError as error:
    raise not_installed("httpx", error) from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Unpack

    from headgate.clients.caller import DiscardBudget
    from headgate.clients.options import AsyncOptions, Options
    from headgate.clients.policy_limiter import LimitedCall
    from headgate.runtime.effects import Effects

__all__ = ["AsyncPacedTransport", "HttpxNotSentError", "PacedTransport"]


class HttpxNotSentError(NotSentError, httpx.TransportError):
    """A `NotSentError` that is an `httpx.TransportError` too."""

    _request = None


class PacedTransport(httpx.BaseTransport):
    """A transport that paces calls and obeys the limits of the server, around another one.

    *transport* sends the requests, by default an `httpx.HTTPTransport()`. The options are those of
    `headgate.clients.Options`. Thread-safe. Raises `HttpxNotSentError` instead of waiting for
    longer than `RetryPolicy.max_wait`.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[Options[httpx.Request]],
    ) -> None:
        _check_transport(transport, httpx.BaseTransport)
        self._caller: Caller[httpx.Request, httpx.Response]
        self._caller = Caller(
            _request, _response, _discard, HttpxNotSentError, options, adapter=_BLOCKING
        )
        self._transport = httpx.HTTPTransport() if transport is None else transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* when it may be sent, and again if it should be."""
        return drive(self._caller.calling(request, self._transport.handle_request))

    def close(self) -> None:
        """Close the inner transport, and the store of the pace if it was opened here."""
        drive(self._caller.closing())
        self._transport.close()


class AsyncPacedTransport(httpx.AsyncBaseTransport):
    """`PacedTransport` for an event loop, by default around an `httpx.AsyncHTTPTransport()`."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[AsyncOptions[httpx.Request]],
    ) -> None:
        _check_transport(transport, httpx.AsyncBaseTransport)
        self._caller: Caller[httpx.Request, httpx.Response]
        self._caller = Caller(
            _request,
            _response,
            _adiscard,
            HttpxNotSentError,
            options,
            is_async=True,
            adapter=_ASYNC,
        )
        self._transport = httpx.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* when it may be sent, and again if it should be."""
        return await adrive(self._caller.calling(request, self._transport.handle_async_request))

    async def aclose(self) -> None:
        """Close the inner transport, and the store of the pace if it was opened here."""
        await adrive(self._caller.closing())
        await self._transport.aclose()


def _check_transport(transport: object, kind: type) -> None:
    if transport is not None and not isinstance(transport, kind):
        raise OptionError(
            f"transport is {transport!r}; expected an httpx.{kind.__name__}; "
            "the pace is an option by name: pace='10/s'"
        )


def _request(request: httpx.Request) -> RequestInfo:
    url = request.url
    return RequestInfo(
        origin(url.scheme, url.host, url.port),
        url.path,
        request.method,
        request.headers.get(KEY_FIELD),
        isinstance(request.stream, httpx.ByteStream),
    )


def _response(response: httpx.Response) -> ResponseInfo:
    return ResponseInfo(response.status_code, response.headers.get)


def _outgoing(request: httpx.Request) -> OutgoingRequest:
    url, headers = request.url, request.headers
    body = request.read() if isinstance(request.stream, httpx.ByteStream) else None
    length = headers.get("content-length", "")
    size = len(body) if body is not None else int(length) if length.isdecimal() else 0
    path = url.raw_path.partition(b"?")[0].decode("ascii")
    lines = tuple(headers.multi_items())
    return OutgoingRequest(Request(request.method, path, url.host, lines), body, size)


def _with_body(request: httpx.Request, body: bytes) -> httpx.Request:
    lines = [line for line in request.headers.multi_items() if line[0] != "content-length"]
    return httpx.Request(
        request.method, request.url, headers=lines, content=body, extensions=request.extensions
    )


class _WatchedStream(httpx.SyncByteStream):
    """The body of a response, read by a `LimitedCall` while it passes."""

    def __init__(self, stream: httpx.SyncByteStream, limited: LimitedCall) -> None:
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


class _AsyncWatchedStream(httpx.AsyncByteStream):
    """`_WatchedStream` for an event loop."""

    def __init__(self, stream: httpx.AsyncByteStream, limited: LimitedCall) -> None:
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


def _watch(response: httpx.Response, limited: LimitedCall) -> Effects[None]:
    """Have *limited* read *response*, at once if that came whole, from no network."""
    stream = response.stream
    if _is_read(response) and isinstance(stream, httpx.ByteStream):
        limited.feed(b"".join(stream))
        yield from limited.ending()
    elif isinstance(stream, httpx.SyncByteStream):
        response.stream = _WatchedStream(stream, limited)


def _awatch(response: httpx.Response, limited: LimitedCall) -> Effects[None]:
    stream = response.stream
    if isinstance(stream, httpx.ByteStream):
        yield from _watch(response, limited)
    elif isinstance(stream, httpx.AsyncByteStream):
        response.stream = _AsyncWatchedStream(stream, limited)


_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BLOCKING: Final = Adapter(_outgoing, _with_body, _watch, _UNSENT)
_ASYNC: Final = Adapter(_outgoing, _with_body, _awatch, _UNSENT)


def _discard(response: httpx.Response, budget: DiscardBudget) -> None:
    """Read a response that came over a network to its end, and close it.

    Reads the stream itself: `iter_raw` gives the connection back before the watch has ended.
    """
    try:
        if not _is_read(response) and isinstance(response.stream, httpx.SyncByteStream):
            with suppress(httpx.TransportError), budget.watch(_socket(response)):
                for chunk in response.stream:
                    if not budget.allows_more(len(chunk)):
                        break
    finally:
        response.close()


async def _adiscard(response: httpx.Response, budget: DiscardBudget) -> None:
    try:
        if not _is_read(response):
            with suppress(httpx.TransportError, TimeoutError):
                async with asyncio.timeout(budget.seconds):
                    async for chunk in response.aiter_raw():
                        if not budget.allows_more(len(chunk)):
                            break
    finally:
        await response.aclose()


def _is_read(response: httpx.Response) -> bool:
    """Return True if there is nothing to read: a transport without a network has such responses."""
    return response.is_closed or response.is_stream_consumed


def _socket(response: httpx.Response) -> object:
    """Return the socket of this response alone; that of HTTP/2 carries other responses too."""
    stream = response.extensions.get("network_stream")
    if stream is None or response.extensions.get("http_version") == b"HTTP/2":
        return None
    return stream.get_extra_info("socket")
