"""An adapter for requests that paces calls and obeys the limits of the server.

session = requests.Session()
session.mount("https://api.example.com", PacedAdapter(pace="10/s"))
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headgate.clients.caller import (
    KEY_FIELD,
    MAX_BYTES,
    Caller,
    DiscardBudget,
    NotSentError,
    RequestInfo,
    origin,
)
from headgate.clients.signals import ResponseInfo
from headgate.errors import not_installed
from headgate.runtime.drivers import drive

try:
    import requests
    from requests.adapters import (
        DEFAULT_POOLBLOCK,
        DEFAULT_POOLSIZE,
        DEFAULT_RETRIES,
        HTTPAdapter,
    )
    from urllib3.exceptions import HTTPError
except ModuleNotFoundError as error:
    raise not_installed("requests", error) from error

if TYPE_CHECKING:
    from typing import Unpack

    from urllib3.util import Retry

    from headgate.clients.options import Options

__all__ = ["PacedAdapter", "RequestsNotSentError"]


class RequestsNotSentError(NotSentError, requests.RequestException):
    """A `NotSentError` that is a `requests.RequestException` too."""

    request: requests.PreparedRequest | None = None
    response = None


class PacedAdapter(HTTPAdapter):
    """An adapter that paces calls and obeys the limits of the server.

    The options are those of `headgate.clients.Options` and of `HTTPAdapter`. *max_retries* is for
    connections that fail: urllib3 does not repeat requests that were answered, as the adapter does
    that. Thread-safe. Raises `RequestsNotSentError` instead of waiting for longer than
    `RetryPolicy.max_wait`.
    """

    def __init__(
        self,
        *,
        pool_connections: int = DEFAULT_POOLSIZE,
        pool_maxsize: int = DEFAULT_POOLSIZE,
        max_retries: int | Retry = DEFAULT_RETRIES,
        pool_block: bool = DEFAULT_POOLBLOCK,
        **options: Unpack[Options[requests.PreparedRequest]],
    ) -> None:
        self._caller: Caller[requests.PreparedRequest, requests.Response]
        self._caller = Caller(_request, _response, _discard, RequestsNotSentError, options)
        super().__init__(pool_connections, pool_maxsize, max_retries, pool_block)
        self.max_retries = _for_connections_alone(self.max_retries)

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send *request* when it may be sent, and again if it should be."""
        send = super().send
        try:
            return drive(self._caller.calling(request, lambda one: send(one, *args, **kwargs)))
        except RequestsNotSentError as error:
            error.request = request
            raise

    def close(self) -> None:
        """Close all connections, and the store of the pace if it was opened here."""
        drive(self._caller.closing())
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a PacedAdapter cannot be pickled: make one in each process, and share a store"
        )


def _for_connections_alone(retries: Retry) -> Retry:
    """Return *retries* without those after a response: urllib3 obeys Retry-After by itself."""
    return retries.new(
        status=0, status_forcelist=(), respect_retry_after_header=False, raise_on_status=False
    )


def _request(request: requests.PreparedRequest) -> RequestInfo:
    url = urlsplit(str(request.url))
    return RequestInfo(
        origin(url.scheme, url.hostname or "", url.port),
        url.path,
        str(request.method),
        _text(request.headers.get(KEY_FIELD)),
        request.body is None or isinstance(request.body, bytes | str),
    )


def _text(value: str | bytes | None) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _response(response: requests.Response) -> ResponseInfo:
    return ResponseInfo(response.status_code, response.headers.get)


def _discard(response: requests.Response, budget: DiscardBudget) -> None:
    """Read the response to its end if its connection can be used again, and close it."""
    raw = response.raw
    connection: Any = getattr(raw, "connection", None)
    if not isinstance(getattr(connection, "sock", None), socket.socket):
        response.close()
        return
    is_whole = False
    raw._connection = None  # noqa: SLF001 (else urllib3 gives it back while it is still watched)
    try:
        with suppress(HTTPError), budget.watch(connection.sock):
            raw.read(MAX_BYTES, decode_content=False)
            is_whole = raw.closed
    finally:
        raw._connection = connection  # noqa: SLF001
        if is_whole:
            raw.release_conn()
        else:
            response.close()
