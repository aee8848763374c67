"""The end of a response of Django's, when what was held is settled and slots are set free.

A response with its content is over when it is made. A stream is over when its last part has been
taken, when it fails, or when it is given up: a WSGI server closes every response; under ASGI Django
closes those whose client has gone, but not those whose stream failed or that could not be sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from asgiref.sync import async_to_sync
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpResponse, StreamingHttpResponse

from headgate.integrations.passage import Passage, Responded, announced_size
from headgate.integrations.passing import finish, finish_async

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

TURNS: Final = 8
"""How often the loop goes round before a stream that was given up is taken to be closed."""


def end(request: HttpRequest, response: HttpResponseBase, passage: Passage) -> None:
    """See to the end of *response*, in code that may block."""
    if not passage.has_an_end:
        return
    if isinstance(response, StreamingHttpResponse):
        _watch(request, response, passage)
    else:
        _count_content(request, response, passage)
        finish(passage, _responded(response))


async def end_async(request: HttpRequest, response: HttpResponseBase, passage: Passage) -> None:
    """The same in an event loop."""
    if not passage.has_an_end:
        return
    if isinstance(response, StreamingHttpResponse):
        _watch(request, response, passage)
    else:
        _count_content(request, response, passage)
        await finish_async(passage, _responded(response))


def failed(error: BaseException) -> Responded:
    """How a view ended that raised *error*: with the status that Django makes of it."""
    if isinstance(error, Http404):
        return Responded(404, error=error)
    if isinstance(error, PermissionDenied):
        return Responded(403, error=error)
    is_bad = isinstance(error, BadRequest | SuspiciousOperation)
    return Responded(400 if is_bad else 500, error=error)


def _responded(response: HttpResponseBase) -> Responded:
    return Responded(response.status_code, tuple(response.items()))


def _count_content(request: HttpRequest, response: HttpResponseBase, passage: Passage) -> None:
    if passage.counts_bytes and request.method != "HEAD" and isinstance(response, HttpResponse):
        passage.sent += len(response.content)


def _watch(request: HttpRequest, response: StreamingHttpResponse, passage: Passage) -> None:
    if request.method == "HEAD":
        passage.counts_bytes = False  # servers leave the body out
    responded = _responded(response)
    parts: Any = response.streaming_content if hasattr(request, "scope") else None
    if parts is None:
        if passage.counts_bytes:
            _count_parts(response, passage)
        _finish_on_close(response, passage, responded)  # else it is left as it is: a file may be
    elif response.is_async:
        response.streaming_content = AsyncParts(parts, passage, responded)
    else:
        response.streaming_content = Parts(parts, passage, responded)


def _count_parts(response: StreamingHttpResponse, passage: Passage) -> None:
    """Count a stream on its way. A file that the server sends itself is as long as it says."""
    is_file = getattr(response, "file_to_stream", None) is not None
    size = announced_size(response.items()) if is_file else None
    parts: Any = response.streaming_content
    if size is not None:
        passage.sent += size
    elif response.is_async:
        response.streaming_content = _counted_async(parts, passage)
    else:
        response.streaming_content = _counted(parts, passage)


def _counted(parts: Iterable[bytes], passage: Passage) -> Iterator[bytes]:
    for part in parts:
        passage.sent += len(part)
        yield part


async def _counted_async(parts: AsyncIterable[bytes], passage: Passage) -> AsyncIterator[bytes]:
    async for part in parts:
        passage.sent += len(part)
        yield part


def _finish_on_close(response: HttpResponseBase, passage: Passage, responded: Responded) -> None:
    close = response.close

    def closing() -> None:
        try:
            close()
        finally:
            finish(passage, responded)

    setattr(response, "close", closing)  # noqa: B010 (mypy: a method is not assigned to)


class Parts:
    """The parts of a stream under ASGI, whose end is noticed. Django closes what has a `close`."""

    def __init__(self, parts: Iterator[bytes], passage: Passage, responded: Responded) -> None:
        self._parts = parts
        self._passage = passage
        self._responded = responded

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            part = next(self._parts)
        except StopIteration:
            _finish_in_thread(self._passage, self._responded)
            raise
        except BaseException as error:
            _finish_in_thread(self._passage, replace(self._responded, error=error))
            raise
        if self._passage.counts_bytes:
            self._passage.sent += len(part)
        return part

    def close(self) -> None:
        """Nobody wants the rest."""
        _finish_in_thread(self._passage, self._responded)


class AsyncParts:
    """The same for an async stream.

    Going through it takes another one, not itself: the response keeps this, and nobody closes a
    response that could not be sent. What nobody goes on with is closed by the loop.
    """

    def __init__(
        self, parts: AsyncGenerator[bytes, None], passage: Passage, responded: Responded
    ) -> None:
        self._told = parts, passage, responded
        self._going = _to_the_end(parts, passage, responded)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return AsyncParts(*self._told)

    def __anext__(self) -> Awaitable[bytes]:
        return anext(self._going)

    def close(self) -> None:
        """Nobody wants the rest."""
        _, passage, responded = self._told
        if not passage.grants:
            return
        if _is_in_loop():
            finish(passage, responded)
        else:
            async_to_sync(_give_up)(*self._told)


async def _to_the_end(
    parts: AsyncGenerator[bytes, None], passage: Passage, responded: Responded
) -> AsyncGenerator[bytes, None]:
    try:
        async for part in parts:
            if passage.counts_bytes:
                passage.sent += len(part)
            yield part
    except GeneratorExit:
        await _give_up(parts, passage, responded)
        raise
    except BaseException as error:
        await finish_async(passage, replace(responded, error=error))
        raise
    await finish_async(passage, responded)


async def _give_up(
    parts: AsyncGenerator[bytes, None], passage: Passage, responded: Responded
) -> None:
    await parts.aclose()
    # The view's own generator, which Django has wrapped, is closed by the loop in its next turns,
    # as nobody has it any more; it may yet report what it has used.
    for _ in range(TURNS):
        await asyncio.sleep(0)
    await finish_async(passage, responded)


def _finish_in_thread(passage: Passage, responded: Responded) -> None:
    """Finish from a thread of an event loop's; test clients do it in the loop itself."""
    if not passage.grants:
        return
    if _is_in_loop():
        finish(passage, responded)
    else:
        async_to_sync(finish_async)(passage, responded)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
