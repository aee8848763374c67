"""Slots that a part of the callers gives back are kept for it for a moment, where they are lent."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headgate.algorithms.concurrency import GRAIN_NS, KEEP_NS
from headgate.limits import Concurrency
from headgate.stores.operations import Check, Leave, Renew, Take
from headgate.testing.contract_shares import LENT, asked, taken
from headgate.testing.contract_subject import StoreUnderTest, seconds

SHARES: Final = (("gold", 4), ("free", 2))


class KeepingContract(StoreUnderTest):
    """A part that is busy keeps its share; one that is not lends it after a moment."""

    def test_a_slot_that_comes_back_is_kept_for_the_part_whose_it_is(self) -> None:
        limiter = self.limiter(LENT)
        gold = taken(limiter, "gold", 4)
        assert len(taken(limiter, None, 9)) == 6
        assert gold[0].release()
        assert not asked(limiter, "free"), "nor is it for a part that has less than its share"
        assert limiter.peek("key").remaining == 0
        assert asked(limiter, "gold")

    def test_it_is_lent_when_the_part_stays_away(self) -> None:
        for borrower in (None, "free"):
            limiter = self.limiter(LENT)
            gold = taken(limiter, "gold", 4)
            taken(limiter, None, 6)
            assert gold[0].release()
            refusal = asked(limiter, borrower)
            wait_ns = refusal.retry_after_ns
            assert wait_ns is not None
            assert KEEP_NS <= wait_ns < KEEP_NS + GRAIN_NS
            self.clock.advance_ns(wait_ns - self.tick_ns)
            assert not asked(limiter, borrower)
            assert asked(limiter, borrower).retry_after_ns == self.tick_ns
            self.clock.advance_ns(self.tick_ns)
            assert asked(limiter, borrower), borrower

    def test_no_more_is_kept_than_the_part_had_of_late(self) -> None:
        limiter = self.limiter(LENT)
        slots = taken(limiter, "gold", 4)
        for slot in slots:
            assert slot.release()
        for _ in range(10):  # from now on it needs but one
            self.clock.advance_ns(KEEP_NS // 5)
            slot = limiter.slot("key", "gold")
            assert slot.take()
            assert slot.release()
        assert len(taken(limiter, None, 11)) == 9
        assert asked(limiter, "gold")

    def test_what_a_part_has_beyond_its_share_is_not_kept(self) -> None:
        limiter = self.limiter(LENT)
        gold = taken(limiter, "gold", 6)
        assert len(taken(limiter, None, 9)) == 4
        assert gold[0].release()
        assert gold[1].release()
        assert len(taken(limiter, None, 9)) == 2
        assert gold[2].release()
        assert not asked(limiter, None)

    def test_nothing_is_kept_of_a_lease_that_has_run_out(self) -> None:
        limiter = self.limiter(LENT)
        gold = taken(limiter, "gold", 4)
        self.clock.advance_ns(seconds(60))
        assert len(taken(limiter, None, 5)) == 5
        assert not any(slot.release() for slot in gold)
        assert len(taken(limiter, None, 9)) == 5

    def test_what_nobody_is_guaranteed_is_not_kept(self) -> None:
        limiter = self.limiter(LENT)
        slots = taken(limiter, None, 10)
        assert slots[0].release()
        assert asked(limiter, None)

    def test_who_asks_under_a_larger_limit_need_not_keep_it(self) -> None:
        name = self.new_name()
        larger, smaller = (self.limiter(Concurrency(n, 60, SHARES), name) for n in (8, 6))
        gold = taken(smaller, "gold", 4)
        assert len(taken(smaller, None, 9)) == 2
        assert gold[0].release()
        assert not asked(smaller, None)
        assert len(taken(larger, None, 9)) == 3

    def test_kept_under_two_limits_it_is_kept_under_the_larger(self) -> None:
        for order in ((8, 6), (6, 8)):
            name = self.new_name()
            limiters = [self.limiter(Concurrency(n, 60, SHARES), name) for n in order]
            slots = [limiter.slot("key", "gold") for limiter in limiters]
            assert all(slot.take() for slot in slots)
            assert all(slot.release() for slot in slots)
            larger = limiters[order.index(8)]
            assert len(taken(larger, None, 9)) == 6, order

    def test_claims_under_two_limits_count_under_the_larger(self) -> None:
        for order in ((8, 6), (6, 8)):
            name = self.new_name()
            limiters = [self.limiter(Concurrency(n, 60, SHARES), name) for n in order]
            larger = limiters[order.index(8)]
            borrowed = taken(larger, None, 8)
            assert not any(asked(limiter, "gold") for limiter in limiters)
            assert all(slot.release() for slot in borrowed[:3])
            assert len(taken(larger, None, 9)) == 1, order

    def test_a_renewal_that_comes_after_the_slot_was_given_back_is_refused(self) -> None:
        for part in (None, "gold"):
            check = Check(self.new_name(), "key", replace(LENT, partition=part))
            assert self.run(Take((check,), lease="a"))[0].allowed
            assert self.run(Renew((check,), "a"))
            assert self.run(Leave((check,), "a"))
            assert not self.run(Renew((check,), "a"))
            assert not self.run(Leave((check,), "a"))
            (looked,) = self.run(Take((check,), consume=False))
            assert looked.remaining == 10

    def test_a_guarantee_that_is_not_lent_keeps_no_more_than_before(self) -> None:
        limiter = self.limiter(Concurrency(10, 60, SHARES, lends=False))
        gold = taken(limiter, "gold", 4)
        assert all(slot.release() for slot in gold)
        assert limiter.peek("key").remaining == 4
        assert limiter.peek("key").reset_after == 0
