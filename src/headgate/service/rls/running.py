"""Rounds of operations with a store: at once where it never waits, else awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError, UsageError
from headgate.stores.operations import TakeEach

if TYPE_CHECKING:
    from headgate.service.rls.asking import Rounds
    from headgate.stores.operations import Operation
    from headgate.stores.port import AsyncStore


def run_now(store: AsyncStore, rounds: Rounds) -> None:
    """Go through *rounds* with a store that never waits."""
    try:
        operations = next(rounds)
        while True:
            operations = rounds.send([_reply_now(store, one) for one in operations])
    except StopIteration:
        return


async def run_later(store: AsyncStore, rounds: Rounds) -> None:
    """Go through *rounds* with a store that may have to be waited for."""
    try:
        operations = next(rounds)
        while True:
            if len(operations) == 1:
                replies = [await _reply(store, operations[0])]
            else:
                replies = await asyncio.gather(*[_reply(store, one) for one in operations])
            operations = rounds.send(replies)
    except StopIteration:
        return


def _reply_now(store: AsyncStore, operation: Operation[Any]) -> Any:
    running = store.run(operation)
    try:
        running.send(None)
    except StopIteration as done:
        return done.value
    except StoreError as error:
        return error
    running.close()
    raise UsageError(f"{store!r} waits, though it says that it never does")


async def _reply(store: AsyncStore, operation: Operation[Any]) -> Any:
    try:
        if isinstance(operation, TakeEach) and len(operation.takes) == 1:
            return (await store.run(operation.takes[0]),)  # with which a store may borrow
        return await store.run(operation)
    except StoreError as error:
        return error
