"""Allowed and denied costs, and the figures of a decision."""

from __future__ import annotations

from random import Random

from headgate.limits import GCRA, FixedWindow, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import ODD, TENS, StoreUnderTest, seconds


class AdmissionContract(StoreUnderTest):
    """One limit and one key: the outcome and its figures."""

    def test_decisions_are_the_stores_own(self) -> None:
        for limit in TENS:
            decision = self.limiter(limit).hit("key")
            assert decision.source not in {"fail_open", "fail_closed"}, f"{limit}: {decision}"
            assert (decision.key, decision.limit) == ("key", limit)

    def test_a_denied_cost_consumes_nothing(self) -> None:
        for limit, limiter in self.limiters():
            allowed = [limiter.hit("key", cost).allowed for cost in (6, 6, 4, 1)]
            assert allowed == [True, False, True, False], limit

    def test_units_of_the_same_instant_all_count(self) -> None:
        for limit, limiter in self.limiters():
            self.clock.advance_ns(seconds(3_600))  # idle time adds nothing to the quota
            remaining = [limiter.hit("key").remaining for _ in range(10)]
            assert remaining == list(range(9, -1, -1)), limit
            assert not limiter.hit("key"), limit

    @needs("exact")
    def test_retry_after_is_exact_to_the_tick(self) -> None:
        for limit in (*TENS, *ODD):
            for cost in {1, (limit.quota + 1) // 2, limit.quota}:
                limiter = self.limiter(limit)
                for _ in range(limit.quota):
                    limiter.hit("key")
                    self.clock.advance_ns(self.tick_ns)
                limiter.charge("key", limit.quota)
                self.assert_fits_exactly_after(limiter.hit("key", cost), limiter, cost)

    def test_reset_after_is_when_the_whole_quota_is_back(self) -> None:
        for limit, limiter in self.limiters(*TENS, *ODD):
            reset_after_ns = limiter.hit("key", 2).reset_after_ns
            assert reset_after_ns > 0, limit
            self.clock.advance_ns(reset_after_ns)
            fresh = limiter.peek("key")
            assert (fresh.remaining, fresh.reset_after_ns) == (limit.quota, 0), limit

    def test_a_cost_above_the_maximum_can_never_fit(self) -> None:
        for limit, limiter in self.limiters():
            denial = limiter.hit("key", 11)
            assert (denial.allowed, denial.retry_after) == (False, None), limit
            assert denial.remaining == 10, limit
            assert limiter.hit("key", 10), limit
            assert limiter.hit("key", 10**15).retry_after is None, limit

    def test_a_cost_of_0_always_fits_and_changes_nothing(self) -> None:
        for limit, limiter in self.limiters():
            assert limiter.hit("key", 0).reset_after_ns == 0, limit
            limiter.hit("key", 10)
            before = limiter.peek("key")
            nothing = limiter.hit("key", 0)
            assert (nothing.allowed, nothing.remaining, nothing.retry_after) == (True, 0, 0), limit
            assert limiter.peek("key") == before, limit

    def test_peek_returns_what_a_hit_would_and_changes_nothing(self) -> None:
        for limit, limiter in self.limiters():
            limiter.hit("key", 4)
            for cost in (1, 6, 7, 10, 11):
                first, second = limiter.peek("key", cost), limiter.peek("key", cost)
                assert first == second, limit
                assert first.remaining == 6, limit
                assert first.allowed == (cost <= 6), limit
            denial = limiter.peek("key", 7)
            hit = limiter.hit("key", 7)
            assert (hit.allowed, hit.retry_after_ns) == (False, denial.retry_after_ns), limit
            assert limiter.hit("key", 6), limit

    def test_reset_makes_a_key_as_new(self) -> None:
        for limit, limiter in self.limiters():
            untouched = limiter.peek("key")
            limiter.hit("key", 3)
            limiter.charge("key", 30)
            limiter.hit("other", 7)
            limiter.reset("key")
            limiter.reset("never seen")
            assert limiter.peek("key") == untouched, limit
            assert self.is_about(limiter.peek("other").remaining, 3, limit), limit

    def test_a_clock_that_steps_back_mints_nothing(self) -> None:
        steps = (self.tick_ns, seconds(1), seconds(10), seconds(3_600), seconds(10**9))
        for limit in TENS:
            for step in steps:
                limiter = self.limiter(limit)
                limiter.hit("full", 10)
                limiter.hit("half", 5)
                self.clock.advance_ns(-step)
                assert not limiter.hit("full"), f"{limit}: allowed {step} ns back"
                allowed = sum(limiter.hit("half").allowed for _ in range(10))
                assert allowed <= 5, f"{limit}: {5 + allowed} allowed {step} ns back"
                if step == self.tick_ns:  # a longer step forward refills
                    self.clock.advance_ns(step)
                    assert not limiter.hit("full"), f"{limit}: allowed when back again"
                    allowed += sum(limiter.hit("half").allowed for _ in range(10))
                    assert allowed <= 5, f"{limit}: {5 + allowed} allowed when back again"

    def test_a_clock_that_steps_back_locks_no_caller_out(self) -> None:
        for limit, limiter in self.limiters():
            self.clock.advance_ns(seconds(3_600))
            limiter.hit("key", 10)
            self.clock.advance_ns(-seconds(3_600))
            denied = limiter.hit("key")
            wait_ns = denied.retry_after_ns
            assert not denied, limit
            assert wait_ns is not None, limit
            assert wait_ns <= 2 * limit.period_ns, f"{limit}: {wait_ns} ns"
            self.clock.advance_ns(wait_ns - self.tick_ns)
            assert not limiter.hit("key"), limit
            self.clock.advance_ns(self.tick_ns)
            assert limiter.hit("key"), limit

    def test_a_peek_changes_nothing_that_a_step_back_could_show(self) -> None:
        limiter = self.limiter(SlidingWindowLog(1, 60))
        assert limiter.hit("key")
        self.clock.advance_ns(seconds(65))
        assert limiter.peek("key")
        self.clock.advance_ns(-seconds(35))
        assert not limiter.hit("key")

    def test_every_verb_works_when_the_clock_steps_back(self) -> None:
        for limit, limiter in self.limiters():
            reservation = limiter.reserve("key", 2)
            limiter.charge("key", 12)
            self.clock.advance_ns(-seconds(3_600))
            assert limiter.peek("key").remaining == 0, limit
            limiter.charge("key", 1)
            limiter.refund("key", 3)
            reservation.commit(1)
            limiter.reserve("key", 1)
            limiter.hit_many(["key", "new"])
            limiter.reset("key")
            self.clock.advance_ns(seconds(3_600))

    def test_a_token_bucket_and_gcra_allow_the_same(self) -> None:
        random = Random(1)  # noqa: S311 (a history that can be repeated, no secret)
        for capacity, rate in ((1, 1), (5, 2), (10, 0.3), (7, 1_000)):
            bucket = self.limiter(TokenBucket(capacity, rate))
            gcra = self.limiter(GCRA(rate=rate, burst=capacity))
            for _ in range(100):
                cost = random.randint(1, capacity)
                mine, its = bucket.hit("key", cost), gcra.hit("key", cost)
                assert mine.allowed == its.allowed, f"{mine} and {its} differ"
                assert mine.remaining == its.remaining, f"{mine} and {its} differ"
                assert mine.retry_after_ns == its.retry_after_ns, f"{mine} and {its} differ"
                some = random.randint(0, round(seconds(2) / rate / self.tick_ns))
                self.clock.advance_ns(some * self.tick_ns)

    def test_fixed_windows_are_aligned_to_the_epoch(self) -> None:
        for window in (10, 7, 0.25, 3_600):
            limit = FixedWindow(3, window)
            self.start_of(limit.window_ns)
            self.clock.advance_ns(limit.window_ns - 5 * self.tick_ns)
            limiter = self.limiter(limit)
            assert limiter.hit("key", 3).reset_after_ns == 5 * self.tick_ns, limit
            denial = limiter.hit("key")
            assert denial.retry_after_ns == 5 * self.tick_ns, limit
            self.assert_fits_exactly_after(denial, limiter, 1)
            assert limiter.hit("key", 2), limit

    def test_what_is_exactly_one_window_old_has_left_a_sliding_window(self) -> None:
        limiter = self.limiter(SlidingWindowLog(3, 10))
        for _ in range(3):
            limiter.hit("key")
            self.clock.advance_ns(seconds(1))
        self.clock.advance_ns(seconds(7) - self.tick_ns)
        assert not limiter.hit("key")
        self.clock.advance_ns(self.tick_ns)
        assert limiter.hit("key")
        assert limiter.hit("key").retry_after_ns == seconds(1)

    @needs("exact")
    def test_the_sliding_counter_weighs_the_window_before(self) -> None:
        limit = SlidingWindowCounter(100, 60)
        self.start_of(limit.window_ns)
        limiter = self.limiter(limit)
        limiter.hit("key", 80)
        self.clock.advance_ns(seconds(60))
        limiter.hit("key", 20)
        self.clock.advance_ns(seconds(18))
        assert limiter.peek("key").remaining == 24
        assert not limiter.hit("key", 25)
        assert limiter.hit("key", 24)
        assert not limiter.hit("key", 1)
