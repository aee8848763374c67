"""A backend with a knee, asked by as many at once as the limit allows."""

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from headgate.overload import Steering

SERVICE = 0.1


class ClosedLoop:
    """There is always one more who wants in; *workers* serve in the order of arrival.

    *slowness* multiplies what a service takes, 0.1 s on average. Who takes longer than *timeout*
    has failed.
    """

    def __init__(self, steering: Steering, *, seed: int, timeout: float = 2.0) -> None:
        self.steering = steering
        self.now = 0.0
        self.workers = 20
        self.slowness = 1.0
        self._timeout = timeout
        self._random = random.Random(seed)
        self._waiting: deque[tuple[float, int]] = deque()
        self._served: list[tuple[float, float, int]] = []
        self._in_flight = 0

    def run(self, seconds: float, *, demand: Callable[[], int] | None = None) -> list[int]:
        """Go on for *seconds*; the limit after each request that ended. *demand* is how many want
        to be in; more than can be if not said."""
        until = self.now + seconds
        limits = []
        while self.now < until:
            self._let_in(demand)
            self.now, began, in_flight = heappop(self._served)
            self._in_flight -= 1
            took = self.now - began
            self.steering.observe(
                in_flight=in_flight,
                latency_ns=round(took * 1e9),
                succeeded=took < self._timeout,
            )
            self._serve()
            limits.append(self.steering.limit)
        return limits

    def _let_in(self, demand: Callable[[], int] | None) -> None:
        wanted = self.steering.limit if demand is None else min(demand(), self.steering.limit)
        while self._in_flight < max(wanted, 1):
            self._in_flight += 1
            self._waiting.append((self.now, self._in_flight))
        self._serve()

    def _serve(self) -> None:
        while self._waiting and len(self._served) < self.workers:
            began, in_flight = self._waiting.popleft()
            takes = self._random.expovariate(1 / (SERVICE * self.slowness))
            heappush(self._served, (self.now + takes, began, in_flight))
