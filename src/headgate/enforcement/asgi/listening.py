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

    __slots__ = ("_kept", "_receive")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: deque[Message] = deque()

    @property
    def has_heard(self) -> bool:
        """Whether something was kept for the app."""
        return bool(self._kept)

    async def receive(self) -> Message:
        """The next message, for the app."""
        return self._kept.popleft() if self._kept else await self._receive()

    async def meanwhile(self, waiting: Coroutine[Any, Any, T]) -> T:
        """What *waiting* comes to. Raises `ClientGoneError` if the client goes away before that;
        *waiting* is cancelled then."""
        wait = asyncio.ensure_future(waiting)
        gone = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait((wait, gone), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await _cancelled(wait)
            raise
        finally:
            await _cancelled(gone)
        if wait.done():
            return wait.result()
        await _cancelled(wait)
        if not wait.cancelled() and wait.exception() is None:
            return wait.result()  # it came at the very last moment: the app will find out
        raise ClientGoneError("the client went away while its request waited for its turn")

    async def _gone(self) -> None:
        while True:
            message = await self._receive()
            self._kept.append(message)
            if message["type"] == "http.disconnect":
                return
            if message.get("more_body", False):
                await asyncio.get_running_loop().create_future()


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel *task*, and wait until that is done."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
