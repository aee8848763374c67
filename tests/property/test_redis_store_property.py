"""Redis says what the pure algorithm says, for the same history: every verb, any limit."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for, carry
from headgate.limits import FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Charge, Check, Take
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.histories import LATELY, MINUTE, SECOND, examples
from tests.support.servers import RedisServer
from tests.support.store_histories import LIMITS, SLOTS, VERBS, Call, Pair, calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.limits import Limit

ODD: list[Limit] = [
    TokenBucket(5, 3),
    TokenBucket(3, Fraction(7_000, 11)),
    TokenBucket(7, Fraction(167, 100)),
    TokenBucket(4, 1_000_003),
    TokenBucket(9, 2_000_000_000),
    TokenBucket(2, Fraction(16_666_666_667, 10**10)),
    TokenBucket(10**15 - 1, 10**15 - 1),
    TokenBucket(1, Fraction(1, 30_000_000)),
    FixedWindow(3, 0.000_017),
    FixedWindow(10**15 - 1, 36_500 * 86_400),
    SlidingWindowLog(3, 0.7),
    SlidingWindowCounter(7, 0.1),
    SlidingWindowCounter(10**15 - 1, 365 * 86_400),
    SlidingWindowCounter(10**15 - 1, 365 * 86_400, 25),
    SlidingWindowCounter(9, 10, 7),
]
"""Rates that do not come out even, and numbers near the edge of what Lua can hold."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


class Replay:
    """Histories replayed on one server, each in counters of its own."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.store = RedisStore(url, clock=self.clock)
        self._numbers = count()

    def play(self, history: list[Call], limits: list[Limit]) -> None:
        self.clock.advance_ns(LATELY // 1_000 * 1_000 - self.clock())
        pair = Pair(self.store, self.clock, tick_ns=1_000)
        pair.group = f"history {next(self._numbers)}"
        for call in history:
            pair.call(call, limits[call.limit])


@pytest.fixture(scope="module")
def replay(server: RedisServer) -> Iterator[Replay]:
    replay = Replay(server.url)
    yield replay
    replay.store.close()


SAME = st.sampled_from(range(len(LIMITS))).flatmap(lambda n: calls((*VERBS, "stack"), [n]))
SAME_ODD = st.sampled_from(range(len(ODD))).flatmap(lambda n: calls((*VERBS, "stack"), [n]))


@examples(150)
@given(SAME)
def test_every_reply_is_that_of_the_pure_algorithm(replay: Replay, history: list[Call]) -> None:
    replay.play(history, LIMITS)


@examples(150)
@given(SAME_ODD)
@example([Call("charge", 0, "a", 6, 10**15 - 2), Call("hit", 0, "a", 6), Call("hit", 0, "a", 6)])
@example([Call("charge", 0, "a", 12, 10**15 - 9), Call("hit", MINUTE, "a", 12, 8)])
@example([Call("charge", 0, "a", 13, 10**15 - 9), Call("hit", 400 * 86_400 * SECOND, "a", 13, 8)])
@example([Call("hold", 0, "a", 5, 1), Call("hit", 0, "a", 5), Call("hit", 0, "a", 5)])
def test_odd_and_huge_numbers_are_exact_too(replay: Replay, history: list[Call]) -> None:
    replay.play(history, ODD)


@examples(100)
@given(st.sampled_from([0, 7]).flatmap(lambda n: calls(("hit", "hit", "hold", "charge"), [n])))
@example([Call("hold", 0, "a", 0, 2), Call("hit", 0, "a", 0), Call("hit", 3 * SECOND, "a", 0)])
def test_the_short_way_is_the_pure_algorithm(replay: Replay, history: list[Call]) -> None:
    replay.play(history, LIMITS)


EVEN = [n for n, limit in enumerate(LIMITS) if limit != TokenBucket(7, 7)]
"""Limits whose counters carry over without a rest. Where there is one Redis rounds it up to a tick
of a microsecond, the pure algorithm to one of a nanosecond."""


@examples(150)
@given(calls(VERBS, EVEN))
@example([Call("hold", 0, "a", 0, 2), Call("settle", 0, "a", 3, 3)])
@example([Call("hold", 0, "a", 0, 2), Call("hold", 0, "a", 3, 2, "s"), Call("hit", 0, "a", 0)])
def test_counters_are_carried_from_limit_to_limit(replay: Replay, history: list[Call]) -> None:
    replay.play(history, LIMITS)


FINE = [
    TokenBucket(1_000, 1),
    TokenBucket(1_000, 1.666_666_7),
    TokenBucket(1_000, 1.666_666_666_7),
    TokenBucket(900, 11.111_111_111_1),
]
"""Rates with many digits, between which in-use amounts are carried over."""


@pytest.mark.parametrize("old", FINE)
@pytest.mark.parametrize("new", FINE)
def test_nothing_is_minted_between_rates_with_many_digits(
    replay: Replay, old: Limit, new: Limit
) -> None:
    group = f"fine {old} {new}"
    replay.store.run(Charge((Check(group, "k", old, 950),)))
    before = algorithm_for(old).charge(None, 950, replay.clock())
    carried = carry(algorithm_for(old), before, algorithm_for(new), replay.clock())
    exact = algorithm_for(new).remaining(carried, replay.clock())
    (seen,) = replay.store.run(Take((Check(group, "k", new, 1),), consume=False))
    assert exact - 1 <= seen.remaining <= exact


@examples(100)
@given(calls(("enter", "enter", "renew", "leave", "peek", "reset"), [0, 1, 2]))
def test_slots_are_leased_as_the_pure_algorithm_says(replay: Replay, history: list[Call]) -> None:
    replay.play(history, list(SLOTS))
