"""What is given back, recorded after the fact, or carried over."""

from __future__ import annotations

from itertools import product

from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.stores import Charge, Check, Take
from headgate.stores.operations import MergeUsage
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, needs, seconds


class AmountsContract(StoreUnderTest):
    """Refunds, charges and changed limits."""

    def test_a_refund_gives_back(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            limiter.hit("key", 10)
            assert limiter.refund("key", 3).remaining == 3, limit
            assert not limiter.hit("key", 4), limit
            assert limiter.hit("key", 3), limit

    def test_a_refund_never_exceeds_what_was_charged(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            untouched = limiter.peek("key")
            assert limiter.refund("key", 5) == untouched, limit
            limiter.hit("key", 6)
            assert limiter.refund("key", 100) == untouched, limit
            assert [limiter.hit("key", 10).allowed, limiter.hit("key").allowed] == [True, False]

    def test_a_refund_of_nothing_changes_nothing(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            limiter.hit("key", 6)
            before = limiter.peek("key")
            assert limiter.refund("key", 0) == before, limit
            assert limiter.charge("key", 0) == before, limit

    def test_a_refund_later_gives_back_only_what_is_still_in_use(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            limiter.hit("key", 10)
            self.clock.advance_ns(seconds(5))
            limiter.refund("key", 10)
            assert limiter.peek("key").remaining == 10, limit
            assert sum(limiter.hit("key").allowed for _ in range(20)) == 10, limit

    def test_a_charge_is_recorded_beyond_the_limit(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            assert limiter.charge("key", 4).remaining == 6, limit
            look = limiter.charge("key", 21)
            assert (look.allowed, look.remaining) == (False, 0), limit
            assert look == limiter.peek("key"), limit
            self.assert_fits_exactly_after(limiter.hit("key"), limiter, 1)

    def test_debt_is_worked_off_at_the_pace_of_the_limit(self) -> None:
        paced = (TokenBucket(10, 1), GCRA(rate=1, burst=10), LeakyBucket(10, 1))
        for limit in paced:
            assert self.limiter(limit).charge("key", 35).retry_after == 26, limit
        self.start_of(seconds(10))
        windowed = (FixedWindow(10, 10), SlidingWindowLog(10, 10))
        for window in windowed:
            assert self.limiter(window).charge("key", 35).retry_after == 30, window

    def test_debt_admits_no_more_over_time_than_the_limit_does(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            limiter.charge("key", 50)
            admitted = 0
            for _ in range(200):
                self.clock.advance_ns(seconds(1))
                admitted += sum(limiter.hit("key").allowed for _ in range(3))
            assert 130 <= admitted <= 210 - 50, f"{limit}: {admitted} admitted in 200 seconds"

    def test_a_refund_reaches_debt_first(self) -> None:
        for limit in TENS:
            limiter = self.limiter(limit)
            limiter.charge("key", 25)
            assert limiter.refund("key", 15).remaining == 0, limit
            assert limiter.refund("key", 4).remaining == 4, limit

    def test_a_changed_limit_keeps_what_was_consumed(self) -> None:
        for old, new in product(TENS, (*TENS, *_WIDER, *_NARROWER)):
            name = self.new_name()
            self.limiter(old, name).hit("key", 6)
            changed = self.limiter(new, name)
            expected, wider = max(0, new.quota - 6), max(old, new, key=self.overshoot)
            left = changed.peek("key").remaining
            assert self.is_about(left, expected, wider), f"{old} -> {new}: {left} left"
            assert changed.peek("other").remaining == new.quota
            admitted = sum(changed.hit("key").allowed for _ in range(30))
            assert self.is_about(admitted, expected, wider), f"{old} -> {new}: {admitted}"

    def test_a_lowered_limit_admits_nothing_until_what_was_used_fits_it(self) -> None:
        for old, new in product(TENS, _NARROWER):
            name = self.new_name()
            self.limiter(old, name).hit("key", 10)
            lowered = self.limiter(new, name)
            wait_ns = lowered.hit("key").retry_after_ns
            assert wait_ns, f"{old} -> {new}"
            self.clock.advance_ns(wait_ns)
            assert lowered.hit("key").allowed, f"{old} -> {new}"

    def test_what_a_lowered_limit_holds_too_much_may_be_of_an_older_cell(self) -> None:
        name = self.new_name()
        wide = self.limiter(SlidingWindowCounter(30, 6, subwindows=3), name)
        narrow = self.limiter(SlidingWindowCounter(10, 6, subwindows=3), name)
        assert wide.hit("key", 30).allowed
        self.clock.advance(3)  # what was used is not of the last cell now
        admitted = []
        for _ in range(20):
            assert narrow.peek("key").remaining <= 10
            admitted.append(sum(narrow.hit("key").allowed for _ in range(12)))
            self.clock.advance(2)
        assert not any(admitted[:7])  # thirty units are worked off first, ten in a window
        assert 0 < sum(admitted[-9:]) <= 30

    def test_limits_that_take_turns_on_a_counter_admit_no_more_than_the_larger(self) -> None:
        for old, new in product(TENS, _NARROWER):
            name = self.new_name()
            wide, narrow = self.limiter(old, name), self.limiter(new, name)
            admitted = 0
            for _ in range(30):
                admitted += wide.hit("key").allowed + narrow.hit("key").allowed
                narrow.peek("key")
            assert admitted <= old.quota, f"{old} and {new} admitted {admitted}"

    def test_a_changed_limit_keeps_debt(self) -> None:
        for old, new in product(TENS, TENS):
            name = self.new_name()
            self.limiter(old, name).charge("key", 30)
            changed = self.limiter(new, name)
            assert changed.refund("key", 19).remaining == 0, f"{old} -> {new}"
            assert changed.refund("key", 3).remaining == 2, f"{old} -> {new}"

    def test_a_limit_may_change_back_and_forth(self) -> None:
        for old, new in product(TENS, TENS):
            name = self.new_name()
            first, second = self.limiter(old, name), self.limiter(new, name)
            admitted = 0
            for _ in range(10):
                admitted += first.hit("key").allowed + second.hit("key").allowed
            assert self.is_about(admitted, 10, old), f"{old} <-> {new}: {admitted} admitted"

    def test_no_verb_minds_a_changed_limit(self) -> None:
        slots = Concurrency(10, 10)
        for old, new in product((*TENS, slots), (*TENS, slots)):
            name = self.new_name()
            before, after = self.limiter(old, name), self.limiter(new, name)
            if old is slots:
                before.slot("key").take()
            else:
                before.charge("key", 3)
                before.reserve("key", 2)
            after.peek("key")
            if new is slots:
                assert after.slot("key").take(), f"{old} -> {new}"
            else:
                assert after.hit("key"), f"{old} -> {new}"
                assert after.reserve("key", 1).cancel(), f"{old} -> {new}"
                after.charge("key", 1)
                after.refund("key", 1)
            after.reset("key")
            assert after.peek("key").remaining == 10, f"{old} -> {new}"

    def test_an_open_reservation_outlives_a_changed_limit(self) -> None:
        for old, new in product(TENS, TENS):
            name = self.new_name()
            before, after = self.limiter(old, name), self.limiter(new, name)
            reservation = before.reserve("key", 6)
            assert after.peek("key").remaining == 4, f"{old} -> {new}"
            assert reservation.commit(2), f"{old} -> {new}"
            assert after.peek("key").remaining == 8, f"{old} -> {new}"


_WIDER = (TokenBucket(30, 2), FixedWindow(30, 20), SlidingWindowLog(30, 5))
_NARROWER = (
    GCRA(rate=3, burst=4),
    FixedWindow(4, 10),
    SlidingWindowLog(4, 10),
    SlidingWindowCounter(4, 10),
)


# Usage in other regions.


@needs("grants_leases")
class ElsewhereContract(StoreUnderTest):
    """`MergeUsage`, for stores that grant leases."""

    def test_a_total_is_charged_as_far_as_it_was_not_told(self) -> None:
        for limit in TENS:
            group = self.new_name()
            for total, left in ((3, 7), (3, 7), (5, 5), (2, 5), (0, 5)):
                told = self.absorb(Check(group, "key", limit, total), "eu", 7)
                assert told == left, f"{limit}: a total of {total}"
            assert self.absorb(Check(group, "key", limit, 3), "us", 7) == 2, limit
            assert self.absorb(Check(group, "key", limit, 13), "us", 7) == 0, limit
            assert self.left(limit, group) == 0, f"{limit}: debt"

    def test_the_window_before_is_still_known_and_older_ones_are_not(self) -> None:
        for limit in TENS:
            group = self.new_name()
            story = ((7, 2, 8), (8, 1, 7), (7, 3, 6), (7, 3, 6), (8, 1, 7 - 1), (6, 9, 6))
            for window, total, left in (*story, (10, 1, 5), (9, 2, 3), (8, 9, 3)):
                told = self.absorb(Check(group, "key", limit, total), "eu", window)
                assert told == left, f"{limit}: {total} of window {window}"

    def test_several_counters_are_told_of_together(self) -> None:
        for limit in TENS:
            group = self.new_name()
            checks = tuple(Check(group, f"key {n}", limit, n) for n in range(8))
            for _ in range(2):
                outcomes = self.run(MergeUsage(checks, "eu", 1, seconds(60)))
                assert [outcome.remaining for outcome in outcomes] == [10 - n for n in range(8)]
            twice = (Check(group, "key", limit, 2), Check(group, "key", limit, 3))
            outcomes = self.run(MergeUsage(twice, "eu", 1, seconds(60)))
            assert [outcome.remaining for outcome in outcomes] == [7, 7], limit

    def test_a_region_with_another_limit_changes_nothing_but_what_is_used(self) -> None:
        for limit in TENS:
            for other in (*TENS, TokenBucket(1_000, 1_000)):
                told, charged = self.new_name(), self.new_name()
                self.clock.advance_ns(-self.clock() % limit.period_ns)  # where a window begins
                for group in (told, charged):
                    self.run(Take((Check(group, "key", limit, 6),)))
                for total in (1, 2, 3):
                    self.absorb(Check(told, "key", other, total), "eu", 7)
                    self.run(Charge((Check(charged, "key", limit, 1),)))
                    self.clock.advance_ns(seconds(2))
                    self.absorb(Check(told, "key", other, total), "eu", 7)
                    left = self.left(limit, told), self.left(limit, charged)
                    assert left[0] == left[1], f"{limit}, and {other} elsewhere"

    def test_what_was_told_is_forgotten_after_a_while(self) -> None:
        for limit in TENS:
            group = self.new_name()
            check = Check(group, "key", limit, 3)
            self.run(MergeUsage((check,), "eu", 1, seconds(1)))
            self.clock.advance_ns(seconds(1) - self.tick_ns)
            self.run(MergeUsage((check,), "eu", 1, seconds(1)))
            self.clock.advance_ns(seconds(1) - self.tick_ns)
            before = self.left(limit, group)
            assert self.absorb(check, "eu", 1, ttl_ns=self.tick_ns) == before, limit
            self.clock.advance_ns(self.tick_ns)
            assert self.absorb(check, "eu", 1) < before, limit

    def absorb(self, check: Check, origin: str, window: int, ttl_ns: int = seconds(60)) -> int:
        """Tell of one counter; what is left in it."""
        return self.run(MergeUsage((check,), origin, window, ttl_ns))[0].remaining
