"""Lines against a list gone through from its beginning: the same turns, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from headgate.limits import LeakyQueue
from headgate.overload.leaky_line import LeakyLines, Line, Place


class Bell:
    def set(self) -> None: ...
    def clear(self) -> None: ...


@dataclass
class Plain:
    """Who waits, one after the other: name, cost, and the fixed turn of a booking."""

    free: int = 0
    places: list[tuple[Place, int, int | None]] = field(default_factory=list)

    def turns(self) -> dict[Place, int]:
        turn, found = self.free, {}
        for place, cost, booked in self.places:
            turn = turn if booked is None else max(turn, booked)
            found[place] = turn
            turn += cost
        return found

    @property
    def end(self) -> int:
        turns = self.turns()
        return turns[self.places[-1][0]] + self.places[-1][1] if self.places else self.free

    def advance(self, now: int) -> None:
        for place, turn in self.turns().items():
            if turn > now:
                break
            self.free = turn + self.places.pop(0)[1]
            assert place.turn == turn

    def leave(self, place: Place) -> bool:
        left = [one for one in self.places if one[0] is not place]
        was_there, self.places = len(left) < len(self.places), left
        return was_there


@pytest.mark.parametrize("seed", range(40))
def test_bookings_and_those_who_wait_have_the_turns_of_a_plain_list(seed: int) -> None:
    random, line, plain, now = Random(seed), Line(), Plain(), 100
    line.free = line.end = plain.free = now
    known: list[Place] = []
    for _ in range(150):
        verb = random.choice(("join", "join", "join", "leave", "leave", "decline", "advance"))
        if verb == "advance":
            now += random.randrange(8)
            line.advance(now)
            plain.advance(now)
        elif verb == "join":
            cost, bell = random.randrange(1, 4), random.choice((None, Bell()))
            begin = max(plain.end, now)
            place = line.join(cost, bell, now)
            plain.advance(now)
            if begin > now:
                plain.places.append((place, cost, begin if bell is None else None))
            else:
                plain.free = begin + cost
            assert (place.told, place.turn) == (begin, None if begin > now else now)
            known.append(place)
        elif known:
            place = random.choice(known)
            given_up = (line.leave if verb == "leave" else line.decline)(place, now)
            plain.advance(now)
            if not plain.leave(place) and given_up:
                assert place.turn is not None
                plain.free = max(place.turn, now)
                plain.advance(now)
        turns = plain.turns()
        waits = [one for one, _, booked in plain.places if booked is None]
        assert max(line.end, now) == max(plain.end, now), seed
        assert line.waiting == len(plain.places), seed
        assert [line.turn_of_first(one) for one in waits[:2]] == [
            *[turns[one] for one in waits[:1]],
            *[None for _ in waits[1:2]],
        ], seed


@pytest.mark.parametrize("seed", range(10))
def test_the_quick_way_says_what_the_long_one_does(seed: int) -> None:
    random, limit, now = Random(seed), LeakyQueue(3, 4), 10**9
    quick, slow = LeakyLines(limit), LeakyLines(limit)
    for _ in range(300):
        now += random.choice((0, 0, 10**8, 10**9))
        key, cost = random.choice("abcde"), random.choice((1, 1, 2, limit.largest_cost + 1))
        timeout = random.choice((None, 0, 10**9))
        outcome = quick.pass_at_once(key, cost, timeout, now)
        if outcome is None:
            outcome = quick.join(key, cost, timeout, now, Bell).outcome
        expected = slow.join(key, cost, timeout, now, Bell).outcome
        assert outcome == expected, seed
