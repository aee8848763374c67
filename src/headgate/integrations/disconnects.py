"""Disconnects while a request waits in a queue: its place is given up.

A server reports a disconnect only to a `receive`. So a task receives while the request waits. It
keeps other messages for the app, and stops after a part of a body: the rest stays in the server
until the app reads it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client has closed the connection."""


class DisconnectListener:
    """The messages of a client, for the listener while its request waits, and then for the app."""

    __slots__ = ("_kept", "_listening", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()
        self._listening: asyncio.Task[None] | None = None

    async def receive(self) -> Message:
        """The next message, for the app."""
        if self._listening is not None and not self._listening.done():  # one receives at a time
            await asyncio.wait((self._listening,))
        return self._kept.popleft() if self._kept else await self._receive()

    async def meanwhile(self, waiting: Coroutine[Any, Any, T]) -> T:
        """The result of *waiting*. If the client goes away first, *waiting* is cancelled and
        `ClientGoneError` raised.

        It is awaited here, and nothing after it, so that a cancellation in the same instant does
        not lose its result.
        """
        departure = _Departure()
        self._listening = listening = asyncio.ensure_future(self._gone())
        listening.add_done_callback(departure.record)
        try:
            result = await waiting
        except BaseException as error:
            departure.end()
            listening.cancel()
            await asyncio.wait((listening,))
            if isinstance(error, asyncio.CancelledError) and departure.is_all_there_was():
                text = "the client went away while its request waited in a queue"
                raise ClientGoneError(text) from None
            raise
        departure.end()
        listening.cancel()
        return result

    async def _gone(self) -> None:
        while True:
            message = await self._receive()
            self._kept.append(message)
            if message["type"] == "http.disconnect":
                return
            if message.get("more_body", False):
                await asyncio.get_running_loop().create_future()


class _Departure:
    """Cancels the waiting task when its client goes away, and knows that from other reasons."""

    __slots__ = ("_before", "_has_cancelled", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = 0 if self._task is None else self._task.cancelling()
        self._has_cancelled = False

    def record(self, listening: asyncio.Task[None]) -> None:
        """Record that the listener has ended. An error is left for the app to find."""
        if listening.cancelled() or listening.exception() is not None:
            return
        if self._task is not None:
            self._has_cancelled = True
            self._task.cancel()

    def end(self) -> None:
        """Cancel no more; take a cancellation back that has not arrived."""
        task, self._task = self._task, None
        if self._has_cancelled and task is not None:
            self._has_cancelled = task.uncancel() <= self._before

    def is_all_there_was(self) -> bool:
        """True if the departure was the only reason for a cancellation."""
        return self._has_cancelled
