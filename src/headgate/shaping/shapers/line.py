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

    __slots__ = ("bell", "cost", "line", "told", "turn")

    def __init__(self, line: Line, cost: int, bell: Bell | None, told: int) -> None:
        self.line = line
        self.cost = cost
        """In ticks."""
        self.bell = bell
        """What wakes whoever waits; None: a booking, for which nobody does."""
        self.told = told
        """The turn as it was when the place was taken. It never becomes later."""
        self.turn: int | None = None

    def begins(self, free: int) -> int:
        """When its turn is if the line is free from *free* on."""
        return free if self.bell is not None else max(self.told, free)


class Line:
    """The queue of one key. Times are ticks."""

    __slots__ = ("_bookings", "_places", "end", "free")

    def __init__(self) -> None:
        self.free = self.end = 0
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._bookings = 0

    @property
    def waiting(self) -> int:
        """How many there are whose turn had not come at the last question."""
        return len(self._places)

    def wait(self, now: int) -> int:
        """How long whoever comes *now* would have to wait."""
        self.advance(now)
        return max(self.end - now, 0)

    def join(self, cost: int, bell: Bell | None, now: int) -> Place:
        """A place behind all others. If there is nobody to wait for, its turn has come."""
        wait = self.wait(now)
        place = Place(self, cost, bell, now + wait)
        self.end = place.told + cost
        if not wait:
            place.turn, self.free = now, self.end
        else:
            self._bookings += bell is None
            self._places[place] = None
        return place

    def leave(self, place: Place, now: int) -> bool:
        """Give *place* up before its turn; whether it had not come yet. Those behind move up."""
        self.advance(now)
        if place not in self._places:
            return False
        del self._places[place]
        had_bookings = self._bookings > 0
        self._bookings -= place.bell is None
        self._move_up(place.cost, has_gaps=had_bookings)
        return True

    def decline(self, place: Place, now: int) -> bool:
        """Give *place* up, even at its very turn, of which no use was made.

        If nobody else has had a turn since, the next one goes instead.
        """
        if self.leave(place, now):
            return True
        if place.turn is None or self.free != place.turn + place.cost:
            return False
        self._free_from(max(place.turn, now))
        self.advance(now)
        return True

    def turn_of_first(self, place: Place) -> int | None:
        """When *place* has its turn, if it is the first that somebody waits for."""
        turn = self.free
        for one in self._places:  # before the first there are bookings only
            turn = one.begins(turn)
            if one.bell is not None:
                return turn if one is place else None
            turn += one.cost
        return None

    def advance(self, now: int) -> None:
        """Let all go whose turn has come."""
        places = self._places
        has_moved = False
        while places:
            place = next(iter(places))
            turn = place.begins(self.free)
            if turn > now:
                break
            del places[place]
            has_moved = True
            place.turn, self.free = turn, turn + place.cost
            if place.bell is None:
                self._bookings -= 1
            else:
                place.bell.set()
        if has_moved:
            self._wake_first()

    def forget(self, now: int) -> None:
        """Forget what has left: the first who waits goes now, the others follow at the rate."""
        self.advance(now)
        if self.free > now:
            self._free_from(now)
            self.advance(now)

    def abandon(self) -> None:
        """In a forked process: nobody is left of those who waited."""
        self._places.clear()
        self._bookings = 0
        self.end = self.free

    def _free_from(self, instant: int) -> None:
        sooner, self.free = self.free - instant, instant
        self._move_up(sooner, has_gaps=self._bookings > 0)

    def _move_up(self, sooner: int, *, has_gaps: bool) -> None:
        """See to the end of the line, before which there is *sooner* less, and to who is first."""
        if has_gaps:  # where a booking did not move up
            self.end = self.free
            for place in self._places:
                self.end = place.begins(self.end) + place.cost
        else:
            self.end -= sooner
        self._wake_first()

    def _wake_first(self) -> None:
        for place in self._places:
            if place.bell is not None:
                place.bell.set()
                return
