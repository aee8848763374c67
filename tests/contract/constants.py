"""Limits without a counter, case by case: `DenyAll` and `Unlimited`.

The public contract has them in its random histories.
"""

from __future__ import annotations

from headgate.limits import (
    LARGEST_QUOTA,
    Concurrency,
    DenyAll,
    FixedWindow,
    LeakyQueue,
    TokenBucket,
    Unlimited,
)
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, seconds

NEVER = DenyAll()
ALWAYS = Unlimited()


class ConstantContract(StoreUnderTest):
    """`DenyAll` and `Unlimited`, alone and beside limits that count."""

    def test_a_limit_of_nothing_denies_for_good(self) -> None:
        limiter = self.limiter("0/minute")
        for cost in (1, 10**18):
            decision = limiter.hit("key", cost)
            figures = decision.remaining, decision.retry_after_ns, decision.reset_after_ns
            assert (decision.allowed, *figures) == (False, 0, None, 0)
            assert decision == limiter.peek("key", cost)
            assert not limiter.reserve("key", cost).allowed
        assert limiter.hit("key", 0).allowed, "a cost of nothing fits"
        self.clock.advance_ns(seconds(3600))
        limiter.reset("key")
        assert not limiter.hit("key").allowed

    def test_an_unlimited_key_is_always_allowed(self) -> None:
        limiter = self.limiter("unlimited")
        for cost in (0, 1, 10**18):
            decision = limiter.hit("key", cost)
            figures = decision.remaining, decision.retry_after_ns, decision.reset_after_ns
            assert (decision.allowed, *figures) == (True, LARGEST_QUOTA, 0, 0)
            assert decision == limiter.peek("key", cost)
        assert [one.allowed for one in limiter.hit_many(["key", ("other", 9)])] == [True, True]
        limiter.reset("key")
        assert limiter.hit("key").allowed

    def test_nothing_that_is_charged_or_refunded_changes_them(self) -> None:
        for _, limiter in self.limiters(NEVER, ALWAYS):
            before = limiter.peek("key")
            assert limiter.charge("key", 50) == before
            assert limiter.refund("key", 99) == before
            assert limiter.peek("key") == before

    def test_a_reservation_of_what_is_unlimited_is_settled(self) -> None:
        for limits in (ALWAYS, [TokenBucket(10, 1), ALWAYS]):
            limiter = self.limiter(limits)
            assert limiter.reserve("key", 9).commit(4)
            assert limiter.reserve("key", 2).cancel()

    @needs("exact")
    def test_beside_an_unlimited_one_the_others_decide(self) -> None:
        for limit in TENS:
            limiter, alone = self.limiter([ALWAYS, limit]), self.limiter(limit)
            for cost in (4, 7, 6, 1):
                both, one = limiter.hit("key", cost), alone.hit("key", cost)
                assert (both.allowed, both.limit) == (one.allowed, limit)
                assert both.limits[1] == one, limit

    def test_what_is_denied_charges_no_other_limit(self) -> None:
        for limit in TENS:
            for limits in ([NEVER, limit], [limit, NEVER]):
                limiter = self.limiter(limits)
                limiter.charge("key", 3)
                decision = limiter.hit("key", 4)
                place = limits.index(limit)
                assert not decision.allowed
                assert decision.limit == NEVER
                part = decision.limits[place]
                assert (part.allowed, self.is_about(part.remaining, 7, limit)) == (True, True)
                assert not limiter.reserve("key", 4).allowed
                assert limiter.hit_up_to("key", 4).granted == 0
                (many,) = limiter.hit_many([("key", 4)])
                assert self.is_about(many.limits[place].remaining, 7, limit)
                assert limiter.peek("key", 4) == decision, limits

    def test_as_much_is_granted_as_the_others_allow(self) -> None:
        assert self.limiter(ALWAYS).hit_up_to("key", 10**18).granted == 10**18
        assert self.limiter(NEVER).hit_up_to("key", 5).granted == 0
        for limit in TENS:
            limiter = self.limiter([limit, ALWAYS])
            part = limiter.hit_up_to("key", 12)
            assert part.granted == 10, limit
            assert part.decision == limiter.peek("key", 2), limit

    def test_slots_and_queues_beside_them_are_taken_or_not(self) -> None:
        slots = Concurrency(1, 60)
        closed = self.limiter([slots, NEVER])
        assert not closed.slot("key").take().allowed
        free = self.limiter([slots, ALWAYS])
        held = free.slot("key")
        assert held.take().allowed
        assert not free.slot("key").take().allowed
        assert held.release()
        queue = self.limiter([LeakyQueue(1, 5), NEVER])
        assert not queue.hit("key").allowed
        assert queue.peek("key").limits[0].delay_ns == 0, "no place was taken"

    def test_a_counter_outlives_a_limit_without_one(self) -> None:
        for between in (NEVER, ALWAYS):
            name = self.new_name()
            limit = FixedWindow(10, 3600)
            self.limiter(limit, name).charge("key", 6)
            assert self.limiter(between, name).hit("key", 3).allowed == (between == ALWAYS)
            left = self.limiter(limit, name).peek("key").remaining
            assert self.is_about(left, 4, limit)
