"""Reservations and slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.limits import Concurrency, FixedWindow, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Charge, Check, Hold, Refund, Reset, Settle, Take, TakeUpTo
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, seconds

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.stores.operations import Operation


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


TTL = 25
"""Seconds after which the holds below expire, or for which they last."""


class ExpiryContract(StoreUnderTest):
    """A hold that charges when it expires is charged in full as of that instant, once."""

    def test_an_expired_hold_counts_from_the_instant_it_expired(self) -> None:
        for limit in TENS:
            check, charged = self.held(limit), self.check(limit)
            self.clock.advance_ns(seconds(TTL) - self.tick_ns)
            assert self.peek(check).remaining == 4, limit
            self.clock.advance_ns(self.tick_ns)
            self.run(Charge((charged.with_cost(6),)))
            for _ in range(15):
                assert self.peek(check) == self.peek(charged), limit
                self.clock.advance_ns(seconds(1))

    def test_whatever_comes_next_finds_an_expired_hold_charged_once(self) -> None:
        for limit in TENS:
            for n, late in enumerate((0, 3, 12, 3 * TTL)):
                check, charged = self.held(limit), self.check(limit)
                self.clock.advance_ns(seconds(TTL))
                self.run(Charge((charged.with_cost(6),)))
                self.clock.advance_ns(seconds(late))
                for one in (check, charged):
                    self.touch(one, n)
                for _ in range(3):
                    assert self.peek(check) == self.peek(charged), f"{limit}, {late} s later"
                    self.clock.advance_ns(seconds(2))

    def test_expired_holds_are_charged_in_their_order(self) -> None:
        for limit in TENS:
            check, charged = self.check(limit), self.check(limit)
            for name, amount, ttl in (("late", 2, 9), ("first", 3, 2), ("last", 4, 31)):
                self.hold(check.with_cost(amount), name, ttl)
            for pause, amount in ((2, 3), (7, 2), (22, 4)):
                self.clock.advance_ns(seconds(pause))
                self.run(Charge((charged.with_cost(amount),)))
            self.clock.advance_ns(seconds(1))
            assert self.peek(check) == self.peek(charged), limit

    def test_retry_after_is_exact_beside_holds_that_charge(self) -> None:
        for limit in TENS:
            for cost in (1, 5, 10):
                check = self.check(limit).with_cost(cost)
                self.hold(check.with_cost(4), "a", 3)
                self.hold(check.with_cost(3), "b", 40, charges_expired=False)
                self.run(Take((check.with_cost(3),)))
                self.clock.advance_ns(7 * self.tick_ns)
                (denial,) = self.run(Take((check,)))
                assert not denial.allowed, limit
                assert denial.retry_after_ns, limit
                self.clock.advance_ns(denial.retry_after_ns - self.tick_ns)
                assert not self.run(Take((check,)))[0].allowed, f"{limit}: {cost} one tick early"
                self.clock.advance_ns(self.tick_ns)
                assert self.run(Take((check,)))[0].allowed, f"{limit}: {cost} after the wait"

    def test_a_settled_hold_is_not_charged_again_when_it_would_have_expired(self) -> None:
        for limit in TENS:
            for actual in (0, 2, 6, 9):
                check, charged = self.held(limit), self.check(limit)
                assert self.run(Settle((check.with_cost(actual),), "name", charge_lapsed=True))
                self.run(Charge((charged.with_cost(actual),)))
                self.clock.advance_ns(seconds(TTL + 1))
                assert self.peek(check) == self.peek(charged), f"{limit}: {actual}"

    def test_a_late_settlement_charges_what_the_expired_amount_lacks(self) -> None:
        for limit in TENS:
            for is_seen in (True, False):
                check, charged = self.held(limit), self.check(limit)
                self.clock.advance_ns(seconds(TTL))
                self.run(Charge((charged.with_cost(6),)))
                if is_seen:
                    self.run(Take((check,)))
                    self.run(Take((charged,)))
                self.clock.advance_ns(seconds(2))
                settle = Settle((check.with_cost(8),), "name", charge_lapsed=not is_seen)
                assert not self.run(settle), limit
                self.run(Charge((charged.with_cost(2),)))
                assert self.peek(check) == self.peek(charged), limit
                assert not self.run(Settle((check,), "name", charge_lapsed=False)), limit
                assert self.peek(check) == self.peek(charged), f"{limit}: settled twice"

    def test_a_late_settlement_returns_what_still_counts(self) -> None:
        for limit in TENS:
            for late, left in ((1, 9), (4, 9), (21, 10)):
                self.start_of(seconds(10))
                check = self.held(limit, amount=10)
                self.clock.advance_ns(seconds(TTL + late))
                assert not self.run(Settle((check,), "name", charge_lapsed=True)), limit
                assert self.peek(check).remaining == left, f"{limit}: {late} s later"

    def test_a_late_settlement_returns_nothing_to_a_window_that_did_not_have_it(self) -> None:
        for limit in (FixedWindow(10, 10), SlidingWindowLog(10, 10)):
            self.start_of(seconds(10))
            check = self.held(limit)
            self.clock.advance_ns(seconds(TTL + 10))
            self.run(Take((check.with_cost(7),)))
            assert not self.run(Settle((check,), "name", charge_lapsed=True)), limit
            assert self.peek(check).remaining == 3, limit

    def test_a_hold_is_forgotten_its_ttl_after_it_was_charged(self) -> None:
        for limit in TENS:
            for late, left in ((TTL - 1, 10), (TTL, 8)):
                check = self.held(limit)
                self.clock.advance_ns(seconds(TTL + late))
                self.run(Settle((check.with_cost(2),), "name", charge_lapsed=True))
                assert self.peek(check).remaining == left, limit

    def test_an_expired_hold_is_charged_under_the_limit_of_that_time(self) -> None:
        check = self.held(TokenBucket(10, 1))
        self.clock.advance_ns(seconds(TTL + 2))
        for limit in (TokenBucket(20, 2), FixedWindow(20, 3600), SlidingWindowLog(20, 3600)):
            check = Check(check.group, "key", limit)
            assert self.peek(check).remaining == 16, limit
            self.run(Take((check.with_cost(0),)))

    def test_a_clock_that_steps_back_neither_loses_nor_repeats_the_charge(self) -> None:
        for limit in TENS:
            check, charged = self.held(limit), self.check(limit)
            self.clock.advance_ns(-seconds(3_600))
            assert not self.run(Take((check.with_cost(5),)))[0].allowed, limit
            self.clock.advance_ns(seconds(TTL))
            self.run(Charge((charged.with_cost(6),)))
            for one in (check, charged):
                assert self.run(Take((one,)))[0].remaining == 3, limit
            self.clock.advance_ns(-seconds(3_600))
            assert self.peek(check) == self.peek(charged), f"{limit}: charged once"
            self.run(Settle((check.with_cost(4),), "name", charge_lapsed=True))
            self.run(Refund((charged.with_cost(2),)))
            assert self.peek(check) == self.peek(charged), f"{limit}: corrected"

    def test_reset_forgets_holds_that_charge(self) -> None:
        for limit in TENS:
            for late in (0, TTL):
                check = self.held(limit)
                self.clock.advance_ns(seconds(late))
                self.run(Reset((check,)))
                self.clock.advance_ns(seconds(TTL))
                assert self.peek(check).remaining == 10, limit

    def check(self, limit: Limit) -> Check:
        """Return the check of one unit of a new counter."""
        return Check(self.new_name(), "key", limit)

    def hold(self, check: Check, name: str, ttl: int, *, charges_expired: bool = True) -> None:
        """Hold what *check* costs for *ttl* seconds."""
        hold = Hold((check,), name, seconds(ttl), charges_expired=charges_expired)
        assert self.run(hold)[0].allowed, check.limit

    def held(self, limit: Limit, amount: int = 6) -> Check:
        """Return the check of a new counter of which *amount* is held."""
        check = self.check(limit)
        self.hold(check.with_cost(amount), "name", TTL)
        return check

    def peek(self, check: Check) -> Outcome:
        """Return the figures of the counter of *check*."""
        return self.run(Take((check.with_cost(1),), consume=False))[0]

    def touch(self, check: Check, number: int) -> None:
        """Apply one of several operations to the counter of *check*."""
        settle = Settle((check,), "another", charge_lapsed=True)
        hold = Hold((check,), "another", seconds(60))
        several: list[Operation[Any]] = [
            Take((check,)),
            Refund((check.with_cost(2),)),
            settle,
            hold,
        ]
        self.run(several[number % len(several)])
        if number == 0:
            self.run(TakeUpTo((check.with_cost(2),)))


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
