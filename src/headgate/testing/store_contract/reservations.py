"""Reservations and slots."""

from __future__ import annotations

from headgate.limits import Concurrency, FixedWindow, TokenBucket
from headgate.stores.operations import Check, Hold, Settle
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, seconds


class ReservationContract(StoreUnderTest):
    """A reserved amount is settled once, or expires."""

    def test_a_reserved_amount_is_not_for_others(self) -> None:
        for limit, limiter in self.limiters():
            assert limiter.reserve("key", 6).allowed, limit
            assert limiter.peek("key").remaining == 4, limit
            assert not limiter.hit("key", 5), limit
            assert not limiter.reserve("key", 5).allowed, limit
            assert not limiter.hit_many([("key", 5)])[0], limit
            assert limiter.hit("key", 4), limit
            assert limiter.peek("other").remaining == 10, limit

    def test_a_commit_charges_what_was_used(self) -> None:
        for limit in TENS:
            for actual in (None, 6, 2, 0, 35):
                limiter, charged = self.limiter(limit), self.limiter(limit)
                assert limiter.reserve("key", 6).commit(actual), limit
                expected = charged.charge("key", 6 if actual is None else actual)
                assert limiter.peek("key") == expected, f"{limit}: commit({actual})"
            limiter, untouched = self.limiter(limit), self.limiter(limit)
            assert limiter.reserve("key", 6).cancel(), limit
            assert limiter.peek("key") == untouched.peek("key"), f"{limit}: cancel()"

    def test_a_reservation_settles_once(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 3)
            self.run(Hold((check,), "name", seconds(60)))
            settle = Settle((check,), "name", charge_lapsed=False)
            assert [self.run(settle), self.run(settle)] == [True, False], limit
            again = self.run(Hold((Check(check.group, "key", limit, 7),), "more", seconds(60)))
            assert again[0].allowed, limit

    def test_a_denied_reservation_holds_nothing(self) -> None:
        for limit, limiter in self.limiters():
            assert not limiter.reserve("key", 11).allowed, limit
            assert limiter.hit("key", 10), limit

    def test_a_reservation_expires(self) -> None:
        for limit, limiter in self.limiters():
            untouched = limiter.peek("key")
            limiter.reserve("key", 10, ttl=25)
            self.clock.advance_ns(seconds(25) - self.tick_ns)
            assert not limiter.hit("key"), f"{limit}: expired one tick early"
            self.clock.advance_ns(self.tick_ns)
            assert limiter.peek("key") == untouched, f"{limit}: has not expired"
            assert limiter.hit("key", 10), limit

    def test_an_expired_reservation_is_charged_when_it_is_committed_not_when_cancelled(
        self,
    ) -> None:
        for limit in TENS:
            for actual, left in ((4, 6), (None, 10)):
                limiter = self.limiter(limit)
                reservation = limiter.reserve("key", 6, ttl=25)
                self.clock.advance_ns(seconds(30))
                assert not (reservation.commit(actual) if actual else reservation.cancel()), limit
                assert limiter.peek("key").remaining == left, limit

    def test_retry_after_is_exact_beside_reservations(self) -> None:
        for limit in TENS:
            for cost in (1, 5, 10):
                limiter = self.limiter(limit)
                limiter.reserve("key", 4, ttl=3)
                limiter.reserve("key", 3, ttl=40)
                limiter.hit("key", 3)
                self.clock.advance_ns(7 * self.tick_ns)
                self.assert_fits_exactly_after(limiter.hit("key", cost), limiter, cost)

    def test_a_reservation_does_not_fade_while_it_is_open(self) -> None:
        for limit, limiter in self.limiters():
            reservation = limiter.reserve("key", 6, ttl=3_600)
            self.clock.advance_ns(seconds(1_800))
            assert limiter.peek("key").remaining == 4, limit
            assert reservation.commit(), limit
            assert limiter.peek("key").remaining == 4, limit

    def test_a_reservation_under_a_stack_is_all_or_nothing(self) -> None:
        limiter = self.limiter([TokenBucket(10, 1), FixedWindow(4, 10)])
        assert not limiter.reserve("key", 5).allowed
        assert [part.remaining for part in limiter.peek("key").limits] == [10, 4]
        reservation = limiter.reserve("key", 4)
        assert [part.remaining for part in limiter.peek("key").limits] == [6, 0]
        reservation.commit(1)
        assert [part.remaining for part in limiter.peek("key").limits] == [9, 3]

    def test_reset_forgets_reservations(self) -> None:
        for limit, limiter in self.limiters():
            limiter.reserve("key", 10)
            limiter.reset("key")
            assert limiter.hit("key", 10), limit


class SlotContract(StoreUnderTest):
    """A slot of a concurrency limit is released, or expires."""

    def test_there_are_as_many_slots_as_the_limit_says(self) -> None:
        limiter = self.limiter(Concurrency(3, 60))
        taken = [limiter.slot("key").take() for _ in range(5)]
        assert [decision.allowed for decision in taken] == [True, True, True, False, False]
        assert [decision.remaining for decision in taken] == [2, 1, 0, 0, 0]
        assert limiter.slot("other").take()

    def test_a_released_slot_is_free_at_once(self) -> None:
        limiter = self.limiter(Concurrency(1, 60))
        first = limiter.slot("key")
        assert first.take()
        assert not limiter.slot("key").take()
        assert first.release()
        assert limiter.slot("key").take()
        assert not first.release()
        assert not limiter.slot("key").take()

    def test_a_slot_that_is_never_released_expires(self) -> None:
        limiter = self.limiter(Concurrency(1, 60))
        lost = limiter.slot("key")
        lost.take()
        self.clock.advance_ns(seconds(20))
        denial = limiter.slot("key").take()
        assert (denial.retry_after, denial.is_estimate) == (1, True)
        self.clock.advance_ns(seconds(40) - self.tick_ns)
        assert not limiter.slot("key").take()
        self.clock.advance_ns(self.tick_ns)
        assert limiter.slot("key").take()
        assert not lost.release()
        assert not limiter.slot("key").take()

    def test_the_wait_for_a_slot_is_an_estimate_within_the_lease(self) -> None:
        limiter = self.limiter([Concurrency(1, 60), FixedWindow(100, 60)])
        slot = limiter.slot("key")
        assert slot.take()
        denial = limiter.slot("key").take()
        assert (denial.retry_after, denial.is_estimate) == (1, True), "nothing is known yet"
        assert slot.release()
        lost = limiter.slot("key")
        assert lost.take()
        denial = limiter.slot("key").take()
        assert denial.retry_after is not None
        assert 0.1 <= denial.retry_after < 60
        self.clock.advance_ns(seconds(60) - self.tick_ns)
        assert limiter.slot("key").take().retry_after_ns == self.tick_ns, "the lease expires first"

    def test_a_renewed_slot_lasts_longer(self) -> None:
        limiter = self.limiter(Concurrency(1, 60))
        slot = limiter.slot("key")
        slot.take()
        for _ in range(3):
            self.clock.advance_ns(seconds(60) - self.tick_ns)
            assert slot.renew()
        assert not limiter.slot("key").take()
        self.clock.advance_ns(seconds(60))
        assert not slot.renew()
        assert limiter.slot("key").take()

    def test_slots_and_a_rate_beside_them_are_all_or_nothing(self) -> None:
        for limit in TENS:
            for places in (0, 1):
                stack = [Concurrency(2, 60), limit]
                limiter = self.limiter(stack if places == 0 else stack[::-1])
                first = limiter.slot("key")
                assert first.take(), limit
                assert limiter.slot("key").take(), limit
                assert not limiter.slot("key").take(), limit
                left = {part.limit: part.remaining for part in limiter.peek("key").limits}
                assert left == {stack[0]: 0, limit: 8}, f"{limit}: a denied slot was charged"
                assert first.release(), limit
                left = {part.limit: part.remaining for part in limiter.peek("key").limits}
                assert left == {stack[0]: 1, limit: 8}, f"{limit}: a released slot was refunded"

    def test_a_rate_that_denies_takes_no_slot(self) -> None:
        for limit in (TokenBucket(1, 0.01), FixedWindow(1, 100)):
            limiter = self.limiter([Concurrency(5, 60), limit])
            assert limiter.slot("key").take(), limit
            assert not limiter.slot("key").take(), limit
            left = [part.remaining for part in limiter.peek("key").limits]
            assert left == [4, 0], limit
