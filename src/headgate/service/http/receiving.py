"""Taking a body in: so much of it, within so long, of the right kind."""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from headgate.service.http.replies import CLOSE, RefusedError, problem

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from headgate.service.http.options import HttpOptions
    from headgate.service.http.replies import Receive, Scope

_JSON: Final = b"application/json"


class DisconnectedError(Exception):
    """The client is gone: there is nobody to answer, and nothing went wrong."""


async def json_body_of(scope: Scope, receive: Receive, options: HttpOptions) -> bytes:
    """The body of a request that has to be JSON, and says so; otherwise as `body_of`."""
    kind, length = _announced(scope)
    if kind != _JSON:
        _check_kind(kind)
    return await _received(receive, length, options)


async def body_of(scope: Scope, receive: Receive, options: HttpOptions) -> bytes:
    """The body of a request that may have none; where it says what it is, it has to be JSON.

    Raises `RefusedError` for one that is too large or too slow, and `DisconnectedError` if the
    client leaves.
    """
    kind, length = _announced(scope)
    if kind is not None:
        _check_kind(kind)
    return await _received(receive, length, options)


async def any_body_of(scope: Scope, receive: Receive, options: HttpOptions) -> bytes:
    """The body of a request, whatever it says that it is."""
    return await _received(receive, _announced(scope)[1], options)


def _announced(scope: Scope) -> tuple[bytes | None, bytes]:
    """What kind of body is said to come, and how much of it; several kinds are as they are."""
    kind, length = None, b"0"
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value if kind is None else b"%b, %b" % (kind, value)
        elif name == b"content-length":
            length = value
    return kind, length


def _check_kind(kind: bytes | None) -> None:
    """Raise `RefusedError` unless *kind* is that of JSON."""
    media_type, _, rest = (kind or b"none").partition(b";")
    charset = rest.strip().lower().replace(b'"', b"")
    if media_type.strip().lower() == _JSON and charset in (b"", b"charset=utf-8"):
        return
    found = (kind or b"none").decode("latin-1")[:80]
    detail = f"the content type is {found!r}; expected application/json, in UTF-8"
    raise RefusedError(problem(415, detail, headers=((b"accept", _JSON),)))


async def _received(receive: Receive, length: bytes, options: HttpOptions) -> bytes:
    """The body, which is announced to have *length*: nothing is read of one that is too large."""
    if length.isdigit() and (len(length) > 18 or int(length) > options.largest_body):
        raise _too_large(options.largest_body)
    reading = _read(receive, options.largest_body)
    # Mostly the body is there with the headers: then nothing waits, and no timer is needed.
    try:
        waited = reading.send(None)
    except StopIteration as done:
        body: bytes = done.value
        return body
    try:
        async with asyncio.timeout(options.body_timeout):
            return await _resumed(reading, waited)
    except TimeoutError:
        detail = f"the body did not arrive within {options.body_timeout:g} seconds"
        raise RefusedError(problem(408, detail, headers=(CLOSE,))) from None


@coroutine
def _resumed(begun: Coroutine[Any, Any, bytes], waited: Any) -> Generator[Any, Any, bytes]:
    """Go on with what was *begun* by hand, and waits for *waited*."""
    try:
        while True:
            try:
                heard = yield waited
            except BaseException as error:  # noqa: BLE001 (a cancellation, which is for it to see)
                waited = begun.throw(error)
            else:
                waited = begun.send(heard)
    except StopIteration as done:
        body: bytes = done.value
        return body


async def _read(receive: Receive, most: int) -> bytes:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise DisconnectedError
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return _bounded(body, most)
    chunks, size = [body], len(body)
    while message.get("more_body", False):
        if size > most:
            break
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
    return _bounded(b"".join(chunks), most)


def _bounded(body: bytes, most: int) -> bytes:
    if len(body) > most:
        raise _too_large(most)
    return body


def _too_large(most: int) -> RefusedError:
    # The connection stays: closing it while more is coming would take the answer from the caller.
    # The server throws the rest away, as long as it takes a request to arrive at the most.
    return RefusedError(problem(413, f"the body is larger than {most} bytes"))
