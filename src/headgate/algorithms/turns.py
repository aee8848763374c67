"""What one operation asks of one queue, one check after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headgate.algorithms.leaky_queue import with_turn

if TYPE_CHECKING:
    from headgate.algorithms.algorithm import Outcome
    from headgate.algorithms.leaky_queue import LeakyQueueAlgorithm, Line


class Turns:
    """Checks of one queue, each behind those before it, as if they were taken.

    Ask `wait` of every check, then `told` of every check, in the same order.
    """

    __slots__ = ("_algorithm", "_asked", "_delays", "_line", "_now")

    def __init__(self, algorithm: LeakyQueueAlgorithm, line: Line | None, now: int) -> None:
        self._algorithm = algorithm
        self._line = line
        self._now = now
        self._asked = 0
        self._delays: deque[int] = deque()

    def wait(self, cost: int) -> int | None:
        """Nanoseconds until *cost* fits behind all that was asked before; None if never."""
        if not cost:
            self._delays.append(0)
            return 0
        algorithm, now = self._algorithm, self._now
        wait = algorithm.wait(self._line, cost, now)
        self._delays.append(0 if wait else algorithm.delay(self._line, cost, now))
        self._line = algorithm.charge(self._line, cost, now)
        before, self._asked = self._asked, self._asked + cost
        if wait and before and algorithm.wait(algorithm.charge(None, before, now), cost, now):
            return None
        return wait

    def told(self, outcome: Outcome) -> Outcome:
        """*outcome*, that of the next check, with its turn."""
        delay = self._delays.popleft() if self._delays else 0
        return with_turn(outcome, delay, self._now) if outcome.allowed else outcome
