"""A client that goes away while its request waits for its turn makes room for others.

Servers tell of that only to those who ask for the next message. So somebody asks while a request
waits; what else comes is kept for the app, and nothing more is asked for once a part of a body has
come: it stays where it is until the app wants it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from headgate.enforcement.asgi.incoming import Message, Receive

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
