"""`AsyncCaller`: takes requests through their journeys on an event loop, never blocking it."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.aio import AsyncRateLimiter
from headgate.enforcement.outgoing.discarding import Discarding
from headgate.enforcement.outgoing.outset import Asked, Outset, Q
from headgate.enforcement.outgoing.pacing import NAMESPACE, read_pace
from headgate.enforcement.outgoing.turns import AsyncTurnLimiter
from headgate.errors import OptionError
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.clock import Clock
    from headgate.decisions import FailurePolicy
    from headgate.enforcement.outgoing.courtesy import Courtesy
    from headgate.enforcement.outgoing.destinations import Destinations
    from headgate.enforcement.outgoing.journey import Journey
    from headgate.enforcement.outgoing.outset import Pace
    from headgate.enforcement.outgoing.signals import Answer
    from headgate.stores import AsyncStore, Store

R = TypeVar("R")


class AsyncCaller(Generic[Q, R]):
    """Sends requests *Q* of some client, and gets responses *R*. For the tasks of one event
    loop at a time.

    *answer* reads a response; *discard* reads off and closes one that will be asked for again,
    within its `Discarding`: that time is a part of what the call waits. The options are those of
    `AsyncOptions`.
    """

    def __init__(
        self,
        answer: Callable[[R], Answer],
        discard: Callable[[R, Discarding], Awaitable[None]],
        *,
        pace: Pace | AsyncRateLimiter | None = None,
        store: str | Store | AsyncStore | None = None,
        namespace: str | None = None,
        on_store_failure: FailurePolicy = "fail_open",
        key: Callable[[Q], str] | None = None,
        courtesy: Courtesy | None = None,
        destinations: Destinations | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._answer = answer
        self._discard = discard
        self._outset = Outset(
            key=key, courtesy=courtesy, destinations=destinations, clock=clock, chance=chance
        )
        self._sleep: Callable[[float], Awaitable[None]] = getattr(clock, "asleep", asyncio.sleep)
        self._owns_limiter = not isinstance(pace, AsyncRateLimiter)
        self._limiter: AsyncRateLimiter | None = None
        if isinstance(pace, AsyncRateLimiter) or pace is None:
            if store is not None or namespace is not None:
                raise OptionError("store and namespace go with a pace such as '10/s' alone")
            self._limiter = pace
        else:
            self._limiter = AsyncTurnLimiter(
                read_pace(pace),
                store="memory://" if store is None else store,
                clock=clock if store is None or isinstance(store, str) else None,
                namespace=NAMESPACE if namespace is None else namespace,
                on_store_failure=on_store_failure,
            )

    async def call(self, asked: Asked[Q], send: Callable[[], Awaitable[R]]) -> R:
        """The response to a request, which *send* sends, as often as need be.

        Raises `NotSentError` if it would have to wait for too long, and what *send* raises.
        """
        journey = self._outset.journey(asked)
        outset = self._outset
        while True:
            await self._wait(journey)
            journey.set_out(outset.now_ns())
            response = await send()
            if not journey.heard(self._answer(response), outset.now_ns(), outset.time_ns()):
                return response
            began_ns = outset.now_ns()
            await self._discard(response, Discarding(journey.patience, outset.now_ns))
            journey.add_wait(began_ns, outset.now_ns())

    async def aclose(self) -> None:
        """Close the store of the pace, unless the limiter was given."""
        if self._limiter is not None and self._owns_limiter:
            await self._limiter.aclose()

    async def _wait(self, journey: Journey) -> None:
        """Wait until the destination is open and it is this call's turn."""
        while True:
            await self._wait_until_open(journey)
            if self._limiter is None:
                return
            began_ns = self._outset.now_ns()
            decision = await self._limiter.acquire(journey.key, timeout=journey.patience)
            now_ns = self._outset.now_ns()
            journey.add_wait(began_ns, now_ns)
            if not decision:
                raise journey.out_of_pace(decision)
            if journey.may_go(now_ns):
                return
            # It closed while this call stood in line: what it took is for the next to come.
            await self._limiter.refund(journey.key, 1)

    async def _wait_until_open(self, journey: Journey) -> None:
        now_ns = self._outset.now_ns
        while pause_ns := journey.pause_ns(began_ns := now_ns()):
            await self._sleep(seconds_at_least(pause_ns))
            journey.add_wait(began_ns, now_ns())
