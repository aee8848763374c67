"""The cost of effects: one operation through the drivers, beside a plain call.

Run `python -m benchmarks.drivers`. The store does nothing, or answers at the next turn of the event
loop, so that what remains is the driver. Numbers are the best of several rounds.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Reply
from headgate.stores.base import Layer, Store
from headgate.stores.operations import Reset

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.runtime.effects import Effects
    from headgate.stores.operations import Operation

ROUNDS, CALLS = 7, 20_000
OPERATION = Reset(())


class Instant(Store):
    """A store that answers at once."""

    waits = False

    def run(self, operation: Operation[Any]) -> Any:
        return None


class Waiting(Store):
    """A store that event loops wait for, by a coroutine."""

    def run(self, operation: Operation[Any]) -> Any:
        return None

    async def arun(self, operation: Operation[Any]) -> Any:
        return await self.future()

    def future(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future = asyncio.Future[None](loop=loop)
        loop.call_soon(future.set_result, None)
        return future


class Futures(Waiting):
    """A store that event loops wait for, by a future that it has anyway."""

    def submit(self, operation: Operation[Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        reply = Reply[None](loop=loop)
        loop.call_soon(reply.set_result, None)
        return reply


class Passing(Layer):
    """A layer that passes everything on."""

    def effects(self, operation: Operation[Any]) -> Effects[Any]:
        return (yield from self.inner.effects(operation))


def layers(store: Store, count: int) -> Store:
    for _ in range(count):
        store = Passing(store)
    return store


def blocking(call: Callable[[], object]) -> float:
    """Microseconds of one *call*."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


async def awaited(call: Callable[[], Awaitable[object]]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            await call()
        best = min(best, time.perf_counter() - began)
    return best / CALLS * 1e6


def show(what: str, us: float) -> None:
    print(f"{what:<58}{us:8.2f} us")


def three_layers(what: str, one: float, three: float) -> None:
    show(f"{what}, each further layer", (three - one) / 3)


def in_thread() -> None:
    instant, waiting = Instant(), Waiting()
    show("blocking: plain call", blocking(lambda: instant.run(OPERATION)))
    one = blocking(lambda: drive(instant.effects(OPERATION)))
    stack = layers(instant, 3)
    three = blocking(lambda: drive(stack.effects(OPERATION)))
    show("blocking: generator and driver", one)
    three_layers("blocking", one, three)
    held = blocking(lambda: drive(waiting.effects(OPERATION)))
    show("blocking: store that waits, main thread, SIGINT held", held)


async def in_loop() -> None:
    instant, waiting, futures = Instant(), Waiting(), Futures()
    show("async: plain call", await awaited(lambda: instant.arun(OPERATION)))
    one = await awaited(lambda: adrive(instant.effects(OPERATION)))
    stack = layers(instant, 3)
    three = await awaited(lambda: adrive(stack.effects(OPERATION)))
    show("async: generator and driver", one)
    three_layers("async", one, three)
    show("async: store that waits, plain call", await awaited(lambda: waiting.arun(OPERATION)))
    task = await awaited(lambda: adrive(waiting.effects(OPERATION)))
    show("async: store that waits, driver, coroutine (task, shield)", task)
    reply = await awaited(lambda: adrive(futures.effects(OPERATION)))
    show("async: store that waits, driver, Reply of the store", reply)


def main() -> None:
    in_thread()
    asyncio.run(in_loop())


if __name__ == "__main__":
    main()
