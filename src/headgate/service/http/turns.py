"""Holding back the answer to a gateway until the request it asks about has its turn.

A gateway cannot delay a request, but it waits for the answer. So the answer comes when the turn
does. A gateway that gives up before, by its own timeout or because its client has left, closes the
connection: then the turn goes to whoever comes next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.service.http.receiving import DisconnectedError

if TYPE_CHECKING:
    from headgate.engine import AsyncRunner, Verdict
    from headgate.service.http.replies import Receive


async def turn_of(verdict: Verdict, runner: AsyncRunner, receive: Receive) -> None:
    """Wait until the request of *verdict*, which is delayed, has its turn.

    `DisconnectedError` if nobody waits for the answer any more. Then, and if this is cancelled, the
    turn is given up, and what else the request holds is given back.
    """
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({leaving}, timeout=verdict.delay)
        has_left = leaving.done() and leaving.exception() is None
    except asyncio.CancelledError:
        await runner.to_the_end(_given_up(verdict, runner))
        raise
    finally:
        leaving.cancel()
    if has_left:
        await runner.to_the_end(_given_up(verdict, runner))
        raise DisconnectedError


async def _left(receive: Receive) -> None:
    """Return when the client is gone; what it still sends is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _given_up(verdict: Verdict, runner: AsyncRunner) -> None:
    await runner.vacate(verdict)
    await runner.release(verdict)
