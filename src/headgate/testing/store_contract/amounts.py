"""Refunds, charges, and counters whose limit changes."""

from __future__ import annotations

from itertools import product

from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, seconds


class AmountsContract(StoreUnderTest):
    """Refunds, charges and changed limits."""

    def test_a_refund_returns_units(self) -> None:
        for limit, limiter in self.limiters():
            limiter.hit("key", 10)
            assert limiter.refund("key", 3).remaining == 3, limit
            assert not limiter.hit("key", 4), limit
            assert limiter.hit("key", 3), limit

    def test_a_refund_never_exceeds_what_was_charged(self) -> None:
        for limit, limiter in self.limiters():
            untouched = limiter.peek("key")
            assert limiter.refund("key", 5) == untouched, limit
            limiter.hit("key", 6)
            assert limiter.refund("key", 100) == untouched, limit
            assert [limiter.hit("key", 10).allowed, limiter.hit("key").allowed] == [True, False]

    def test_a_late_refund_returns_only_units_that_are_still_in_use(self) -> None:
        for limit, limiter in self.limiters():
            limiter.hit("key", 10)
            self.clock.advance_ns(seconds(5))
            limiter.refund("key", 10)
            assert limiter.peek("key").remaining == 10, limit
            assert sum(limiter.hit("key").allowed for _ in range(20)) == 10, limit

    def test_a_charge_is_recorded_beyond_the_limit(self) -> None:
        for limit, limiter in self.limiters():
            assert limiter.charge("key", 4).remaining == 6, limit
            look = limiter.charge("key", 21)
            assert (look.allowed, look.remaining) == (False, 0), limit
            assert look == limiter.peek("key"), limit
            self.assert_fits_exactly_after(limiter.hit("key"), limiter, 1)

    def test_debt_allows_no_more_over_time_than_the_limit(self) -> None:
        for limit, limiter in self.limiters():
            limiter.charge("key", 50)
            allowed = 0
            for _ in range(200):
                self.clock.advance_ns(seconds(1))
                allowed += sum(limiter.hit("key").allowed for _ in range(3))
            assert 130 <= allowed <= 210 - 50, f"{limit}: {allowed} allowed in 200 seconds"

    def test_a_refund_reaches_debt_first(self) -> None:
        for limit, limiter in self.limiters():
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
            allowed = sum(changed.hit("key").allowed for _ in range(30))
            assert self.is_about(allowed, expected, wider), f"{old} -> {new}: {allowed}"

    def test_a_lowered_limit_allows_nothing_until_past_usage_fits_it(self) -> None:
        for old, new in product(TENS, _NARROWER):
            name = self.new_name()
            self.limiter(old, name).hit("key", 10)
            lowered = self.limiter(new, name)
            wait_ns = lowered.hit("key").retry_after_ns
            assert wait_ns, f"{old} -> {new}"
            self.clock.advance_ns(wait_ns)
            assert lowered.hit("key").allowed, f"{old} -> {new}"

    def test_a_lowered_limit_counts_usage_in_older_cells(self) -> None:
        name = self.new_name()
        wide = self.limiter(SlidingWindowCounter(30, 6, subwindows=3), name)
        narrow = self.limiter(SlidingWindowCounter(10, 6, subwindows=3), name)
        assert wide.hit("key", 30).allowed
        self.clock.advance(3)  # the usage is no longer in the last cell
        allowed = []
        for _ in range(20):
            assert narrow.peek("key").remaining <= 10
            allowed.append(sum(narrow.hit("key").allowed for _ in range(12)))
            self.clock.advance(2)
        assert not any(allowed[:7])  # the thirty units expire first, ten in a window
        assert 0 < sum(allowed[-9:]) <= 30

    def test_limits_that_alternate_on_a_counter_allow_no_more_than_the_larger(self) -> None:
        for old, new in product(TENS, (*TENS, *_NARROWER)):
            name = self.new_name()
            first, second = self.limiter(old, name), self.limiter(new, name)
            allowed = 0
            for _ in range(30):
                allowed += first.hit("key").allowed + second.hit("key").allowed
                second.peek("key")
            assert allowed <= old.quota + self.overshoot(old), f"{old} <-> {new}: {allowed} allowed"
            if new in TENS:
                assert self.is_about(allowed, 10, old), f"{old} <-> {new}: {allowed} allowed"

    def test_a_changed_limit_keeps_debt(self) -> None:
        for old, new in product(TENS, TENS):
            name = self.new_name()
            self.limiter(old, name).charge("key", 30)
            changed = self.limiter(new, name)
            assert changed.refund("key", 19).remaining == 0, f"{old} -> {new}"
            assert changed.refund("key", 3).remaining == 2, f"{old} -> {new}"

    def test_every_verb_works_after_a_changed_limit(self) -> None:
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
