"""What was admitted here while the store was gone, and the store has not been told of. No I/O."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.limits import Concurrency
from headgate.stores.operations import Check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.limits import Limit

MOST_OWED: Final = 10_000
"""Of how many counters it is kept; of further ones the store will not hear."""


class Owing:
    """What the store is owed, by counter; of at most *most* of them. Safe to share among threads.

    Places under concurrency limits are not consumption: nothing is owed for them.
    """

    __slots__ = ("_lock", "_most", "_owed")

    def __init__(self, most: int = MOST_OWED) -> None:
        self._most = most
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nothing is owed, and nobody else is at it: for a process that was forked."""
        self._lock = threading.Lock()
        self._owed: dict[tuple[str, str], tuple[Limit, int]] = {}

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, checks: Iterable[Check]) -> int:
        """The store is owed the costs of *checks*; for how many of them there was no room."""
        dropped = 0
        with self._lock:
            for check in checks:
                if not check.cost or isinstance(check.limit, Concurrency):
                    continue
                place = check.group, check.key
                known = self._owed.get(place)
                if known is None and len(self._owed) >= self._most:
                    dropped += 1
                    continue
                self._owed[place] = check.limit, check.cost + (0 if known is None else known[1])
        return dropped

    def subtract(self, checks: Iterable[Check]) -> None:
        """The costs of *checks* were given back here."""
        with self._lock:
            for check in checks:
                place = check.group, check.key
                limit, amount = self._owed.get(place, (check.limit, 0))
                if amount > check.cost:
                    self._owed[place] = limit, amount - check.cost
                else:
                    self._owed.pop(place, None)

    def forget(self, checks: Iterable[Check]) -> None:
        """The counters of *checks* were reset."""
        with self._lock:
            for check in checks:
                self._owed.pop((check.group, check.key), None)

    def take_some(self, most: int) -> list[Check]:
        """Up to *most* of what is owed, which is owed no longer."""
        with self._lock:
            places = list(islice(self._owed, most))
            taken = [(place, *self._owed.pop(place)) for place in places]
        return [Check(group, key, limit, amount) for (group, key), limit, amount in taken]
