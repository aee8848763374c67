"""Responses on their way out: told of limits as they begin, and seen to their end."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.integrations.debugging import ALLOW_ORIGIN, with_limits
from headgate.integrations.passage import Responded, announced_size
from headgate.integrations.passing import finish_async, settle_outcome
from headgate.responses import ResponseOptions, allowed_lines, expose_headers, pressure_lines

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Any

    from headgate.integrations.asgi.request import AsgiRequest, Message, Receive, Scope, Send
    from headgate.integrations.passage import Passage
    from headgate.responses import Refusal


# A client that goes away while its request waits for its turn makes room for others.
#
# Servers tell of that only to those who ask for the next message. So somebody asks while a request
# waits; what else comes is kept for the app, and nothing more is asked for once a part of a body
# has come: it stays where it is until the app wants it.


T = TypeVar("T")


class ClientGoneError(Exception):
    """Nobody waits for the response any more."""


class Listening:
    """What a client sends, heard by whoever waits for a turn first and by the app after that."""

    __slots__ = ("_hearing", "_kept", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._hearing: asyncio.Task[None] | None = None

    @property
    def has_heard(self) -> bool:
        """Whether something may have been kept for the app."""
        return self._hearing is not None

    async def receive(self) -> Message:
        """The next message, for the app."""
        if self._hearing is not None and not self._hearing.done():  # one asks at a time
            await asyncio.wait((self._hearing,))
        return self._kept.popleft() if self._kept else await self._receive()

    async def meanwhile(self, waiting: Coroutine[Any, Any, T]) -> T:
        """What *waiting* comes to. Raises `ClientGoneError` if the client goes away before that;
        *waiting* is cancelled then.

        It is awaited here and nowhere else, and nothing after it: what it comes to is never lost on
        the way to somebody who is cancelled in the same instant.
        """
        departure = _Departure()
        self._hearing = hearing = asyncio.ensure_future(self._gone())
        hearing.add_done_callback(departure.note)
        try:
            came = await waiting
        except BaseException as error:
            departure.expect_no_more()
            hearing.cancel()
            await asyncio.wait((hearing,))
            if isinstance(error, asyncio.CancelledError) and departure.is_all_there_was():
                text = "the client went away while its request waited for its turn"
                raise ClientGoneError(text) from None
            raise
        departure.expect_no_more()
        hearing.cancel()
        return came

    async def _gone(self) -> None:
        while True:
            message = await self._receive()
            self._kept.append(message)
            if message["type"] == "http.disconnect":
                return
            if message.get("more_body", False):
                await asyncio.get_running_loop().create_future()


class _Departure:
    """Cancels the task that waits when its client goes away, and tells that from other reasons."""

    __slots__ = ("_before", "_has_cancelled", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = 0 if self._task is None else self._task.cancelling()
        self._has_cancelled = False

    def note(self, hearing: asyncio.Task[None]) -> None:
        """What listened to the client has ended. An error is the app's to find."""
        if hearing.cancelled() or hearing.exception() is not None:
            return
        if self._task is not None:
            self._has_cancelled = True
            self._task.cancel()

    def expect_no_more(self) -> None:
        """Nothing is to be cancelled any more. What was, and did not come to it, is called off."""
        task, self._task = self._task, None
        if self._has_cancelled and task is not None:
            self._has_cancelled = task.uncancel() <= self._before

    def is_all_there_was(self) -> bool:
        """Whether the departure was the one reason for a cancellation."""
        return self._has_cancelled


Headers = list[tuple[bytes, bytes]]


def quick_lines(passage: Passage) -> Headers | None:
    """The headers of an allowed request, encoded as bytes; None if there is more to say."""
    gate = passage.gate
    if passage.refusal is not None or not gate.tells_plainly or passage.is_debugged:
        return None
    if passage.is_replay:
        return None
    told = [(one.name, one.decision) for one in passage.told if one.headers == "on"]
    lines = allowed_lines(told, gate.now_ns())
    if lines is None or not passage.queues:
        return lines
    delayed_ns = sum([turn.waited_ns for turn in passage.turns])
    loads = tuple(gate.turns.loads(passage.queues))
    return lines + encoded(pressure_lines(loads, delayed_ns, gate.responses))


POLICY_VIOLATION: Final = 1008
"""The code a websocket is closed with whose handshake was refused (RFC 6455)."""

IN_THE_WAY: Final = frozenset(
    name.lower().encode("ascii")
    for name in (*expose_headers(ResponseOptions(draft03=True, bucket=True)), ALLOW_ORIGIN)
)
"""Headers of a response that ours have to be merged with; else they simply follow."""

DENIAL: Final = "websocket.http.response"
"""The extension of servers that can answer a handshake like any other request."""

LAST: Final = frozenset({"http.response.body", "http.response.pathsend"})
"""What a response ends with, unless more of it is announced."""


FILES: Final = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
"""What hands a file to the server, which sends it in its own way."""


class Response:
    """The response to a request: its headers are completed, its end is noticed.

    It is over with its last body, before any background tasks of the app; or, if that is never
    sent, when the app is done with it, in whatever way.
    """

    __slots__ = ("_headers", "_passage", "_request", "_send", "_status", "error")

    def __init__(self, passage: Passage, send: Send, request: AsgiRequest) -> None:
        self._passage = passage
        self._send = send
        self._request = request
        self._status = 500
        self._headers: Headers = []
        self.error: BaseException | None = None

    async def send(self, message: Message) -> None:
        """Pass *message* on to the server."""
        if message["type"] == "http.response.start":
            self._status = status = message["status"]
            self._headers = headers = list(message.get("headers", ()))
            lines = completed(headers, self._passage, status)
            await self._send({**message, "headers": lines})
            return
        passage = self._passage
        if passage.counts_bytes:  # before: it may be cancelled half sent
            passage.sent += self._size(message)
        await self._send(message)
        is_last = message["type"] in LAST and not message.get("more_body", False)
        if is_last and not passage.end_at_once(self._status, self.error):
            await self.finish()

    async def finish(self) -> None:
        """Settle what is to be settled; once."""
        passage = self._passage
        if not passage.end_at_once(self._status, self.error):
            responded = Responded(self._status, decoded(self._headers), self.error)
            await finish_async(passage, responded)

    def _size(self, message: Message) -> int:
        """How many bytes of the body *message* is: of a file as many as were announced."""
        if self._request.method == "HEAD":  # servers leave its body out
            return 0
        if message["type"] == "http.response.body":
            return len(message.get("body") or b"")
        if message["type"] == "http.response.zerocopysend" and message.get("count") is not None:
            return int(message["count"])
        return (announced_size(decoded(self._headers)) or 0) if message["type"] in FILES else 0


class Handshake:
    """The response to a websocket's handshake, and what came of it."""

    __slots__ = ("_passage", "_send", "_status", "error")

    def __init__(self, passage: Passage, send: Send) -> None:
        self._passage = passage
        self._send = send
        self._status = 403
        self.error: BaseException | None = None

    @property
    def responded(self) -> Responded:
        """How it ended: 101 if the websocket was accepted; 500 if the app failed before that."""
        status = self._status
        if status == 403 and self.error is not None:
            status = 500
        elif status == 403 and self._passage.refusal is not None:
            status = 429  # closed for want of another way to say it
        return Responded(status, error=self.error)

    async def send(self, message: Message) -> None:
        """Pass *message* on to the server."""
        if message["type"] == "websocket.send" and self._passage.counts_bytes:
            self._passage.sent += _payload(message)
        if message["type"] == "websocket.accept":
            self._status = 101
            headers = completed(list(message.get("headers", ())), self._passage, self._status)
            await self._send({**message, "headers": headers})
            await settle_outcome(self._passage, self.responded)
            return
        if message["type"] == f"{DENIAL}.start":
            self._status = message["status"]
            headers = completed(list(message.get("headers", ())), self._passage, self._status)
            message = {**message, "headers": headers}
        await self._send(message)


def _payload(message: Message) -> int:
    """How many bytes a message to a websocket has."""
    text = message.get("text")
    return len(message.get("bytes") or b"") if text is None else len(text.encode())


def completed(headers: Headers, passage: Passage, status: int) -> Headers:
    """*headers* of a response with *status*, with those about limits."""
    if not passage.told and passage.is_silent:
        return headers
    is_merged = passage.is_cross_origin or passage.is_debugged
    for line in headers:
        if line[0].lower() in IN_THE_WAY:
            is_merged = True
    if is_merged:
        return encoded(with_limits(decoded(headers), passage.gate, passage, status))
    ours = quick_lines(passage)
    return headers + (encoded(passage.gate.headers(passage, status)) if ours is None else ours)


async def refuse(send: Send, request: AsgiRequest, refusal: Refusal) -> None:
    """Send *refusal* in place of what the app would have said."""
    body = b"" if request.method == "HEAD" else refusal.body
    start = {"type": "http.response.start", "status": refusal.status, "headers": _lines(refusal)}
    await send(start)
    await send({"type": "http.response.body", "body": body})


async def deny(scope: Scope, receive: Receive, send: Send, refusal: Refusal) -> None:
    """Refuse a websocket: with a response if the server can do that, else by closing it."""
    await receive()  # websocket.connect, which has to be heard first
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    start = {"type": f"{DENIAL}.start", "status": refusal.status, "headers": _lines(refusal)}
    await send(start)
    await send({"type": f"{DENIAL}.body", "body": refusal.body})


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """*headers* as text."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def encoded(lines: Iterable[tuple[str, str]]) -> Headers:
    """*lines* as ASGI wants them: bytes, with names in lower case."""
    return [(_field(name), value.encode("latin-1")) for name, value in lines]


@lru_cache(maxsize=256)
def _field(name: str) -> bytes:
    return name.lower().encode("latin-1")


def _lines(refusal: Refusal) -> Headers:
    return [*encoded(refusal.headers), (b"content-length", b"%d" % len(refusal.body))]
