"""Where queues are kept: one counter, however long each of those who ask would wait; and the quick
way to one of them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headgate.algorithms import LeakyQueueAlgorithm
from headgate.stores.memory.counters import Entry
from headgate.stores.port import checked_cost, checked_key, concluded

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import LeakyQueue
    from headgate.stores.memory.counters import Counters
    from headgate.stores.memory.sweep import Sweep
    from headgate.stores.memory.turn import Turn
    from headgate.stores.port import Hitter


def queue_under(limit: LeakyQueue, origin: int) -> tuple[LeakyQueueAlgorithm, LeakyQueue]:
    """The arithmetic to ask a queue by, and the limit that it is kept under."""
    patient = limit.patient
    return _kept(patient, origin).asked_under(limit), patient


def queue_hitter(
    counters: Counters, algorithm: LeakyQueueAlgorithm, turn: Turn, clock: Clock, sweep: Sweep
) -> Hitter:
    """Hits on *counters*, asked by *algorithm*. What is held in a queue has had its turn."""
    take_turn, give_turn_back, step = turn.take, turn.give_back, sweep.step
    limit, take = algorithm.limit, algorithm.take

    def hit(key: str, cost: int = 1) -> Decision:
        key = checked_key(key)
        checked_cost(cost)
        take_turn()
        try:
            now = clock()
            step(now)
            state, holds = counters.load(key, now)
            state, outcome = take(state, cost, now)
            if outcome.allowed and cost:
                counters.save(key, Entry(state, holds), now)
        finally:
            give_turn_back()
        return concluded(key, limit, outcome)

    counters.serve(hit)
    return hit


@lru_cache(maxsize=1024)
def _kept(patient: LeakyQueue, origin: int) -> LeakyQueueAlgorithm:
    return LeakyQueueAlgorithm(patient, origin)
