"""One queue that leaks: who is in it, and when each has its turn. No clock, no lock, no I/O.

Time is counted in *ticks* (see `limits.pace`), of which a unit takes a whole number: turns are
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

from collections import OrderedDict
from typing import Protocol


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
