"""Transports for httpx2 that pace calls and obey the limits of the server.

client = httpx2.Client(transport=PacedTransport(pace="10/s"))
client = httpx2.AsyncClient(transport=AsyncPacedTransport(pace="10/s"))
"""

from __future__ import annotations

from headgate.clients.caller import NotSentError
from headgate.clients.httpx_transports import AsyncTransport, BlockingTransport, Package
from headgate.errors import not_installed

try:
    import httpx2
except ModuleNotFoundError as error:
    raise not_installed("httpx2", error) from error

__all__ = ["AsyncPacedTransport", "Httpx2NotSentError", "PacedTransport"]


class Httpx2NotSentError(NotSentError, httpx2.TransportError):
    """A `NotSentError` that is an `httpx2.TransportError` too."""

    _request = None


_PACKAGE = Package(httpx2, Httpx2NotSentError)


class PacedTransport(
    BlockingTransport[httpx2.BaseTransport, httpx2.Request, httpx2.Response], httpx2.BaseTransport
):
    """A transport that paces calls and obeys the limits of the server, around another one.

    *transport* sends the requests, by default an `httpx2.HTTPTransport()`. The options are those of
    `headgate.clients.Options`. Thread-safe. Raises `Httpx2NotSentError` instead of waiting for
    longer than `RetryPolicy.max_wait`.
    """

    package = _PACKAGE


class AsyncPacedTransport(
    AsyncTransport[httpx2.AsyncBaseTransport, httpx2.Request, httpx2.Response],
    httpx2.AsyncBaseTransport,
):
    """`PacedTransport` for an event loop, by default around an `httpx2.AsyncHTTPTransport()`."""

    package = _PACKAGE
