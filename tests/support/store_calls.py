"""Calls of a store as threads make them, or as event loops do: one test serves both drivers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
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

    def wait(self, awaitable: Any, patience: float) -> None:
        """Let the event loop run until *awaitable* is done."""
        assert self.runner is not None

        async def wait() -> None:
            await asyncio.wait_for(awaitable, patience)

        self.runner.run(wait())

    def close(self, store: Store) -> None:
        if self.runner is None:
            store.close()
        else:
            self.runner.run(store.aclose())

    def end(self) -> None:
        """End the event loop."""
        if self.runner is not None:
            self.runner.close()
