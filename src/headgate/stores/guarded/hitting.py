"""The short cuts of a store, guarded. While all is well a call costs little more than itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.stores.guarded.guard import Guard, Passage

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.stores.port import Asker, Hitter


def guarded_hitter(hitter: Hitter, guard: Guard) -> Hitter:
    """*hitter*, past the breakers of *guard*."""
    whole = guard.whole if guard.part_of is None else None
    breaker_of, answered = guard.breaker_of, guard.answered

    def hit(key: str, cost: int = 1) -> Decision:
        breaker = whole or breaker_of(key)
        mark = breaker.mark  # before the state: a mark that is too old does no harm
        if not breaker.is_closed:
            with Passage(guard, (breaker,)):
                return hitter(key, cost)
        try:
            decision = hitter(key, cost)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        answered(breaker, mark)
        return decision

    return hit


def guarded_asker(asker: Asker, guard: Guard) -> Asker:
    """The same for a short cut that has to be awaited."""
    whole = guard.whole if guard.part_of is None else None
    breaker_of, answered = guard.breaker_of, guard.answered

    async def ask(key: str, cost: int = 1) -> Decision:
        breaker = whole or breaker_of(key)
        mark = breaker.mark
        if not breaker.is_closed:
            with Passage(guard, (breaker,)):
                return await asker(key, cost)
        try:
            decision = await asker(key, cost)
        except StoreError as error:
            guard.failed((breaker,), (mark,), error.reason)
            raise
        answered(breaker, mark)
        return decision

    return ask
