"""Requests that are being served: the places they hold, and when they end."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.engine import Runner, Verdict


class Places:
    """Gives back the places of requests when they are over, and renews them until then.

    *set_clock* moves virtual time, as both happen at times of their own.
    """

    __slots__ = ("_order", "_runner", "_set_clock", "_waiting", "next_ns")

    def __init__(self, runner: Runner, set_clock: Callable[[int], None]) -> None:
        self._runner = runner
        self._set_clock = set_clock
        self._order = count()
        self._waiting: list[tuple[int, int, int, Verdict]] = []
        self.next_ns: int | None = None
        """When there is something to do next."""

    def take(self, verdict: Verdict, now_ns: int, took_ns: int) -> None:
        """See to the places that *verdict* has from *now_ns* on, for *took_ns*."""
        self._wait(now_ns, now_ns + took_ns, verdict)

    def advance(self, now_ns: int) -> None:
        """Do all that is to be done up to *now_ns*."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_ns:
            due_ns, _, end_ns, verdict = heappop(waiting)
            self._set_clock(due_ns)
            if due_ns >= end_ns:
                self._runner.release(verdict)
            else:
                self._runner.renew(verdict)
                self._wait(due_ns, end_ns, verdict)
        self.next_ns = waiting[0][0] if waiting else None

    def _wait(self, now_ns: int, end_ns: int, verdict: Verdict) -> None:
        lasts_ns = verdict.slots_last_ns
        if lasts_ns is None:
            return
        due_ns = min(end_ns, now_ns + max(1, lasts_ns // 3))
        heappush(self._waiting, (due_ns, next(self._order), end_ns, verdict))
        self.next_ns = self._waiting[0][0]
