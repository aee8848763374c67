"""Waiting for a server to come to a state, for so long and no longer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.support.servers.process import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable


def wait_until(
    condition: Callable[[], bool], what: str, *, within: float = 60.0, every: float = 0.02
) -> None:
    """Ask *condition* until it is true; raise `ServerError` if it is not, *within* so many seconds.

    A `ServerError` of the condition's own counts as "not yet".
    """
    deadline = time.monotonic() + within
    while True:
        trouble: ServerError | None = None
        try:
            if condition():
                return
        except ServerError as exc:
            trouble = exc
        if time.monotonic() > deadline:
            raise ServerError(f"waited {within} s in vain until {what}") from trouble
        time.sleep(every)


async def until(condition: Callable[[], bool], *, within: float = 60.0) -> None:
    """Let the event loop run until *condition*; raise `TimeoutError` if it takes longer."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 (many conditions have no event)
            await asyncio.sleep(0.001)
