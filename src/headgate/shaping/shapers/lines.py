"""The lines of all keys of a shaper in one process. No clock, no lock, no I/O.

A line that is as new is forgotten, so keys that nobody asks for cost nothing: each question looks
at a few lines that it is not about. There are at most `most` lines: should so many keys be in use,
further ones share some, by their hash, which makes them stricter and frees nobody.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from headgate.algorithms import Outcome
from headgate.algorithms.algorithm import ALLOWED
from headgate.shaping.shapers.line import Bell, Line, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.limits import LeakyQueue

B = TypeVar("B", bound=Bell)

MOST_LINES: Final = 100_000
"""How many keys have a line of their own, unless said otherwise."""

SHARED_LINES: Final = 1_024
"""How many lines all further keys share."""

_GLANCES: Final = 2
"""How many lines are looked at, whenever anybody lines up, for being as new."""


class Joined(NamedTuple, Generic[B]):
    """What came of lining up: the place, or None if there is none for it; and the bell, if it has
    to wait for that."""

    place: Place | None
    bell: B | None
    outcome: Outcome


class Rest(NamedTuple):
    """How long one who waits has to sleep, unless its bell rings before."""

    ns: int
    is_first: bool
    """Whether nobody else waits for an earlier turn."""


class LeakyLines:
    """Places in the queues that *limit* describes, one queue for each key.

    Times are nanoseconds on the caller's clock; one that steps back stands still here until it has
    caught up. *timeout_ns* is how long who asks is ready to wait; None: as long as the limit says.
    """

    def __init__(self, limit: LeakyQueue, most: int = MOST_LINES) -> None:
        self._pace = limit.pace
        self._unit = self._pace.ticks_per_unit
        self._patience = limit.patience
        self._largest_cost = limit.largest_cost
        self._most = most
        self._own: dict[str, Line] = {}
        self._shared: dict[int, Line] = {}
        self._hand: deque[str] = deque()
        self._latest_ns = 0

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self._own) + len(self._shared)

    @property
    def waiting(self) -> int:
        """How many places there are whose turn has not come, as far as anybody has looked."""
        return sum(line.waiting for line in self._lines())

    def look(self, key: str, cost: int, timeout_ns: int | None, now_ns: int) -> Outcome:
        """What `join` would say."""
        now = self._ticks(now_ns)
        line = self._find(key, now)
        wait = line.wait(now) if line is not None else 0
        patience = self._patience_of(timeout_ns)
        return self._outcome(cost, wait, wait, patience)

    def join(
        self,
        key: str,
        cost: int,
        timeout_ns: int | None,
        now_ns: int,
        new_bell: Callable[[], B] | None = None,
    ) -> Joined[B]:
        """Line up for *cost*, at least 1, with a new bell for who has to wait; without, to book.

        Refused, and no place taken, if its turn would not come in time.
        """
        now = self._ticks(now_ns)
        self._tidy(now)
        line = self._find(key, now) or self._new(key)
        wait, patience = line.wait(now), self._patience_of(timeout_ns)
        if wait > patience or cost > self._largest_cost:
            return Joined(None, None, self._outcome(cost, wait, wait, patience))
        bell = new_bell() if new_bell is not None and wait else None
        place = line.join(cost * self._pace.ticks_per_unit, bell, now)
        return Joined(place, bell, self._outcome(cost, wait, line.end - now, patience))

    def pass_at_once(
        self, key: str, cost: int, timeout_ns: int | None, now_ns: int
    ) -> Outcome | None:
        """What `join` would say, if there is nobody to wait for: the quick way of most. None: it
        cannot tell, and nothing was done."""
        now = self._ticks(now_ns)
        line = self._own.get(key)
        if cost > self._largest_cost or (line is None and self._shared):
            return None
        busy = cost * self._unit
        if line is None:
            self._tidy(now)
            line = self._new(key)
            line.free = line.end = now + busy
        elif line.end > now or line.waiting:
            return None
        else:
            line.free = line.end = now + busy
            self._tidy(now, glances=1)
        room = self._patience_of(timeout_ns) - busy
        remaining = room // self._unit + 1 if room >= 0 else 0
        return Outcome(ALLOWED, remaining, 0, -(-busy // self._pace.ticks_per_ns))

    def rest(self, place: Place, now_ns: int) -> Rest | None:
        """How long to sleep for the turn of *place*; None if it has come."""
        now = self._ticks(now_ns)
        place.line.advance(now)
        if place.turn is not None:
            return None
        turn = place.line.turn_of_first(place)
        until = place.told if turn is None else turn
        return Rest(self._pace.to_ns(until - now), turn is not None)

    def leave(self, place: Place, now_ns: int) -> bool:
        """Give up a booking; whether its turn had not come yet. Those behind move up."""
        return place.line.leave(place, self._ticks(now_ns))

    def decline(self, place: Place, now_ns: int) -> bool:
        """Give up a place that somebody waited for, even at its very turn."""
        return place.line.decline(place, self._ticks(now_ns))

    def forget(self, key: str, now_ns: int) -> None:
        """Forget what has left the line of *key*."""
        now = self._ticks(now_ns)
        line = self._find(key, now)
        if line is not None:
            line.forget(now)

    def abandon(self) -> None:
        """In a forked process: nobody is left of those who waited."""
        for line in self._lines():
            line.abandon()

    def _outcome(self, cost: int, wait: int, busy: int, patience: int) -> Outcome:
        """What is said to *cost*, which has to *wait*; the line is *busy* then. All in ticks."""
        pace = self._pace
        room = patience - busy
        remaining = room // pace.ticks_per_unit + 1 if room >= 0 else 0
        reset_ns = pace.to_ns(busy)
        if not cost:
            return Outcome(ALLOWED, remaining, 0, reset_ns)
        if cost > self._largest_cost:
            return Outcome(False, remaining, None, reset_ns)  # noqa: FBT003
        if wait > patience:
            return Outcome(False, remaining, pace.to_ns(wait - patience), reset_ns)  # noqa: FBT003
        delay_ns = pace.to_ns(wait)
        turn_ns = self._latest_ns + delay_ns if delay_ns else 0
        return Outcome(ALLOWED, remaining, 0, reset_ns, delay_ns, turn_ns)

    def _patience_of(self, timeout_ns: int | None) -> int:
        if timeout_ns is None:
            return self._patience
        return min(timeout_ns * self._pace.ticks_per_ns, self._patience)

    def _find(self, key: str, now: int) -> Line | None:
        """The line that *key* has, or shares; a shared one only while it is in use."""
        line = self._own.get(key)
        if line is None and self._shared:
            line = self._shared.get(hash(key) % SHARED_LINES)
            if line is not None and not line.wait(now):
                return None
        return line

    def _new(self, key: str) -> Line:
        line = Line()
        if len(self._own) < self._most:
            self._own[key] = line
            self._hand.append(key)
        else:
            self._shared[hash(key) % SHARED_LINES] = line
        return line

    def _tidy(self, now: int, glances: int = _GLANCES) -> None:
        """Look at a few lines; those that are as new are forgotten."""
        hand, own = self._hand, self._own
        for _ in range(min(glances, len(hand))):
            key = hand.popleft()
            line = own[key]
            if line.waiting:
                line.advance(now)
            if line.end > now:
                hand.append(key)
            else:
                del own[key]

    def _ticks(self, now_ns: int) -> int:
        self._latest_ns = max(self._latest_ns, now_ns)
        return self._latest_ns * self._pace.ticks_per_ns

    def _lines(self) -> chain[Line]:
        return chain(self._own.values(), self._shared.values())
