"""Queues, which delay callers instead of denying them: the places that callers get.

The public contract compares random histories of a store with those of the memory store. This says
what the algorithm promises, case by case and against the pure algorithm, for all our stores.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Final

from headgate.algorithms import LeakyQueueAlgorithm
from headgate.limits import FixedWindow, LeakyQueue, TokenBucket
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Refund,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.testing.store_contract.subject import StoreUnderTest, seconds
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Outcome
    from headgate.algorithms.leaky_queue import Line
    from headgate.limits import Limit


TEN: Final = LeakyQueue(rate=10, queue=5)
"""One every 100 ms, five may wait."""

UNEVEN: Final = (
    TEN,
    LeakyQueue(rate=3, queue=4),
    LeakyQueue(rate=0.3, queue=2),
    LeakyQueue(rate=7_000, queue=6),
    LeakyQueue(rate=3_000_000, queue=5),
    LeakyQueue(rate=13, queue=10, max_wait=0.3),
)
"""Queues, most of which have a pace that does not divide evenly."""


class QueueContract(StoreUnderTest):
    """Places in a queue: delayed, in order, evenly spaced, and cancelled."""

    def take(self, limit: Limit, group: str, cost: int = 1, key: str = "key") -> Outcome:
        """Return the outcome of a check of *cost*."""
        (outcome,) = self.run(Take((Check(group, key, limit, cost),)))
        return outcome

    def delays(self, limit: Limit, group: str, costs: Sequence[int]) -> list[int]:
        """Return the delays in milliseconds of checks of *costs*, all of which must be allowed."""
        outcomes = [self.take(limit, group, cost) for cost in costs]
        assert all(outcome.allowed for outcome in outcomes), outcomes
        return [outcome.delay_ns // MILLISECOND for outcome in outcomes]

    def cancel(self, limit: Limit, group: str, place_ns: int, cost: int = 1) -> bool:
        return self.run(CancelQueued((Check(group, "key", limit, cost),), (place_ns,)))

    def test_places_are_in_order_and_evenly_spaced(self) -> None:
        for limit in UNEVEN:
            group, unit = self.new_name(), SECOND / limit.per_second
            self.clock.advance_ns(7 * self.tick_ns)
            for place in range(limit.quota):
                outcome = self.take(limit, group)
                delay = self.rounded_up(-int(-place * unit // 1))
                assert outcome.allowed, f"{limit}: place {place}"
                assert outcome.delay_ns == delay, f"{limit}: place {place}"
                assert outcome.place_ns == (self.clock() + delay if delay else 0), limit
                assert outcome.remaining == limit.quota - 1 - place, limit

    def test_a_decision_has_the_delay(self) -> None:
        limiter = self.limiter(TEN)
        assert [limiter.hit("key").delay for _ in range(3)] == [0.0, 0.1, 0.2]
        assert limiter.peek("key").delay == 0.3
        assert limiter.hit("other").delay == 0.0
        decisions = limiter.hit_many([("key", 1), ("other", 2), ("key", 1)])
        assert [decision.delay for decision in decisions] == [0.3, 0.1, 0.4]

    def test_a_caller_who_would_wait_too_long_is_denied_with_an_exact_retry_after(self) -> None:
        for limit in UNEVEN:
            limiter = self.limiter(limit)
            for _ in range(limit.quota):
                assert limiter.hit("key"), limit
            denial = limiter.hit("key")
            assert (denial.delay_ns, denial.place_ns, denial.remaining) == (0, 0, 0), limit
            assert limiter.hit("key") == denial, f"{limit}: a denial consumed units"
            self.assert_fits_exactly_after(denial, limiter, 1)

    def test_a_shorter_patience_is_a_question_of_the_same_queue(self) -> None:
        group, hasty = self.new_name(), LeakyQueue(rate=10, queue=5, max_wait=0.25)
        assert self.delays(TEN, group, [1, 1]) == [0, 100]
        assert self.delays(hasty, group, [1]) == [200]
        denied = self.take(hasty, group)
        assert (denied.allowed, denied.retry_after_ns) == (False, 50 * MILLISECOND)
        assert self.delays(TEN, group, [1]) == [300]
        assert self.take(LeakyQueue(10, 5, max_wait=0), group).retry_after_ns == 400 * MILLISECOND
        assert self.delays(TEN, group, [1, 1]) == [400, 500]

    def test_a_cost_is_worked_off_before_the_next(self) -> None:
        group = self.new_name()
        assert self.delays(TEN, group, [3, 2, 20]) == [0, 300, 500]
        denied = self.take(TEN, group)
        assert (denied.allowed, denied.retry_after_ns) == (False, 2_000 * MILLISECOND)
        self.clock.advance_ns(2_000 * MILLISECOND)
        assert self.delays(TEN, group, [1]) == [500]

    def test_a_queue_of_length_0_spaces_callers_and_takes_any_finite_cost(self) -> None:
        group, alone = self.new_name(), LeakyQueue(rate=10, queue=0)
        assert self.delays(alone, group, [20]) == [0]
        assert self.take(alone, group).retry_after_ns == 2 * SECOND
        self.clock.advance_ns(2 * SECOND)
        assert self.delays(alone, group, [1]) == [0]
        never = self.take(alone, group, alone.largest_cost + 1)
        assert (never.allowed, never.retry_after_ns) == (False, None)

    def test_a_cost_of_0_has_no_place(self) -> None:
        group = self.new_name()
        self.delays(TEN, group, [1, 1])
        nothing = self.take(TEN, group, 0)
        assert (nothing.allowed, nothing.delay_ns, nothing.remaining) == (True, 0, 4)

    def test_a_peek_has_the_delay_and_takes_no_place(self) -> None:
        group = self.new_name()
        self.delays(TEN, group, [1])
        look = Take((Check(group, "key", TEN, 1),), consume=False)
        assert [self.run(look)[0].delay_ns for _ in range(2)] == [100 * MILLISECOND] * 2

    def test_a_queue_is_all_or_nothing_with_other_limits(self) -> None:
        for other in (TokenBucket(2, 0.1), FixedWindow(2, 60), LeakyQueue(1, 1)):
            for keys in (("key", "key"), ("key", "other")):
                first, second = self.new_name(), self.new_name()
                both = Take((Check(first, keys[0], TEN), Check(second, keys[1], other)))
                assert [o.allowed for o in self.run(both)] == [True, True]
                assert self.run(both)[0].delay_ns == 100 * MILLISECOND
                denied = self.run(both)
                assert [o.allowed for o in denied] == [True, False], other
                assert self.delays(TEN, first, [1]) == [200], f"{other}: it took a place"

    def test_a_queue_that_is_full_keeps_the_other_limits_whole(self) -> None:
        for keys in (("key", "key"), ("key", "other")):
            first, second = self.new_name(), self.new_name()
            bucket, short = TokenBucket(10, 1), LeakyQueue(rate=10, queue=1)
            both = Take((Check(first, keys[0], bucket), Check(second, keys[1], short)))
            assert [all(o.allowed for o in self.run(both)) for _ in range(4)] == [
                True,
                True,
                False,
                False,
            ]
            assert self.left(bucket, first) == 8

    def test_of_several_queues_the_latest_place_counts(self) -> None:
        limiter = self.limiter([LeakyQueue(10, 5), LeakyQueue(2, 5)])
        limiter.hit("key")
        decision = limiter.hit("key")
        assert decision.delay == 0.5
        assert [part.delay for part in decision.limits] == [0.1, 0.5]
        assert [part.place_ns - self.clock() for part in decision.limits] == [
            100 * MILLISECOND,
            500 * MILLISECOND,
        ]
        assert decision.place_ns == decision.limits[1].place_ns

    def test_checks_of_one_queue_at_once_are_behind_one_another(self) -> None:
        group = self.new_name()
        check = Check(group, "key", TEN, 3)
        outcomes = self.run(Take((check, check)))
        assert [outcome.delay_ns // MILLISECOND for outcome in outcomes] == [0, 300]
        denied = self.run(Take((check, check)))
        assert [outcome.allowed for outcome in denied] == [False, False]
        assert denied[1].retry_after_ns == 400 * MILLISECOND
        self.clock.advance_ns(400 * MILLISECOND)
        outcomes = self.run(Take((check, check)))
        assert [outcome.delay_ns // MILLISECOND for outcome in outcomes] == [200, 500]
        never = self.run(Take((Check(group, "key", TEN, 6), check)))
        assert never[1].retry_after_ns is None

    def test_cancelling_the_last_place_shortens_the_queue(self) -> None:
        for limit in UNEVEN:
            group = self.new_name()
            outcomes = [self.take(limit, group) for _ in range(3)]
            assert self.cancel(limit, group, outcomes[2].place_ns), limit
            assert self.take(limit, group) == outcomes[2], limit
            assert self.cancel(limit, group, outcomes[2].place_ns), limit
            assert self.cancel(limit, group, outcomes[1].place_ns), limit
            assert self.take(limit, group) == outcomes[1], limit

    def test_a_vacant_place_goes_to_the_next_caller_that_fits_it(self) -> None:
        group, wide = self.new_name(), LeakyQueue(rate=10, queue=20)
        assert self.delays(wide, group, [1, 3, 1, 2, 1]) == [0, 100, 400, 500, 700]
        assert self.cancel(wide, group, self.clock() + 500 * MILLISECOND, 2)
        assert self.cancel(wide, group, self.clock() + 100 * MILLISECOND, 3)
        assert self.delays(wide, group, [4, 2, 2, 1, 1]) == [800, 100, 500, 300, 1200]

    def test_neighbouring_vacant_places_are_merged(self) -> None:
        for order in ([1, 2, 3], [3, 1, 2], [2, 3, 1], [1, 3, 2]):
            group = self.new_name()
            places = [self.take(TEN, group).place_ns for _ in range(5)]
            for place in order:
                assert self.cancel(TEN, group, places[place])
            assert self.delays(TEN, group, [3]) == [100], order
        group = self.new_name()
        places = [self.take(TEN, group).place_ns for _ in range(5)]
        for place in (1, 2, 3, 4):
            assert self.cancel(TEN, group, places[place])
        assert self.delays(TEN, group, [1]) == [100], "the end of the queue moved up"

    def test_the_rest_of_a_vacant_place_is_whole_units(self) -> None:
        group, wide = self.new_name(), LeakyQueue(rate=10, queue=20)
        assert self.delays(wide, group, [1, 4, 1]) == [0, 100, 500]
        assert self.cancel(wide, group, self.clock() + 100 * MILLISECOND, 4)
        self.clock.advance_ns(150 * MILLISECOND)
        assert self.delays(wide, group, [4, 2, 2, 1]) == [450, 50, 850, 250]

    def test_a_place_whose_time_has_come_cannot_be_cancelled(self) -> None:
        group = self.new_name()
        now = self.take(TEN, group)
        later = [self.take(TEN, group).place_ns for _ in range(2)]
        assert not self.cancel(TEN, group, now.place_ns)
        assert not self.cancel(TEN, group, self.clock())
        self.clock.advance_ns(100 * MILLISECOND)
        assert not self.cancel(TEN, group, later[0])
        assert self.delays(TEN, group, [1]) == [200]

    def test_a_place_is_cancelled_once(self) -> None:
        group = self.new_name()
        places = [self.take(TEN, group).place_ns for _ in range(4)]
        assert [self.cancel(TEN, group, places[1]) for _ in range(2)] == [True, False]
        assert [self.cancel(TEN, group, places[3]) for _ in range(2)] == [True, False]
        assert not self.cancel(TEN, group, places[1] + self.tick_ns)
        assert not self.cancel(TEN, group, places[3] + SECOND)
        assert not self.cancel(TEN, self.new_name(), places[1])
        assert self.delays(TEN, group, [1, 1, 1]) == [100, 300, 400]

    def test_several_places_are_cancelled_at_once(self) -> None:
        checks = [Check(self.new_name(), key, TEN) for key in ("a", "b")]
        self.run(Take(tuple(checks)))
        places = tuple(outcome.place_ns for outcome in self.run(Take(tuple(checks))))
        assert self.run(CancelQueued(tuple(checks), places))
        assert not self.run(CancelQueued(tuple(checks), places))
        outcomes = self.run(Take(tuple(checks)))
        assert [outcome.place_ns for outcome in outcomes] == list(places)

    def test_of_very_many_vacant_places_the_last_are_known(self) -> None:
        group, wide = self.new_name(), LeakyQueue(rate=10, queue=1_000)
        check = Check(group, "key", wide)
        each = self.run(TakeEach((Take((check,)),) * 200))
        places = [one[0].place_ns for one in each if isinstance(one, tuple)]
        assert len(places) == 200
        cancelled = places[1:199:2]
        assert all(self.cancel(wide, group, place) for place in cancelled)
        taken = [self.take(wide, group).place_ns for _ in range(2)]
        assert taken == cancelled[-64:-62]
        assert self.take(wide, group).remaining == 1_001 - 200 + 61

    def test_more_than_can_ever_be_worked_off_is_still_counted(self) -> None:
        for limit in (*UNEVEN, LeakyQueue(rate=10**14, queue=9)):
            group = self.new_name()
            check = Check(group, "key", limit, 10**18)
            for _ in range(4):
                self.run(Charge((check,)))
            denied = self.take(limit, group)
            assert not denied.allowed
            assert denied.retry_after_ns, limit
            assert not self.cancel(limit, group, self.clock())
            assert self.left(TokenBucket(10, 1), group) == 0, limit

    def test_a_clock_that_steps_back_moves_no_place_forward(self) -> None:
        group = self.new_name()
        self.clock.advance_ns(seconds(10))
        places = [self.take(TEN, group).place_ns for _ in range(4)]
        self.cancel(TEN, group, places[2])
        self.clock.advance_ns(-50 * MILLISECOND)
        taken = [self.take(TEN, group) for _ in range(2)]
        assert [one.place_ns for one in taken] == [places[2], places[3] + 100 * MILLISECOND]
        assert not self.take(TEN, group).allowed
        idle = self.new_name()
        self.take(TEN, idle)
        self.clock.advance_ns(-seconds(1))
        assert self.take(TEN, idle).retry_after_ns == 100 * MILLISECOND

    def test_promised_places_outlive_a_change_of_the_limit(self) -> None:
        for faster in (LeakyQueue(20, 50), LeakyQueue(5, 50), LeakyQueue(3, 50)):
            group = self.new_name()
            assert self.delays(TEN, group, [1, 1, 1]) == [0, 100, 200]
            assert self.delays(faster, group, [1]) == [300], faster
        group = self.new_name()
        self.take(LeakyQueue(3, 50), group)
        assert self.take(TEN, group).delay_ns == self.rounded_up(333_333_334), "not a bit earlier"
        group = self.new_name()
        assert self.delays(TEN, group, [1, 1, 1]) == [0, 100, 200]
        assert self.delays(LeakyQueue(10, 3), group, [1]) == [300]
        assert not self.take(LeakyQueue(10, 3), group).allowed
        assert self.cancel(LeakyQueue(10, 3), group, self.clock() + 100 * MILLISECOND)
        assert self.delays(TEN, group, [1, 1]) == [100, 400]

    def test_what_is_queued_carries_over_to_other_algorithms_and_back(self) -> None:
        group, bucket = self.new_name(), TokenBucket(10, 10)
        self.delays(TEN, group, [1, 1, 2])
        assert self.left(bucket, group) == 6
        self.run(Take((Check(group, "key", bucket, 1),)))
        assert self.delays(TEN, group, [1]) == [500]
        assert self.left(FixedWindow(10, 60), group) == 4

    def test_a_reservation_has_a_place_and_further_units_queue_behind(self) -> None:
        group = self.new_name()
        self.delays(TEN, group, [1])
        held = self.run(Hold((Check(group, "key", TEN, 2),), "r", seconds(60)))
        assert [outcome.delay_ns for outcome in held] == [100 * MILLISECOND]
        assert self.delays(TEN, group, [1]) == [300]
        assert self.run(Settle((Check(group, "key", TEN, 3),), "r", charge_lapsed=True))
        assert not self.run(Settle((Check(group, "key", TEN, 3),), "r", charge_lapsed=True))
        assert self.delays(TEN, group, [1]) == [500]

    def test_a_reservation_that_used_less_keeps_its_place_unless_cancelled(self) -> None:
        for actual in (0, 1):
            group = self.new_name()
            self.delays(TEN, group, [1])
            (held,) = self.run(Hold((Check(group, "key", TEN, 2),), "r", seconds(60)))
            assert self.run(Settle((Check(group, "key", TEN, actual),), "r", charge_lapsed=True))
            assert self.delays(TEN, group, [1]) == [300], actual
            assert self.cancel(TEN, group, held.place_ns, 2)
            assert self.delays(TEN, group, [1]) == [100]

    def test_retry_after_is_exact_when_only_a_vacant_place_fits(self) -> None:
        for rate in (3, 7, 13):
            group, wide = self.new_name(), LeakyQueue(rate, queue=9)
            promised = [self.take(wide, group) for _ in range(4)]
            assert self.cancel(wide, group, promised[1].place_ns)
            hasty = LeakyQueue(rate, queue=9, max_wait=0)
            denial = self.take(hasty, group)
            assert denial.retry_after_ns == promised[1].delay_ns, rate
            self.clock.advance_ns(promised[1].delay_ns - self.tick_ns)
            assert self.take(hasty, group).retry_after_ns == self.tick_ns, rate
            self.clock.advance_ns(self.tick_ns)
            granted = self.take(hasty, group)
            assert (granted.allowed, granted.delay_ns) == (True, 0), rate
            assert self.take(wide, group).place_ns > promised[3].place_ns, "behind the others"

    def test_after_a_change_of_rate_no_place_overlaps_an_earlier_one(self) -> None:
        for old, new in ((3, 7), (7, 3), (13, 7), (7, 13), (3, 10), (10, 3)):
            group, begun = self.new_name(), self.clock()
            for _ in range(2):
                self.take(LeakyQueue(old, queue=9), group)
            for place in range(9):
                exact = begun + 2 * Fraction(SECOND, old) + place * Fraction(SECOND, new)
                late = self.take(LeakyQueue(new, queue=99), group).place_ns - exact
                assert 0 <= late <= 2 * self.tick_ns, f"{old} -> {new}: place {place}"

    def test_a_cost_of_any_size_is_queued_at_any_rate(self) -> None:
        for rate in (3, 3_000_000, 7 * 10**9, 10**14):
            group, limit = self.new_name(), LeakyQueue(rate, queue=5)
            last = self.take(limit, group, limit.largest_cost)
            assert (last.allowed, last.delay_ns, last.remaining) == (True, 0, 0), rate
            assert not self.take(limit, group).allowed, rate
            assert self.left(TokenBucket(10, 1), group) == 0, rate

    def test_a_refund_takes_no_place_away(self) -> None:
        group = self.new_name()
        check = Check(group, "key", TEN, 1)
        self.delays(TEN, group, [1])
        self.run(Refund((check,)))
        assert self.delays(TEN, group, [1, 1]) == [100, 200]
        self.run(Refund((Check(group, "key", TEN, 3),)))
        self.clock.advance_ns(200 * MILLISECOND)
        self.run(Refund((check,)))
        assert self.delays(TEN, group, [1]) == [100], "a place whose time is now is kept"

    def test_a_queue_that_was_reset_is_empty(self) -> None:
        for limit in (TEN, LeakyQueue(rate=10, queue=5, max_wait=0.3)):
            group = self.new_name()
            self.delays(TEN, group, [1, 1, 1])
            self.run(Reset((Check(group, "key", limit),)))
            assert self.delays(TEN, group, [1]) == [0]


# Queues against the pure algorithm, over long random histories.


QUEUES: Final = (
    LeakyQueue(rate=10, queue=8),
    LeakyQueue(rate=3, queue=20),
    LeakyQueue(rate=0.3, queue=5),
    LeakyQueue(rate=7_000, queue=12),
    LeakyQueue(rate=13, queue=40),
)
KEYS: Final = ("a", "b")


class QueueHistory:
    """A random history, played on a store and on the pure algorithm.

    Every check may have a patience of its own: it is the same queue.
    """

    def __init__(self, subject: StoreUnderTest, limit: LeakyQueue, seed: int) -> None:
        self.subject = subject
        self.limit = limit
        self.group = subject.new_name()
        self.lines: dict[str, Line | None] = dict.fromkeys(KEYS)
        self.promised: list[tuple[str, int, int, int]] = []
        self.random = Random(seed)
        self.steps = [f"seed {seed}: {limit!r}"]

    def play(self, steps: int) -> None:
        verbs = (self.take, self.take, self.take, self.take_each, self.look, self.charge)
        rare = (self.cancel, self.cancel, self.refund)
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            self.random.choice(rare if self.random.random() < 0.35 else verbs)(
                self.random.choice(KEYS)
            )

    def advance(self) -> None:
        unit = int(SECOND / self.limit.per_second)
        most = self.random.choice((10, unit, 2 * unit, 20 * unit))
        nanoseconds = self.random.randint(0, most // self.subject.tick_ns) * self.subject.tick_ns
        self.steps.append(f"advance_ns({nanoseconds})")
        self.subject.clock.advance_ns(nanoseconds)

    def take(self, key: str) -> None:
        asked = [self.check(key)]
        outcomes = self.subject.run(Take(tuple(asked)))
        self.compare(asked, outcomes)

    def take_each(self, key: str) -> None:
        asked = [self.check(key), self.check(self.random.choice(KEYS)), self.check(key)]
        takes = TakeEach(tuple([Take((check,)) for check in asked]))
        outcomes = [one[0] for one in self.subject.run(takes) if isinstance(one, tuple)]
        self.compare(asked, outcomes)

    def look(self, key: str) -> None:
        asked = [self.check(key)]
        outcomes = self.subject.run(Take(tuple(asked), consume=False))
        self.compare(asked, outcomes, consume=False)

    def charge(self, key: str) -> None:
        check = Check(self.group, key, self.limit, self.random.choice((1, 2, 5)))
        self.steps.append(f"charge {check.cost} of {key}")
        self.subject.run(Charge((check,)))
        self.lines[key] = self.algorithm.charge(self.lines[key], check.cost, self.now)

    def refund(self, key: str) -> None:
        check = Check(self.group, key, self.limit, self.random.choice((1, 2)))
        self.steps.append(f"refund {check.cost} of {key}")
        self.subject.run(Refund((check,)))
        if (line := self.lines[key]) is not None:
            self.lines[key] = self.algorithm.refund(line, check.cost, self.now)

    def cancel(self, _key: str) -> None:
        if not self.promised:
            return
        place = self.random.randrange(len(self.promised))
        key, place_ns, exact_ns, cost = self.promised[place]
        if self.random.random() < 0.8:
            del self.promised[place]
        check = Check(self.group, key, self.check(key).limit, cost)
        self.steps.append(f"cancel {cost} of {key} at {place_ns}")
        line = self.algorithm.vacate(self.lines[key], exact_ns, cost, self.now)
        assert self.subject.run(CancelQueued((check,), (place_ns,))) == (line is not None), (
            self.story()
        )
        self.lines[key] = line or self.lines[key]

    @property
    def algorithm(self) -> LeakyQueueAlgorithm:
        return LeakyQueueAlgorithm(self.limit, grain_ns=self.subject.tick_ns)

    @property
    def now(self) -> int:
        return self.subject.clock()

    def check(self, key: str) -> Check:
        unit = SECOND / self.limit.per_second
        wait = self.random.choice((None, None, None, 0, int(self.random.randint(0, 9) * unit)))
        max_wait = wait if wait is None else wait / SECOND
        limit = LeakyQueue(self.limit.rate, self.limit.queue, max_wait)
        cost = self.random.choice((1, 1, 1, 2, 3, 0))
        self.steps.append(f"take {cost} of {key} within {max_wait}")
        return Check(self.group, key, limit, cost)

    def compare(
        self, asked: list[Check], outcomes: Sequence[Outcome], *, consume: bool = True
    ) -> None:
        for check, outcome in zip(asked, outcomes, strict=True):
            assert isinstance(check.limit, LeakyQueue)
            algorithm = LeakyQueueAlgorithm(check.limit, grain_ns=self.subject.tick_ns)
            line, expected = algorithm.take(self.lines[check.key], check.cost, self.now)
            if consume:
                self.lines[check.key] = line
            else:
                seen = algorithm.outcome(self.lines[check.key], expected.retry_after_ns, self.now)
                expected = seen._replace(delay_ns=expected.delay_ns, place_ns=expected.place_ns)
            rounded = self.in_ticks(expected)
            assert outcome == rounded, f"got {outcome}, expected {rounded}\n{self.story()}"
            if consume and outcome.place_ns:
                place = check.key, outcome.place_ns, expected.place_ns, check.cost
                self.promised.append(place)

    def in_ticks(self, outcome: Outcome) -> Outcome:
        wait, up = outcome.retry_after_ns, self.subject.rounded_up
        return outcome._replace(
            retry_after_ns=None if wait is None else up(wait),
            reset_after_ns=up(outcome.reset_after_ns),
            delay_ns=up(outcome.delay_ns),
            place_ns=up(outcome.place_ns),
        )

    def story(self) -> str:
        return "\n".join(self.steps)


class QueueHistoryContract(StoreUnderTest):
    """Places, at any time, are those of the pure algorithm."""

    def test_a_random_history_of_a_queue_is_that_of_the_pure_algorithm(self) -> None:
        for limit in QUEUES:
            for seed in range(2):
                QueueHistory(self, limit, seed).play(80)
