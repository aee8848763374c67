"""A session for aiohttp that keeps a pace and obeys the server.

async with PacedSession(pace="10/s") as session, session.get(url) as response:
    ...

The session is aiohttp's own. What it has is a client middleware, which every request passes, those
that follow a redirect too; `PacedMiddleware` is the same for a session that you make yourself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.clients.attempt import KEY_FIELD
from headgate.clients.caller import Asked, AsyncCaller, AsyncOptions, origin
from headgate.clients.not_sent import READ_OFF, Discarding, NotSentError
from headgate.clients.signals import Answer
from headgate.errors import UsageError, not_installed

try:
    import aiohttp
    from aiohttp.payload import BytesPayload
except ModuleNotFoundError as error:
    raise not_installed("aiohttp", error) from error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Unpack

__all__ = ["AiohttpNotSentError", "PacedMiddleware", "PacedSession"]


class AiohttpNotSentError(NotSentError, aiohttp.ClientError):
    """`NotSentError`, for those who catch `aiohttp.ClientError`."""


class PacedMiddleware:
    """A client middleware that paces calls and obeys the server.

    `aiohttp.ClientSession(middlewares=(paced,))`; put it last, so that it sees what is really sent.
    The options are explained in `headgate.clients.AsyncOptions`. Raises
    `AiohttpNotSentError` instead of waiting for longer than `Courtesy.max_wait`. The session's
    `total` timeout goes on while a call waits.
    """

    def __init__(self, **options: Unpack[AsyncOptions[aiohttp.ClientRequest]]) -> None:
        self._caller: AsyncCaller[aiohttp.ClientRequest, aiohttp.ClientResponse]
        self._caller = AsyncCaller(_answer, _discard, **options)

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send *request* when it is its turn, and again if it may be and need be."""
        try:
            return await self._caller.call(_asked(request), lambda: handler(request))
        except NotSentError as error:
            raise AiohttpNotSentError(*error.args) from None

    async def aclose(self) -> None:
        """Close the store of the pace if it was opened here."""
        await self._caller.aclose()


class PacedSession:
    """An `aiohttp.ClientSession` that paces calls and obeys the server, as a context manager.

    The options are those of `PacedMiddleware`; *session_options* are those of `ClientSession`. What
    is open is closed at the end of the block. It can be entered once.
    """

    def __init__(
        self,
        session_options: Mapping[str, Any] | None = None,
        **options: Unpack[AsyncOptions[aiohttp.ClientRequest]],
    ) -> None:
        self._paced = PacedMiddleware(**options)
        self._options = dict(session_options or {})
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


def _asked(request: aiohttp.ClientRequest) -> Asked[aiohttp.ClientRequest]:
    url, body = request.url, request.body
    return Asked(
        request,
        origin(url.scheme, url.host or "", url.port),
        request.method,
        request.headers.get(KEY_FIELD),
        replayable=body == b"" or isinstance(body, BytesPayload),
    )


def _answer(response: aiohttp.ClientResponse) -> Answer:
    headers = response.headers

    def field(name: str) -> str | None:
        return ", ".join(headers.getall(name, ())) or None

    return Answer(response.status, field)


async def _discard(response: aiohttp.ClientResponse, allowance: Discarding) -> None:
    """Read it off, and give its connection back; aiohttp closes that of one not read to the end."""
    try:
        async with asyncio.timeout(allowance.seconds):
            await response.content.readexactly(READ_OFF)
    except (aiohttp.ClientError, asyncio.IncompleteReadError, TimeoutError):
        pass
    finally:
        response.release()
