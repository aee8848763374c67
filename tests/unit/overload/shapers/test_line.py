"""One line against an oracle that goes from tick to tick, so that anyone can see it is right."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from headgate.overload.leaky_line import Line, Place

UNIT = 5


class Bell:
    """Counts how often it rang."""

    def __init__(self) -> None:
        self.rings = 0

    def set(self) -> None:
        self.rings += 1

    def clear(self) -> None:
        self.rings = 0


class Oracle:
    """A server that looks at its queue at each tick."""

    def __init__(self) -> None:
        self.now = 0
        self.free = 0
        self.queue: list[tuple[int, int]] = []
        self.left: dict[int, int] = {}
        self.last: tuple[int, int] | None = None

    def tick(self) -> None:
        self.now += 1
        self.serve()

    def serve(self) -> None:
        while self.queue and self.free <= self.now:
            name, cost = self.last = self.queue.pop(0)
            self.left[name] = self.now
            self.free = self.now + cost

    def arrive(self, name: int, cost: int) -> None:
        self.queue.append((name, cost))
        self.serve()

    def cancel(self, name: int) -> None:
        self.queue = [one for one in self.queue if one[0] != name]
        if self.last is not None and self.last[0] == name and self.left.get(name) == self.now:
            del self.left[name]
            self.free, self.last = self.now, None
            self.serve()


@pytest.mark.parametrize("seed", range(60))
def test_turns_are_those_of_a_server_that_looks_at_its_queue_at_each_tick(seed: int) -> None:
    random = Random(seed)
    line, oracle = Line(), Oracle()
    places: dict[int, Place] = {}
    gone: set[int] = set()
    for name in range(60):
        for _ in range(random.choice((0, 0, 1, 2, 5, 20))):
            oracle.tick()
        waiting = [one for one in places if one not in gone and one not in oracle.left]
        at_turn = [one for one in oracle.left if oracle.left[one] == oracle.now]
        if waiting and random.random() < 0.3:
            chosen = random.choice(waiting)
        elif at_turn and oracle.last == (at_turn[-1], places[at_turn[-1]].cost):
            chosen = at_turn[-1] if random.random() < 0.3 else -1
        else:
            chosen = -1
        if chosen >= 0:
            gone.add(chosen)
            assert line.decline(places[chosen], oracle.now), seed
            oracle.cancel(chosen)
            continue
        cost = random.choice((1, 1, 2, 7)) * UNIT
        wait = sum(one[1] for one in oracle.queue) + max(oracle.free - oracle.now, 0)
        assert line.wait(oracle.now) == wait, seed
        places[name] = line.join(cost, Bell(), oracle.now)
        oracle.arrive(name, cost)
    while oracle.queue:
        oracle.tick()
    line.advance(oracle.now)
    turns = {name: place.turn for name, place in places.items() if name not in gone}
    assert turns == oracle.left, seed


@pytest.mark.parametrize("seed", range(60))
def test_bookings_keep_their_turn_and_nobody_ever_overlaps(seed: int) -> None:
    random = Random(seed)
    line, now = Line(), 0
    places: list[Place] = []
    gone: set[Place] = set()
    for _ in range(80):
        now += random.choice((0, 0, 1, 3, 12))
        waiting = [one for one in places if one.turn is None and one not in gone]
        if waiting and random.random() < 0.35:
            chosen = random.choice(waiting)
            line.advance(now)
            if chosen.turn is None:
                assert line.leave(chosen, now), seed
                gone.add(chosen)
            continue
        bell = Bell() if random.random() < 0.6 else None
        places.append(line.join(random.choice((1, 2, 6)) * UNIT, bell, now))
    line.advance(now + 10**6)
    served = [one for one in places if one not in gone]
    for one in served:
        assert one.turn is not None, seed
        assert one.turn == one.told if one.bell is None else one.turn <= one.told, seed
    spans = [(one.turn or 0, (one.turn or 0) + one.cost) for one in served]
    assert spans == sorted(spans), f"seed {seed}: not in the order of arrival"
    assert all(a[1] <= b[0] for a, b in pairwise(spans)), seed
    assert line.end == line.free, seed


def test_one_who_gives_up_has_all_behind_move_up_and_wakes_the_new_first() -> None:
    line = Line()
    line.join(UNIT, Bell(), 0)
    bells = [Bell() for _ in range(3)]
    first, second, third = (line.join(UNIT, bell, 0) for bell in bells)
    assert [one.told for one in (first, second, third)] == [5, 10, 15]
    assert line.leave(first, 1)
    assert line.turn_of_first(second) == 5
    assert line.turn_of_first(third) is None
    assert bells[1].rings
    assert line.wait(1) == 14
    line.advance(10)
    assert (second.turn, third.turn) == (5, 10)


def test_a_turn_of_which_no_use_was_made_goes_to_the_next() -> None:
    line = Line()
    line.join(UNIT, Bell(), 0)
    first, second = line.join(UNIT, Bell(), 0), line.join(UNIT, Bell(), 0)
    line.advance(6)
    assert first.turn == 5
    assert line.decline(first, 6)
    assert second.turn == 6, "not before now"
    assert line.free == 6 + UNIT


def test_a_turn_after_which_another_has_had_one_is_gone() -> None:
    line = Line()
    line.join(UNIT, Bell(), 0)
    first, second = line.join(UNIT, Bell(), 0), line.join(UNIT, Bell(), 0)
    line.advance(12)
    assert second.turn == 10
    assert not line.decline(first, 12)
    assert line.free == 10 + UNIT


def test_those_behind_a_booking_move_up_no_further_than_it() -> None:
    line = Line()
    line.join(UNIT, Bell(), 0)
    waiter = line.join(2 * UNIT, Bell(), 0)
    booking = line.join(UNIT, None, 0)
    last = line.join(UNIT, Bell(), 0)
    assert line.leave(waiter, 0)
    assert line.turn_of_first(last) == booking.told + UNIT == 20
    assert line.leave(booking, 0)
    assert line.turn_of_first(last) == UNIT
    assert line.wait(0) == 2 * UNIT, "the gap before it is closed"
    assert not line.leave(booking, 0), "only once"


def test_one_that_moved_up_and_is_due_is_woken_whoever_finds_out() -> None:
    line = Line()
    line.join(UNIT, Bell(), 0)
    bells = [Bell() for _ in range(3)]
    places = [line.join(UNIT, bell, 0) for bell in bells]
    line.leave(places[0], 0)
    line.advance(10)  # late: both others are due
    assert [place.turn for place in places[1:]] == [5, 10]
    assert bells[2].rings, "it would have slept until 15"


def test_a_booking_whose_turn_has_come_cannot_be_given_up() -> None:
    line = Line()
    line.join(UNIT, None, 0)
    booking = line.join(UNIT, None, 0)
    assert not line.leave(booking, 5)


def test_forgetting_lets_the_first_go_and_keeps_the_others_apart() -> None:
    line = Line()
    line.join(10 * UNIT, Bell(), 0)
    first, second = line.join(UNIT, Bell(), 0), line.join(UNIT, Bell(), 0)
    line.forget(3)
    assert first.turn == 3
    assert line.turn_of_first(second) == 3 + UNIT


def test_after_a_fork_nobody_waits_any_more() -> None:
    line = Line()
    line.join(UNIT, Bell(), 0)
    line.join(UNIT, Bell(), 0)
    line.abandon()
    assert line.waiting == 0
    assert line.wait(0) == UNIT
