"""An adapter for requests that keeps a pace and obeys the server.

session = requests.Session()
session.mount("https://api.example.com", PacedAdapter(pace="10/s"))
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headgate.clients.attempt import KEY_FIELD
from headgate.clients.caller import Asked, Caller, Options, origin
from headgate.clients.not_sent import READ_OFF, Cause, Discarding, NotSentError
from headgate.clients.signals import Answer
from headgate.errors import not_installed

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

__all__ = ["PacedAdapter", "RequestsNotSentError"]


class RequestsNotSentError(NotSentError, requests.RequestException):
    """`NotSentError`, for those who catch `requests.RequestException`."""

    def __init__(
        self,
        destination: str,
        retry_after: float | None,
        cause: Cause,
        attempts: int = 0,
        *,
        request: requests.PreparedRequest | None = None,
    ) -> None:
        requests.RequestException.__init__(self, request=request)
        NotSentError.__init__(self, destination, retry_after, cause, attempts)


class PacedAdapter(HTTPAdapter):
    """An adapter that paces calls and obeys the server.

    The options are explained in `headgate.clients.Options`; the others are those of
    `HTTPAdapter`. *max_retries* are for connections that fail: urllib3 repeats no request that was
    answered, since that is done here. Safe to share among threads. Raises `RequestsNotSentError`
    instead of waiting for longer than `Courtesy.max_wait`.
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
        self._caller = Caller(_answer, _discard, **options)
        super().__init__(pool_connections, pool_maxsize, max_retries, pool_block)
        self.max_retries = _for_connections_alone(self.max_retries)

    def send(
        self, request: requests.PreparedRequest, *args: Any, **kwargs: Any
    ) -> requests.Response:
        """Send *request* when it is its turn, and again if it may be and need be."""
        send = super().send
        try:
            return self._caller.call(_asked(request), lambda: send(request, *args, **kwargs))
        except NotSentError as error:
            raise RequestsNotSentError(*error.args, request=request) from None

    def close(self) -> None:
        """Close all connections, and the store of the pace if it was opened here."""
        self._caller.close()
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a PacedAdapter cannot be pickled: make one in each process, and share a store"
        )


def _for_connections_alone(retries: Retry) -> Retry:
    """*retries* without those that an answer brings about: it even obeys Retry-After by itself."""
    return retries.new(
        status=0, status_forcelist=(), respect_retry_after_header=False, raise_on_status=False
    )


def _asked(request: requests.PreparedRequest) -> Asked[requests.PreparedRequest]:
    url = urlsplit(str(request.url))
    return Asked(
        request,
        origin(url.scheme, url.hostname or "", url.port),
        str(request.method),
        _text(request.headers.get(KEY_FIELD)),
        replayable=request.body is None or isinstance(request.body, bytes | str),
    )


def _text(value: str | bytes | None) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _answer(response: requests.Response) -> Answer:
    return Answer(response.status_code, response.headers.get)


def _discard(response: requests.Response, allowance: Discarding) -> None:
    """Read the response off if its connection can be used again, and close it."""
    raw = response.raw
    connection: Any = getattr(raw, "connection", None)
    if not isinstance(getattr(connection, "sock", None), socket.socket):
        response.close()
        return
    is_whole = False
    raw._connection = None  # noqa: SLF001 (else urllib3 gives it back while it is still watched)
    try:
        with suppress(HTTPError), allowance.watch(connection.sock):
            raw.read(READ_OFF, decode_content=False)
            is_whole = raw.closed
    finally:
        raw._connection = connection  # noqa: SLF001
        if is_whole:
            raw.release_conn()
        else:
            response.close()
