"""Transports for httpx that keep a pace and obey the server.

client = httpx.Client(transport=PacedTransport(pace="10/s"))
client = httpx.AsyncClient(transport=AsyncPacedTransport(pace="10/s"))
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from headgate.clients.attempt import KEY_FIELD
from headgate.clients.caller import Asked, AsyncCaller, AsyncOptions, Caller, Options, origin
from headgate.clients.not_sent import Cause, NotSentError
from headgate.clients.signals import Answer
from headgate.errors import not_installed

try:
    import httpx
except ModuleNotFoundError as error:
    raise not_installed("httpx", error) from error

if TYPE_CHECKING:
    from typing import Unpack

    from headgate.clients.not_sent import Discarding

__all__ = ["AsyncPacedTransport", "HttpxNotSentError", "PacedTransport"]


class HttpxNotSentError(NotSentError, httpx.TransportError):
    """`NotSentError`, for those who catch `httpx.TransportError`."""

    def __init__(
        self, destination: str, retry_after: float | None, cause: Cause, attempts: int = 0
    ) -> None:
        httpx.TransportError.__init__(self, destination)
        NotSentError.__init__(self, destination, retry_after, cause, attempts)


class PacedTransport(httpx.BaseTransport):
    """A transport that paces calls and obeys the server, around another one.

    *transport* is what sends, an `httpx.HTTPTransport()` if not given. The options are explained in
    `headgate.clients.Options`. Safe to share among threads. Raises
    `HttpxNotSentError` instead of waiting for longer than `Courtesy.max_wait`.
    """

    def __init__(
        self,
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[Options[httpx.Request]],
    ) -> None:
        self._caller: Caller[httpx.Request, httpx.Response]
        self._caller = Caller(_answer, _discard, **options)
        self._transport = httpx.HTTPTransport() if transport is None else transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* when it is its turn, and again if it may be and need be."""
        try:
            return self._caller.call(
                _asked(request), lambda: self._transport.handle_request(request)
            )
        except NotSentError as error:
            raise HttpxNotSentError(*error.args) from None

    def close(self) -> None:
        """Close the transport inside, and the store of the pace if it was opened here."""
        self._caller.close()
        self._transport.close()


class AsyncPacedTransport(httpx.AsyncBaseTransport):
    """The same for an event loop, around an `httpx.AsyncHTTPTransport()` if no other is given."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[AsyncOptions[httpx.Request]],
    ) -> None:
        self._caller: AsyncCaller[httpx.Request, httpx.Response]
        self._caller = AsyncCaller(_answer, _adiscard, **options)
        self._transport = httpx.AsyncHTTPTransport() if transport is None else transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request* when it is its turn, and again if it may be and need be."""
        try:
            return await self._caller.call(
                _asked(request), lambda: self._transport.handle_async_request(request)
            )
        except NotSentError as error:
            raise HttpxNotSentError(*error.args) from None

    async def aclose(self) -> None:
        """Close the transport inside, and the store of the pace if it was opened here."""
        await self._caller.aclose()
        await self._transport.aclose()


def _asked(request: httpx.Request) -> Asked[httpx.Request]:
    url = request.url
    return Asked(
        request,
        origin(url.scheme, url.host, url.port),
        request.method,
        request.headers.get(KEY_FIELD),
        replayable=isinstance(request.stream, httpx.ByteStream),
    )


def _answer(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.headers.get)


def _discard(response: httpx.Response, allowance: Discarding) -> None:
    """Read off what came over a network, and close it.

    The stream is read as it is: `iter_raw` gives the connection back before the watch has ended.
    """
    try:
        if not _is_read(response) and isinstance(response.stream, httpx.SyncByteStream):
            with suppress(httpx.TransportError), allowance.watch(_socket(response)):
                for chunk in response.stream:
                    if not allowance.goes_on(len(chunk)):
                        break
    finally:
        response.close()


async def _adiscard(response: httpx.Response, allowance: Discarding) -> None:
    try:
        if not _is_read(response):
            with suppress(httpx.TransportError, TimeoutError):
                async with asyncio.timeout(allowance.seconds):
                    async for chunk in response.aiter_raw():
                        if not allowance.goes_on(len(chunk)):
                            break
    finally:
        await response.aclose()


def _is_read(response: httpx.Response) -> bool:
    """Whether there is nothing to read: a transport without a network gives such responses."""
    return response.is_closed or response.is_stream_consumed


def _socket(response: httpx.Response) -> object:
    """The socket that is for this response alone: not one of HTTP/2, which others use too."""
    stream = response.extensions.get("network_stream")
    if stream is None or response.extensions.get("http_version") == b"HTTP/2":
        return None
    return stream.get_extra_info("socket")
