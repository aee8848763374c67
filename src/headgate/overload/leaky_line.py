"""One queue that leaks: who is in it, and when each has its turn. No clock, no lock, no I/O.

Time is counted in *ticks* (see `limits.model`), of which a unit takes a whole number: turns are
exact, and nothing drifts. Two instants describe a line:

- `free`: when all that has left it is worked off, so that the next may leave.
- `end`: when all that waits in it is worked off too, so that whoever comes now may leave.

A caller that waits has no fixed time: its turn is at the end of the one before it, so all move up
when one gives up. A place that was *booked* does have one, as its holder was told so and asks
nobody before it goes: it never moves, and those behind it move up as far as it lets them.

What is due has left: each question begins with `advance`, so it does not matter whether those who
wait wake up in time. The first of them is woken when it becomes the first, and wakes at its turn.
The others need not: each wakes at the turn that it was told at the latest.

Nothing here takes longer the more there are. Each place knows the booking that it stands behind,
and that knows how much waits between it and the next: so the turn of who is first and the end of
the line are known without going through it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import chain
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from headgate.algorithms import Outcome
from headgate.algorithms.base import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.limits import LeakyQueue


class Bell(Protocol):
    """What wakes one who waits: an event of a thread or of a loop."""

    def set(self) -> None: ...
    def clear(self) -> None: ...


class Place:
    """A place in a line. Its turn is None until it has come."""

    __slots__ = ("behind", "bell", "cost", "is_gone", "line", "load", "number", "told", "turn")

    def __init__(self, line: Line, cost: int, bell: Bell | None, told: int) -> None:
        self.line = line
        self.cost = cost
        """In ticks."""
        self.bell = bell
        """What wakes whoever waits; None: a booking, for which nobody does."""
        self.told = told
        """The turn as it was when the place was taken. It never becomes later."""
        self.turn: int | None = None
        self.number = 0
        """Who comes later has a higher one."""
        self.behind: Place | None = None
        """The last booking before it, which may be gone; None: there is none."""
        self.load = 0
        """Of a booking: the costs of those who wait between it and the next."""
        self.is_gone = False


class Line:
    """The queue of one key. Times are ticks."""

    __slots__ = ("_bookings", "_load", "_number", "_waiters", "end", "free")

    def __init__(self) -> None:
        self.free = self.end = 0
        self._waiters: OrderedDict[Place, None] = OrderedDict()
        self._bookings: OrderedDict[Place, None] = OrderedDict()
        self._load = 0  # the costs of those who wait before the first booking
        self._number = 0

    @property
    def waiting(self) -> int:
        """How many there are whose turn had not come at the last question."""
        return len(self._waiters) + len(self._bookings)

    def wait(self, now: int) -> int:
        """How long whoever comes *now* would have to wait."""
        self.advance(now)
        return max(self.end - now, 0)

    def join(self, cost: int, bell: Bell | None, now: int) -> Place:
        """A place behind all others. If there is nobody to wait for, its turn has come."""
        wait = self.wait(now)
        place = Place(self, cost, bell, now + wait)
        self.end = place.told + cost
        if wait:
            self._line_up(place)
        else:
            place.turn, self.free = now, self.end
        return place

    def leave(self, place: Place, now: int) -> bool:
        """Give *place* up before its turn; whether it had not come yet. Those behind move up."""
        self.advance(now)
        if place not in (self._bookings if place.bell is None else self._waiters):
            return False
        self._step_out(place)
        self._move_up()
        return True

    def decline(self, place: Place, now: int) -> bool:
        """Give *place* up, even at its very turn, of which no use was made.

        If nobody else has had a turn since, the next one goes instead.
        """
        if self.leave(place, now):
            return True
        if place.turn is None or self.free != place.turn + place.cost:
            return False
        self.free = max(place.turn, now)
        self._move_up()
        self.advance(now)
        return True

    def turn_of_first(self, place: Place) -> int | None:
        """When *place* has its turn, if it is the first that somebody waits for."""
        if next(iter(self._waiters), None) is not place:
            return None
        before = self._booking_before(place)
        return self.free if before is None else before.told + before.cost

    def advance(self, now: int) -> None:
        """Let all go whose turn has come."""
        has_moved = False
        while (place := self._first()) is not None:
            turn = self.free if place.bell is not None else max(place.told, self.free)
            if turn > now:
                break
            self._step_out(place)
            has_moved = True
            place.turn, self.free = turn, turn + place.cost
            if place.bell is not None:
                place.bell.set()
        if has_moved:
            self._wake_first()

    def forget(self, now: int) -> None:
        """Forget what has left: the first who waits goes now, the others follow at the rate."""
        self.advance(now)
        if self.free > now:
            self.free = now
            self._move_up()
            self.advance(now)

    def abandon(self) -> None:
        """In a forked process: nobody is left of those who waited."""
        self._waiters.clear()
        self._bookings.clear()
        self._load = 0
        self.end = self.free

    def _line_up(self, place: Place) -> None:
        self._number += 1
        place.number = self._number
        place.behind = next(reversed(self._bookings), None)
        if place.bell is None:
            self._bookings[place] = None
        else:
            self._waiters[place] = None
            self._weigh(place.behind, place.cost)

    def _step_out(self, place: Place) -> None:
        place.behind = before = self._booking_before(place)
        if place.bell is not None:
            del self._waiters[place]
            self._weigh(before, -place.cost)
        else:
            del self._bookings[place]
            place.is_gone = True
            self._weigh(before, place.load)

    def _weigh(self, booking: Place | None, more: int) -> None:
        """There waits *more* behind *booking*."""
        if booking is None:
            self._load += more
        else:
            booking.load += more

    def _booking_before(self, place: Place) -> Place | None:
        """The last booking before *place* that is still there."""
        before = place.behind
        while before is not None and before.is_gone:
            before = before.behind
        place.behind = before
        return before

    def _first(self) -> Place | None:
        """Whose turn is the next."""
        if not self._bookings:
            return next(iter(self._waiters), None)
        booking = next(iter(self._bookings))
        waiter = next(iter(self._waiters), booking)
        return waiter if waiter.number < booking.number else booking

    def _move_up(self) -> None:
        """Something before the end is gone: see to the end of the line, and to who is first."""
        last = next(reversed(self._bookings), None)
        self.end = self.free + self._load if last is None else last.told + last.cost + last.load
        self._wake_first()

    def _wake_first(self) -> None:
        for place in self._waiters:
            if place.bell is not None:
                place.bell.set()
            return


# The lines of all keys of a shaper in one process. No clock, no lock, no I/O.
#
# A line that is as new is forgotten, so keys that nobody asks for cost nothing: each question looks
# at a few lines that it is not about. There are at most `most` lines: should so many keys be in
# use, further ones share some, by their hash, which makes them stricter and frees nobody.


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
