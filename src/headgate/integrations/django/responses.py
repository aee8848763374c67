"""Responses of Django: denials, headers, and the end, when holds are settled and slots released.

A response with its content is over when it is made. A stream is over when its last part was taken,
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

from headgate.integrations.request_context import (
    CompletedResponse,
    RequestContext,
    announced_size,
)
from headgate.runtime.drivers import adrive, drive

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Iterable,
        Iterator,
    )

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
    completed = _completed(response)
    parts: Any = response.streaming_content if hasattr(request, "scope") else None
    if parts is None:
        if context.counts_bytes:
            _count_parts(response, context)
        _finish_on_close(response, context, completed)  # else it is left as it is: a file may be
    elif response.is_async:
        response.streaming_content = AsyncParts(parts, context, completed)
    else:
        response.streaming_content = Parts(parts, context, completed)


def _count_parts(response: StreamingHttpResponse, context: RequestContext) -> None:
    """Count a stream on its way. A file that the server sends itself has its announced size."""
    is_file = getattr(response, "file_to_stream", None) is not None
    size = announced_size(response.items()) if is_file else None
    parts: Any = response.streaming_content
    if size is not None:
        context.sent += size
    elif response.is_async:
        response.streaming_content = _counted_async(parts, context)
    else:
        response.streaming_content = _counted(parts, context)


def _counted(parts: Iterable[bytes], context: RequestContext) -> Iterator[bytes]:
    for part in parts:
        context.sent += len(part)
        yield part


async def _counted_async(
    parts: AsyncIterable[bytes], context: RequestContext
) -> AsyncIterator[bytes]:
    async for part in parts:
        context.sent += len(part)
        yield part


def _finish_on_close(
    response: HttpResponseBase, context: RequestContext, completed: CompletedResponse
) -> None:
    close = response.close

    def closing() -> None:
        try:
            close()
        finally:
            drive(context.complete(completed))

    setattr(response, "close", closing)  # noqa: B010 (mypy: a method is not assigned to)


class Parts:
    """The parts of a stream under ASGI, whose end completes the request. Django calls `close`."""

    def __init__(
        self, parts: Iterator[bytes], context: RequestContext, completed: CompletedResponse
    ) -> None:
        self._parts = parts
        self._context = context
        self._completed = completed

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            part = next(self._parts)
        except StopIteration:
            _complete_in_thread(self._context, self._completed)
            raise
        except BaseException as error:
            _complete_in_thread(self._context, replace(self._completed, error=error))
            raise
        if self._context.counts_bytes:
            self._context.sent += len(part)
        return part

    def close(self) -> None:
        """End it: the rest is not wanted."""
        _complete_in_thread(self._context, self._completed)


class AsyncParts:
    """The parts of an async stream.

    An iteration uses another object: the response keeps this one, and a response that could not be
    sent is not closed. The loop closes an iteration that is dropped.
    """

    def __init__(
        self,
        parts: AsyncGenerator[bytes, None],
        context: RequestContext,
        completed: CompletedResponse,
    ) -> None:
        self._told = parts, context, completed
        self._going = _to_the_end(parts, context, completed)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return AsyncParts(*self._told)

    def __anext__(self) -> Awaitable[bytes]:
        return anext(self._going)

    def close(self) -> None:
        """End it: the rest is not wanted."""
        _, context, completed = self._told
        if not context.is_open:
            return
        if _is_in_loop():
            drive(context.complete(completed))
        else:
            async_to_sync(_give_up)(*self._told)


async def _to_the_end(
    parts: AsyncGenerator[bytes, None], context: RequestContext, completed: CompletedResponse
) -> AsyncGenerator[bytes, None]:
    try:
        async for part in parts:
            if context.counts_bytes:
                context.sent += len(part)
            yield part
    except GeneratorExit:
        await _give_up(parts, context, completed)
        raise
    except BaseException as error:
        await adrive(context.complete(replace(completed, error=error)))
        raise
    await adrive(context.complete(completed))


async def _give_up(
    parts: AsyncGenerator[bytes, None], context: RequestContext, completed: CompletedResponse
) -> None:
    await parts.aclose()
    # The generator of the view, which Django has wrapped, is closed by the loop in its next rounds,
    # as nothing refers to it any more; it may yet report its cost.
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
    await adrive(context.complete(completed))


def _complete_in_thread(context: RequestContext, completed: CompletedResponse) -> None:
    """Complete from a thread of an event loop; test clients do it in the loop itself."""
    if not context.is_open:
        return
    if _is_in_loop():
        drive(context.complete(completed))
    else:
        async_to_sync(adrive)(context.complete(completed))


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
