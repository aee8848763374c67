"""The lines of many keys: what they say, that they are bounded, and that idle ones vanish."""

from __future__ import annotations

import threading
from fractions import Fraction
from itertools import count
from random import Random

import pytest

from headgate.algorithms import algorithm_for
from headgate.limits import LeakyQueue
from headgate.overload.leaky_line import SHARED_LINES, LeakyLines
from headgate.units import MILLISECOND, SECOND

TEN = LeakyQueue(10, 3)


def test_a_burst_is_spaced_and_what_does_not_fit_is_refused() -> None:
    lines = LeakyLines(TEN)
    said = [lines.join("a", 1, None, 0, threading.Event).outcome for _ in range(6)]
    assert [one.delay_ns // MILLISECOND for one in said[:4]] == [0, 100, 200, 300]
    assert [one.allowed for one in said] == [True] * 4 + [False] * 2
    assert said[4].retry_after_ns == 100 * MILLISECOND
    assert lines.join("b", 1, None, 0).outcome.allowed, "each key has a line of its own"


@pytest.mark.parametrize("rate", [10, 3, Fraction(1, 7), Fraction(1000, 3), 7_777])
@pytest.mark.parametrize("max_wait", [None, 0.5])
def test_it_says_what_a_store_would(rate: int | Fraction, max_wait: float | None) -> None:
    limit = LeakyQueue(rate, 4, max_wait)
    algorithm, state = algorithm_for(limit), None
    lines, random, now = LeakyLines(limit), Random(str(rate)), 10**18
    unit = limit.pace.to_ns(limit.pace.ticks_per_unit)
    for n in range(300):
        now += random.choice((0, 1, unit // 3, unit, unit + 1, 3 * unit))
        cost = random.choice((0, 1, 1, 1, 2, 5))
        state, told = algorithm.take(state, cost, now)
        if cost:
            assert lines.join("a", cost, None, now, threading.Event).outcome == told, n
        else:
            assert lines.look("a", cost, None, now) == told, n


def test_a_look_says_what_joining_would_and_takes_no_place() -> None:
    lines, random, now = LeakyLines(TEN), Random(5), 0
    for n in range(200):
        now += random.randrange(0, SECOND // 4)
        timeout = random.choice((None, 0, MILLISECOND * 150))
        looks = [lines.look("a", 1, timeout, now) for _ in range(2)]
        joined = lines.join("a", 1, timeout, now, threading.Event).outcome
        assert looks[0] == looks[1], n
        assert looks[0][0] == joined[0], n
        assert looks[0].delay_ns == joined.delay_ns, n
        assert looks[0].retry_after_ns == joined.retry_after_ns, n


def test_a_refusal_is_exact() -> None:
    lines = LeakyLines(LeakyQueue(3, 2))
    for _ in range(3):
        lines.join("a", 1, None, 0)
    wait = lines.look("a", 1, None, 0).retry_after_ns
    assert wait is not None
    assert not lines.look("a", 1, None, wait - 1).allowed
    assert lines.look("a", 1, None, wait).allowed


def test_a_timeout_is_a_smaller_queue_for_one_caller() -> None:
    lines = LeakyLines(TEN)
    lines.join("a", 1, None, 0)
    assert not lines.join("a", 1, 0, 0).outcome.allowed
    assert not lines.join("a", 1, 99_999_999, 0).outcome.allowed
    assert lines.join("a", 1, 100_000_000, 0).outcome.delay_ns == 100_000_000
    assert lines.join("a", 1, 10 * SECOND, 0).outcome.delay_ns == 200 * MILLISECOND
    assert lines.join("a", 1, 10 * SECOND, 0).outcome.delay_ns == 300 * MILLISECOND
    assert not lines.look("a", 1, 10 * SECOND, 0).allowed, "no longer than the queue is"


def test_a_cost_that_takes_more_than_a_century_never_fits() -> None:
    lines = LeakyLines(TEN)
    assert lines.join("a", TEN.largest_cost + 1, None, 0).outcome.retry_after_ns is None
    assert lines.look("a", 1, None, 0).delay_ns == 0


def test_idle_lines_vanish() -> None:
    lines = LeakyLines(TEN)
    for n in range(5_000):
        lines.join(f"key {n}", 1, None, n * SECOND)
    assert len(lines) <= 3


def test_sprayed_keys_share_lines_and_free_nobody() -> None:
    lines = LeakyLines(LeakyQueue(1, 2), most=100)
    for _ in range(3):
        lines.join("victim", 1, None, 0)
    for n in range(20_000):
        lines.join(f"key {n}", 1, None, 0)
    assert len(lines) <= 100 + SHARED_LINES
    assert not lines.look("victim", 1, None, 0).allowed
    assert not lines.look("key 15000", 1, None, 0).allowed, "it shares a line that is full"
    later = 10 * SECOND
    assert lines.join("key 15000", 1, None, later).outcome.delay_ns == 0


def test_a_key_that_shares_a_line_keeps_to_it_until_that_is_as_new() -> None:
    lines = LeakyLines(LeakyQueue(1, 5), most=1)
    lines.join("own", 1, None, 0)
    lines.join("other", 2, None, 0)
    soon = SECOND + SECOND // 2  # the one line of its own is free again, the shared one is not
    assert lines.join("other", 1, None, soon).outcome.delay_ns == SECOND // 2


def test_keys_that_shared_a_line_part_when_there_is_room_again() -> None:
    lines = LeakyLines(LeakyQueue(1, 5), most=1)
    slot = hash("one") % SHARED_LINES
    other = next(key for key in map(str, count()) if hash(key) % SHARED_LINES == slot)
    lines.join("own", 1, None, 0)
    assert [lines.join(key, 1, None, 0).outcome.delay_ns for key in ("one", other)] == [0, SECOND]
    later = 10 * SECOND
    assert [lines.join(key, 1, None, later).outcome.delay_ns for key in ("one", other)] == [0, 0]


def test_a_clock_that_steps_back_and_forth_mints_nothing() -> None:
    lines = LeakyLines(TEN)
    early, late = 10 * SECOND, 20 * SECOND

    def taken(now_ns: int) -> int:
        return sum(lines.join("a", 1, None, now_ns).outcome.allowed for _ in range(9))

    assert taken(early) == 4
    assert taken(early - SECOND) == 0
    lines.join("b", 1, None, late)  # which forgets the line of the other: it is as new
    assert taken(early) == 4, "those of the later time"
    for key in "cd":
        lines.join(key, 1, None, late)
    assert taken(early) == taken(late) == 0


def test_only_the_first_need_wake_before_what_it_was_told() -> None:
    lines = LeakyLines(TEN)
    joined = [lines.join("a", 1, None, 0, threading.Event) for _ in range(4)]
    first, second, third = [one.place for one in joined[1:] if one.place is not None]
    assert lines.rest(first, 0) == (100 * MILLISECOND, True)
    assert lines.rest(second, 0) == (200 * MILLISECOND, False)
    assert lines.decline(first, 0)
    assert lines.rest(second, 0) == (100 * MILLISECOND, True)
    assert lines.rest(third, 0) == (300 * MILLISECOND, False), "its bell rings before that"
    assert lines.rest(third, 200 * MILLISECOND) is None
    assert lines.waiting == 0
