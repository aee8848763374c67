"""Transports for httpx that pace calls and obey the limits of the server.

client = httpx.Client(transport=PacedTransport(pace="10/s"))
client = httpx.AsyncClient(transport=AsyncPacedTransport(pace="10/s"))
"""

from __future__ import annotations

from headgate.clients.caller import NotSentError
from headgate.clients.httpx_transports import AsyncTransport, BlockingTransport, Package
from headgate.errors import not_installed

try:
    import httpx
except ModuleNotFoundError as error:
    raise not_installed("httpx", error) from error

__all__ = ["AsyncPacedTransport", "HttpxNotSentError", "PacedTransport"]


class HttpxNotSentError(NotSentError, httpx.TransportError):
    """A `NotSentError` that is an `httpx.TransportError` too."""

    _request = None


_PACKAGE = Package(httpx, HttpxNotSentError)


class PacedTransport(
    BlockingTransport[httpx.BaseTransport, httpx.Request, httpx.Response], httpx.BaseTransport
):
    """A transport that paces calls and obeys the limits of the server, around another one.

    *transport* sends the requests, by default an `httpx.HTTPTransport()`. The options are those of
    `headgate.clients.Options`. Thread-safe. Raises `HttpxNotSentError` instead of waiting for
    longer than `RetryPolicy.max_wait`.
    """

    package = _PACKAGE


class AsyncPacedTransport(
    AsyncTransport[httpx.AsyncBaseTransport, httpx.Request, httpx.Response],
    httpx.AsyncBaseTransport,
):
    """`PacedTransport` for an event loop, by default around an `httpx.AsyncHTTPTransport()`."""

    package = _PACKAGE
