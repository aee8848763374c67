"""Responses of Django: denials, headers, and the end, when holds are settled and slots released.

A response with its content ends when it is made. A stream ends when it has no more parts,
when it fails, or when it is closed: a WSGI server closes every response; under ASGI Django closes
those whose client has gone, but not those whose stream failed or that could not be sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from asgiref.sync import async_to_sync
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpResponse, StreamingHttpResponse

from headgate.integrations.check_result import CompletedResponse
from headgate.integrations.pressure import is_in_loop
from headgate.integrations.request_context import (
    RequestContext,
    announced_size,
)
from headgate.integrations.wsgi import Body
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from headgate.integrations.request_limiter import RequestLimiter
    from headgate.runtime.effects import Effects

ROUNDS: Final = 8
"""The rounds of the loop after which a closed stream is taken to have ended."""

_RETRY: Final = "retry-after"


class DenialResponse(HttpResponse):
    """The response to a denied request, with all its headers."""


def denial_of(
    request: HttpRequest, limiter: RequestLimiter, context: RequestContext
) -> DenialResponse:
    """The response to *request*, which was denied. For HEAD it has no body."""
    denial = context.denial_response(limiter)
    body = b"" if request.method == "HEAD" else denial.body
    response = DenialResponse(body, status=denial.status, headers=dict(denial.headers))
    response.headers["Content-Length"] = str(len(denial.body))
    return response


def add_headers(response: HttpResponseBase, context: RequestContext) -> None:
    """Add the headers about limits to *response*.

    A `Retry-After` of the app stays, and a success gets none.
    """
    is_silent = context.is_silent and context.denial is None
    if is_silent or isinstance(response, DenialResponse):
        return
    has_wait = response.has_header(_RETRY) or response.status_code < 400
    lines: dict[str, list[str]] = {}
    for name, value in context.with_headers(list(response.items()), response.status_code):
        if name.lower() != _RETRY or not has_wait:
            lines.setdefault(name.lower(), [name]).append(value)
    for name, *values in lines.values():
        response.headers[name] = ", ".join(values)


def ending(
    request: HttpRequest, response: HttpResponseBase, context: RequestContext
) -> Effects[None]:
    """Complete the request with the end of *response*: now, or at the end of its stream."""
    if not context.has_end:
        return
    if isinstance(response, StreamingHttpResponse):
        _watch(request, response, context)
        return
    if context.counts_bytes and request.method != "HEAD" and isinstance(response, HttpResponse):
        context.sent += len(response.content)
    yield from context.complete(_completed(response))


def failed(error: BaseException) -> CompletedResponse:
    """The end of a view that raised *error*: with the status that Django makes of it."""
    if isinstance(error, Http404):
        return CompletedResponse(404, error=error)
    if isinstance(error, PermissionDenied):
        return CompletedResponse(403, error=error)
    is_bad = isinstance(error, BadRequest | SuspiciousOperation)
    return CompletedResponse(400 if is_bad else 500, error=error)


def _completed(response: HttpResponseBase) -> CompletedResponse:
    return CompletedResponse(response.status_code, tuple(response.items()))


def _watch(request: HttpRequest, response: StreamingHttpResponse, context: RequestContext) -> None:
    if request.method == "HEAD":
        context.counts_bytes = False  # servers leave the body out
    is_asgi = hasattr(request, "scope")
    end = _End(context, _completed(response), is_asgi=is_asgi)
    size = announced_size(response.items())
    if not is_asgi and getattr(response, "file_to_stream", None) is not None and size is not None:
        context.sent += size  # the server sends the file itself
        _end_on_close(response, end)
        return
    parts: Any = response.streaming_content
    response.streaming_content = (AsyncParts if response.is_async else Body)(parts, end)


class _End:
    """The end of a streamed response, which completes its request once."""

    error: BaseException | None = None

    def __init__(
        self, context: RequestContext, completed: CompletedResponse, *, is_asgi: bool
    ) -> None:
        self.context = context
        self._completed = completed
        self._is_asgi = is_asgi

    def count(self, part: bytes) -> None:
        """Count *part* of the body, which is sent."""
        if self.context.counts_bytes:
            self.context.sent += len(part)

    def finish(self) -> None:
        """Complete the request; under ASGI in a thread, and in the loop itself by test clients."""
        if not self.context.open_checks:
            return
        if self._is_asgi and not is_in_loop():
            async_to_sync(adrive)(self._completing())
        else:
            drive(self._completing())

    async def afinish(self) -> None:
        """Complete the request in an event loop; that of a WSGI server is only a passing one."""
        if self._is_asgi:
            await adrive(self._completing())
        else:
            self.finish()

    def _completing(self) -> Effects[None]:
        return self.context.complete(replace(self._completed, error=self.error))


def _end_on_close(response: HttpResponseBase, end: _End) -> None:
    close = response.close

    def closing() -> None:
        try:
            close()
        finally:
            end.finish()

    setattr(response, "close", closing)  # noqa: B010 (mypy: a method is not assigned to)


class AsyncParts:
    """The parts of an async stream.

    An iteration uses another object: the response keeps this one, and a response that could not be
    sent is not closed. The loop closes an iteration that is dropped.
    """

    def __init__(self, parts: AsyncGenerator[bytes, None], end: _End) -> None:
        self._parts = parts
        self._end = end
        self._running = _to_the_end(parts, end)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return AsyncParts(self._parts, self._end)

    def __anext__(self) -> Awaitable[bytes]:
        return anext(self._running)

    def close(self) -> None:
        """End it: the rest is not sent."""
        if not self._end.context.open_checks:
            return
        if is_in_loop():
            self._end.finish()
        else:
            async_to_sync(_give_up)(self._parts, self._end)


async def _to_the_end(parts: AsyncGenerator[bytes, None], end: _End) -> AsyncGenerator[bytes, None]:
    try:
        async for part in parts:
            end.count(part)
            yield part
    except GeneratorExit:
        await _give_up(parts, end)
        raise
    except BaseException as error:
        end.error = error
        await end.afinish()
        raise
    await end.afinish()


async def _give_up(parts: AsyncGenerator[bytes, None], end: _End) -> None:
    await parts.aclose()
    # The generator of the view, which Django has wrapped, is closed by the loop in its next rounds,
    # as nothing refers to it any more; it may yet report its cost.
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
    await end.afinish()
