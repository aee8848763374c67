"""What is lent out of a counter: how much, for how long, and what comes of it."""

from __future__ import annotations

from typing import Any

from headgate.errors import UsageError
from headgate.limits import Concurrency, FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.stores import Check, Hold, Operation, Reset, Take
from headgate.stores.operations import Absorb, Lend, Lent
from headgate.testing.contract_subject import TENS, StoreUnderTest, needs, seconds

SECOND = seconds(1)


@needs("lends")
class LendingContract(StoreUnderTest):
    """`Lend`, for stores that lend."""

    def lend(
        self,
        limit: Limit,
        holder: str,
        most: int,
        *,
        cost: int = 0,
        group: str = "g",
        ttl_ns: int = SECOND,
        unused: int = 0,
        used: int = 0,
        told: int = 0,
        cap: int | None = None,
        is_charged: bool = True,
    ) -> Lent:
        """Have the store lend; a check of cost 0 unless another is given."""
        check = Check(group, "key", limit, cost)
        return self.run(
            Lend(check, holder, most, ttl_ns, unused, used, told, cap, is_charged=is_charged)
        )

    def lending(self) -> list[tuple[Limit, str]]:
        """A limit of each algorithm, and a group of its own."""
        return [(limit, self.new_name()) for limit in TENS]

    def test_a_loan_comes_on_top_of_the_check(self) -> None:
        for limit, group in self.lending():
            lent = self.lend(limit, "a", 4, cost=3, group=group)
            assert (lent.outcome.allowed, lent.outcome.remaining) == (True, 7), limit
            assert (lent.amount, lent.holders, lent.lent) == (4, 1, 4), limit
            assert self.left(limit, group) == 3, limit
            again = self.run(Take((Check(f"{group}'", "key", limit, 3),)))
            assert lent.outcome == again[0], limit

    def test_no_more_is_lent_than_fits(self) -> None:
        for limit, group in self.lending():
            assert self.lend(limit, "a", 100, cost=3, group=group).amount == 7, limit
            more = self.lend(limit, "b", 100, group=group)
            assert (more.outcome.allowed, more.amount, more.holders) == (True, 0, 1), limit

    def test_no_more_is_lent_than_the_cap_leaves(self) -> None:
        for limit, group in self.lending():
            assert self.lend(limit, "a", 3, cap=5, group=group).amount == 3, limit
            assert self.lend(limit, "b", 3, cap=5, group=group).amount == 2, limit
            third = self.lend(limit, "c", 3, cost=1, cap=5, group=group)
            assert (third.outcome.allowed, third.amount, third.holders) == (True, 0, 2), limit
            assert self.lend(limit, "a", 3, cap=5, unused=3, group=group).amount == 3, limit

    def test_what_was_not_used_is_given_back_and_no_more(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 6, group=group)
            ended = self.lend(limit, "a", 0, unused=4, group=group)
            assert (ended.amount, ended.holders, ended.lent) == (0, 0, 0), limit
            assert self.left(limit, group) == 8, limit
            self.lend(limit, "a", 0, unused=4, group=group)
            assert self.left(limit, group) == 8, f"{limit}: given back twice"
            self.lend(limit, "a", 3, group=group)
            self.lend(limit, "a", 0, unused=100, group=group)
            assert self.left(limit, group) == 8, f"{limit}: more given back than lent"

    def test_a_lease_that_lapsed_stays_charged(self) -> None:
        for limit, group in self.lending():
            lent = self.lend(limit, "a", 6, group=group)
            assert lent.lasts_ns == SECOND, limit
            self.clock.advance_ns(SECOND - self.tick_ns)
            assert self.lend(limit, "b", 0, group=group).lent == 6, limit
            self.clock.advance_ns(self.tick_ns)
            before = self.left(limit, group)
            ended = self.lend(limit, "a", 0, unused=5, group=group)
            assert (ended.holders, ended.lent) == (0, 0), limit
            assert self.left(limit, group) == before, f"{limit}: a lapsed loan was given back"

    def test_a_licence_is_not_charged_before_it_is_used(self) -> None:
        for limit, group in self.lending():
            lent = self.lend(limit, "a", 6, cap=7, is_charged=False, group=group)
            assert (lent.amount, lent.lent, self.left(limit, group)) == (6, 6, 10), limit
            assert self.lend(limit, "b", 6, cap=7, is_charged=False, group=group).amount == 1, limit
            self.lend(limit, "a", 0, unused=2, used=4, group=group)
            assert self.left(limit, group) == 6, limit

    def test_what_a_licence_told_in_advance_goes_on_counting_as_lent(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 4, cap=5, is_charged=False, group=group)
            self.run(Take((Check(group, "key", limit, 10),)))
            kept = self.lend(limit, "a", 4, unused=3, used=3, cap=5, is_charged=False, group=group)
            assert (kept.amount, kept.lent) == (3, 3), f"{limit}: nothing fits, three were told"
            less = self.lend(limit, "a", 2, unused=3, used=3, cap=5, is_charged=False, group=group)
            assert less.amount == 2, f"{limit}: more than was asked for"
            lease = self.lend(limit, "b", 2, unused=2, cap=5, group=group)
            assert lease.amount == 0, f"{limit}: it had no licence"

    def test_what_is_told_twice_is_charged_once(self) -> None:
        for limit, group in self.lending():
            for used, told, left in ((2, 0, 8), (2, 0, 8), (2, 2, 8), (5, 0, 5), (3, 0, 5)):
                self.lend(limit, "a", 2, used=used, told=told, is_charged=False, group=group)
                assert self.left(limit, group) == left, f"{limit}: {used} used, {told} known"
            self.lend(limit, "b", 2, used=7, told=6, is_charged=False, group=group)
            assert self.left(limit, group) == 4, f"{limit}: what was known to be charged"

    def test_a_licence_that_lapsed_is_charged_in_full(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 3, used=0, is_charged=False, group=group)
            self.clock.advance_ns(SECOND)
            seen = self.lend(limit, "b", 0, group=group)
            assert (seen.outcome.remaining, seen.holders, seen.lent) == (7, 0, 0), limit
            self.lend(limit, "a", 0, used=2, group=group)
            assert self.left(limit, group) == 7, f"{limit}: charged twice"
            self.lend(limit, "a", 0, used=4, told=2, group=group)
            assert self.left(limit, group) == 5, f"{limit}: what was used since is not paid"

    def test_a_licence_that_lapsed_long_ago_is_charged_as_long_as_that_means_anything(self) -> None:
        slow, group = TokenBucket(10, 0.01), self.new_name()
        self.lend(slow, "a", 5, is_charged=False, group=group)
        self.clock.advance_ns(seconds(300))
        assert self.lend(slow, "b", 0, group=group).outcome.remaining == 5

    def test_what_is_told_of_a_lapsed_licence_is_charged_beyond_it(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 3, is_charged=False, group=group)
            self.clock.advance_ns(SECOND)
            self.lend(limit, "a", 0, used=5, group=group)
            assert self.left(limit, group) == 5, limit

    def test_a_refused_check_still_ends_the_loan_and_charges_what_was_used(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 2, is_charged=False, group=group)
            refused = self.lend(limit, "a", 3, cost=10, used=1, is_charged=False, group=group)
            assert (refused.outcome.allowed, refused.amount, refused.lasts_ns) == (False, 0, 0)
            assert (refused.outcome.remaining, refused.holders) == (9, 0), limit
            assert self.left(limit, group) == 9, limit

    def test_wait_ns_is_when_all_that_was_asked_for_fits(self) -> None:
        for limit, group in self.lending():
            self.run(Take((Check(group, "key", limit, 9),)))
            refused = self.lend(limit, "a", 3, cost=2, group=group)
            assert not refused.outcome.allowed, limit
            wait_ns = refused.wait_ns
            assert wait_ns is not None, limit
            assert wait_ns >= (refused.outcome.retry_after_ns or 0), limit
            self.clock.advance_ns(wait_ns - self.tick_ns)
            early = self.run(Take((Check(group, "key", limit, 5),), consume=False))
            assert not early[0].allowed, f"{limit}: it fits a tick earlier"
            self.clock.advance_ns(self.tick_ns)
            assert self.lend(limit, "a", 3, cost=2, group=group).amount == 3, limit
            assert self.lend(limit, "b", 9, cost=2, group=group).wait_ns is None, limit

    def test_nothing_lasts_past_the_window_or_the_refill(self) -> None:
        self.start_of(seconds(10))
        self.clock.advance_ns(seconds(7))
        fixed = FixedWindow(10, 10)
        lent = self.lend(fixed, "a", 5, ttl_ns=seconds(60), group=self.new_name())
        assert lent.lasts_ns == seconds(3)
        bucket = TokenBucket(10, 1)
        lent = self.lend(bucket, "a", 5, cost=1, ttl_ns=seconds(60), group=self.new_name())
        assert lent.lasts_ns == seconds(10)
        log = SlidingWindowLog(10, 10)
        lent = self.lend(log, "a", 5, cost=1, ttl_ns=seconds(60), group=self.new_name())
        assert lent.lasts_ns == seconds(10)

    def test_nothing_is_given_back_into_another_window(self) -> None:
        fixed, group = FixedWindow(10, 10), self.new_name()
        self.start_of(seconds(10))
        self.lend(fixed, "a", 5, ttl_ns=seconds(60), group=group)
        self.clock.advance_ns(seconds(10))
        self.run(Take((Check(group, "key", fixed, 10),)))
        self.clock.advance_ns(-seconds(5))
        self.lend(fixed, "a", 0, unused=5, group=group)
        assert self.left(fixed, group) == 0
        self.clock.advance_ns(seconds(5))
        assert self.left(fixed, group) == 0

    def test_it_is_given_back_where_it_was_charged(self) -> None:
        log, group = SlidingWindowLog(10, 10), self.new_name()
        self.lend(log, "a", 5, ttl_ns=seconds(60), group=group)
        self.clock.advance_ns(seconds(5))
        self.run(Take((Check(group, "key", log, 3),)))
        self.lend(log, "a", 0, unused=4, group=group)
        assert self.left(log, group) == 6
        self.clock.advance_ns(seconds(5))
        assert self.left(log, group) == 7, "what others used was given back"
        self.clock.advance_ns(seconds(5))
        assert self.left(log, group) == 10

    def test_what_is_reserved_is_not_lent(self) -> None:
        for limit, group in self.lending():
            self.run(Hold((Check(group, "key", limit, 4),), "r", seconds(60)))
            assert self.lend(limit, "a", 10, cost=1, group=group).amount == 5, limit
            assert not self.lend(limit, "b", 1, cost=1, group=group).outcome.allowed, limit

    def test_a_clock_that_steps_back_opens_no_loan_again(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 5, group=group)
            self.clock.advance_ns(SECOND)
            assert self.lend(limit, "b", 0, group=group).holders == 0, limit
            self.clock.advance_ns(-SECOND)
            before = self.left(limit, group)
            again = self.lend(limit, "a", 0, unused=5, group=group)
            assert again.holders == 0, limit
            assert self.left(limit, group) == before, limit

    def test_reset_forgets_loans_and_does_not_charge_again_what_was_used_elsewhere(self) -> None:
        for limit, group in self.lending():
            check = Check(group, "key", limit, 3)
            self.lend(limit, "a", 5, used=2, group=group)
            self.run(Absorb((check,), "eu", 1, seconds(60)))
            self.run(Reset((check,)))
            assert self.left(limit, group) == 10, limit
            assert self.lend(limit, "a", 1, used=2, unused=5, group=group).holders == 1, limit
            assert self.left(limit, group) == 7, limit
            self.run(Absorb((check,), "eu", 1, seconds(60)))
            assert self.left(limit, group) == 7, limit
            more = Check(group, "key", limit, 5)
            self.run(Absorb((more,), "eu", 1, seconds(60)))
            assert self.left(limit, group) == 5, limit

    def test_holders_may_have_any_name(self) -> None:
        limit, group = FixedWindow(10, 10), self.new_name()
        for n, holder in enumerate(("", "a,b", "ä|\x00", "h", "\ud800", "x" * 1000), 1):
            assert self.lend(limit, holder, 1, group=group).holders == n
            assert self.lend(limit, holder, 1, unused=1, group=group).lent == n

    def test_slots_are_not_lent(self) -> None:
        check = Check(self.new_name(), "key", Concurrency(3, 10))
        operations: tuple[Operation[Any], ...] = (
            Lend(check, "a", 1, SECOND),
            Absorb((check,), "eu", 1, SECOND),
        )
        for operation in operations:
            try:
                self.run(operation)
            except UsageError:
                continue
            raise AssertionError(f"{operation} was carried out")
