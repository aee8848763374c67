"""Holding back the answer to a gateway until the request it asks about has its turn.

A gateway cannot delay a request, but it waits for the answer. So the answer comes when the turn
does. A gateway that gives up before, by its own timeout or because its client has left, closes the
connection: then the turn goes to whoever comes next.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.heartbeat import ASYNC_HEART, BEATS
from headgate.service.http.receiving import DisconnectedError
from headgate.shaping.shapers.measures import WAITING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.engine import AsyncRunner, Verdict
    from headgate.service.http.replies import Receive


async def turn_of(verdict: Verdict, runner: AsyncRunner, receive: Receive) -> None:
    """Wait until the request of *verdict*, which is delayed, has its turn.

    Its places under concurrency limits are kept meanwhile: their leases begin with the turn.
    `DisconnectedError` if nobody waits for the answer any more. Then, and if this is cancelled, the
    turn is given up, and the places are given back; what was counted stays so, since a gateway
    that has lost its patience may have let the request pass.
    """
    leaving = asyncio.ensure_future(_left(receive))
    lasts_ns = verdict.slots_last_ns
    renew = partial(runner.renew, verdict)
    beat = None if lasts_ns is None else ASYNC_HEART.beat(renew, lasts_ns // BEATS)
    try:
        with WAITING:
            await asyncio.wait({leaving}, timeout=verdict.delay)
        has_left = leaving.done() and leaving.exception() is None
        if beat is not None and not has_left:
            await _renewed(renew)
    except asyncio.CancelledError:
        await runner.to_the_end(_given_up(verdict, runner))
        raise
    finally:
        leaving.cancel()
        if beat is not None:
            beat.stop()
    if has_left:
        await runner.to_the_end(_given_up(verdict, runner))
        raise DisconnectedError


async def _renewed(renew: Callable[[], Awaitable[bool]]) -> None:
    with suppress(StoreError):  # it lasts a while yet: the heart has seen to that
        await renew()


async def _left(receive: Receive) -> None:
    """Return when the client is gone; what it still sends is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _given_up(verdict: Verdict, runner: AsyncRunner) -> None:
    await runner.vacate(verdict)
    await runner.release(verdict)
