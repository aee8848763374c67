"""Calls of a store as threads make them, or as event loops do: one test serves both drivers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from headgate.stores.base import Prepared, Store
    from headgate.stores.layers.replication import ReplicatedStore
    from headgate.stores.operations import Operation, Outcomes

R = TypeVar("R")

DRIVERS = ("blocking", "async")


class Calls:
    """The calls of one *driver*. An event loop runs only while a call does."""

    def __init__(self, driver: str) -> None:
        self.runner = asyncio.Runner() if driver == "async" else None

    def run(self, store: Store, operation: Operation[R]) -> R:
        if self.runner is None:
            return store.run(operation)
        return self.runner.run(store.arun(operation))

    def take(self, prepared: Prepared, *keys: str, costs: Sequence[int] = ()) -> Outcomes:
        amounts = tuple(costs) or (1,) * len(keys)
        if self.runner is None:
            return prepared.take(keys, amounts)

        async def take() -> Outcomes:
            answer = prepared.atake(keys, amounts)
            return answer if isinstance(answer, tuple) else await answer

        return self.runner.run(take())

    def exchange(self, store: ReplicatedStore) -> None:
        if self.runner is None:
            store.exchange()
        else:
            self.runner.run(store.aexchange())

    def close(self, store: Store) -> None:
        if self.runner is None:
            store.close()
        else:
            self.runner.run(store.aclose())

    def end(self) -> None:
        """End the event loop."""
        if self.runner is not None:
            self.runner.close()

    def wait_for(self, event: threading.Event, patience: float = 30.0) -> None:
        """Wait until *event* is set, by a thread or by a task of the event loop."""
        if self.runner is None:
            assert event.wait(patience)
            return

        async def wait() -> None:
            async with asyncio.timeout(patience):
                while not event.is_set():  # noqa: ASYNC110 (it is set by a task of this loop)
                    await asyncio.sleep(0.001)

        self.runner.run(wait())
