"""A session for aiohttp that paces calls and obeys the limits of the server.

    async with PacedSession(pace="10/s") as session, session.get(url) as response:
        ...

The session is an `aiohttp.ClientSession` with a client middleware, which sees every request, those
of redirects too. `PacedMiddleware` is that middleware, for a session of your own.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

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
from headgate.errors import OptionError, UsageError, not_installed
from headgate.runtime.drivers import adrive

try:
    import aiohttp
    from aiohttp.payload import BytesPayload
except ModuleNotFoundError as error:
    raise not_installed("aiohttp", error) from error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Unpack

    from headgate.clients.options import AsyncOptions

__all__ = ["AiohttpNotSentError", "PacedMiddleware", "PacedSession"]


class AiohttpNotSentError(NotSentError, aiohttp.ClientError):
    """A `NotSentError` that is an `aiohttp.ClientError` too."""


class PacedMiddleware:
    """A client middleware that paces calls and obeys the limits of the server.

    `aiohttp.ClientSession(middlewares=(paced,))`; put it last, next to the network. The options are
    those of `headgate.clients.AsyncOptions`. Raises `AiohttpNotSentError` instead of waiting for
    longer than `RetryPolicy.max_wait`. The `total` timeout of the session includes the waits.
    """

    def __init__(self, **options: Unpack[AsyncOptions[aiohttp.ClientRequest]]) -> None:
        self._caller: Caller[aiohttp.ClientRequest, aiohttp.ClientResponse]
        self._caller = Caller(
            _request, _response, _discard, AiohttpNotSentError, options, is_async=True
        )

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send *request* when it may be sent, and again if it should be."""
        return await adrive(self._caller.calling(request, handler))

    async def aclose(self) -> None:
        """Close the store of the pace if it was opened here."""
        await adrive(self._caller.closing())


class PacedSession:
    """A context manager with an `aiohttp.ClientSession` that has a `PacedMiddleware`.

    The options are those of `PacedMiddleware`; *session_options* are those of `ClientSession`. The
    end of the block closes both. It can be entered once.
    """

    def __init__(
        self,
        session_options: Mapping[str, Any] | None = None,
        **options: Unpack[AsyncOptions[aiohttp.ClientRequest]],
    ) -> None:
        if session_options is not None and not hasattr(session_options, "keys"):
            raise OptionError(
                f"session_options is {session_options!r}; expected options of ClientSession by "
                "name; the pace is an option by name: pace='10/s'"
            )
        self._options = dict(session_options or {})
        for name in self._options.keys() - inspect.signature(aiohttp.ClientSession).parameters:
            raise OptionError(f"{name!r} in session_options is not an option of ClientSession")
        self._paced = PacedMiddleware(**options)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> aiohttp.ClientSession:
        if self._session is not None:
            raise UsageError("a PacedSession can be entered once; make another one")
        others = tuple(self._options.get("middlewares", ()))
        options = {**self._options, "middlewares": (*others, self._paced)}
        self._session = aiohttp.ClientSession(**options)
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._session is not None:
                await self._session.close()
        finally:
            await self._paced.aclose()


def _request(request: aiohttp.ClientRequest) -> RequestInfo:
    url, body = request.url, request.body
    return RequestInfo(
        origin(url.scheme, url.host or "", url.port),
        url.raw_path,
        request.method,
        request.headers.get(KEY_FIELD),
        body == b"" or isinstance(body, BytesPayload),
    )


def _response(response: aiohttp.ClientResponse) -> ResponseInfo:
    headers = response.headers

    def field(name: str) -> str | None:
        return ", ".join(headers.getall(name, ())) or None

    return ResponseInfo(response.status, field)


async def _discard(response: aiohttp.ClientResponse, budget: DiscardBudget) -> None:
    """Read the response and release its connection; aiohttp closes one that is not at its end."""
    try:
        async with asyncio.timeout(budget.seconds):
            await response.content.readexactly(MAX_BYTES)
    except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError):
        pass
    finally:
        response.release()
