"""What is lent out of a counter: how much, for how long, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Outcome
from headgate.errors import UsageError
from headgate.limits import Concurrency, FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.stores import Charge, Check, Hold, Operation, Refund, Reset, Take
from headgate.stores.operations import GrantLease, LeaseGrant, MergeUsage
from headgate.testing.lease_store import LeaseGrantingStore
from headgate.testing.store_contract.subject import ODD, TENS, StoreUnderTest, needs, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.testing.clock import ManualClock


SECOND = seconds(1)


@needs("grants_leases")
class LendingContract(StoreUnderTest):
    """`GrantLease`, for stores that lend."""

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
        reported: int = 0,
        cap: int | None = None,
        is_charged: bool = True,
    ) -> LeaseGrant:
        """Have the store lend; a check of cost 0 unless another is given."""
        check = Check(group, "key", limit, cost)
        return self.run(
            GrantLease(
                check, holder, most, ttl_ns, unused, used, reported, cap, is_charged=is_charged
            )
        )

    def lending(self) -> list[tuple[Limit, str]]:
        """A limit of each algorithm, and a group of its own."""
        return [(limit, self.new_name()) for limit in TENS]

    def test_a_loan_comes_on_top_of_the_check(self) -> None:
        for limit, group in self.lending():
            lent = self.lend(limit, "a", 4, cost=3, group=group)
            assert (lent.outcome.allowed, lent.outcome.remaining) == (True, 7), limit
            assert (lent.amount, lent.holders, lent.leased) == (4, 1, 4), limit
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
            assert (ended.amount, ended.holders, ended.leased) == (0, 0, 0), limit
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
            assert self.lend(limit, "b", 0, group=group).leased == 6, limit
            self.clock.advance_ns(self.tick_ns)
            before = self.left(limit, group)
            ended = self.lend(limit, "a", 0, unused=5, group=group)
            assert (ended.holders, ended.leased) == (0, 0), limit
            assert self.left(limit, group) == before, f"{limit}: a lapsed loan was given back"

    def test_a_licence_is_not_charged_before_it_is_used(self) -> None:
        for limit, group in self.lending():
            lent = self.lend(limit, "a", 6, cap=7, is_charged=False, group=group)
            assert (lent.amount, lent.leased, self.left(limit, group)) == (6, 6, 10), limit
            assert self.lend(limit, "b", 6, cap=7, is_charged=False, group=group).amount == 1, limit
            self.lend(limit, "a", 0, unused=2, used=4, group=group)
            assert self.left(limit, group) == 6, limit

    def test_what_a_licence_told_in_advance_goes_on_counting_as_lent(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 4, cap=5, is_charged=False, group=group)
            self.run(Take((Check(group, "key", limit, 10),)))
            kept = self.lend(limit, "a", 4, unused=3, used=3, cap=5, is_charged=False, group=group)
            assert (kept.amount, kept.leased) == (3, 3), f"{limit}: nothing fits, three were told"
            less = self.lend(limit, "a", 2, unused=3, used=3, cap=5, is_charged=False, group=group)
            assert less.amount == 2, f"{limit}: more than was asked for"
            lease = self.lend(limit, "b", 2, unused=2, cap=5, group=group)
            assert lease.amount == 0, f"{limit}: it had no licence"

    def test_what_is_told_twice_is_charged_once(self) -> None:
        for limit, group in self.lending():
            for used, known, left in ((2, 0, 8), (2, 0, 8), (2, 2, 8), (5, 0, 5), (3, 0, 5)):
                self.lend(limit, "a", 2, used=used, reported=known, is_charged=False, group=group)
                assert self.left(limit, group) == left, f"{limit}: {used} used, {known} known"
            self.lend(limit, "b", 2, used=7, reported=6, is_charged=False, group=group)
            assert self.left(limit, group) == 4, f"{limit}: what was known to be charged"

    def test_a_licence_that_lapsed_is_charged_in_full(self) -> None:
        for limit, group in self.lending():
            self.lend(limit, "a", 3, used=0, is_charged=False, group=group)
            self.clock.advance_ns(SECOND)
            seen = self.lend(limit, "b", 0, group=group)
            assert (seen.outcome.remaining, seen.holders, seen.leased) == (7, 0, 0), limit
            self.lend(limit, "a", 0, used=2, group=group)
            assert self.left(limit, group) == 7, f"{limit}: charged twice"
            self.lend(limit, "a", 0, used=4, reported=2, group=group)
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
            self.run(MergeUsage((check,), "eu", 1, seconds(60)))
            self.run(Reset((check,)))
            assert self.left(limit, group) == 10, limit
            assert self.lend(limit, "a", 1, used=2, unused=5, group=group).holders == 1, limit
            assert self.left(limit, group) == 7, limit
            self.run(MergeUsage((check,), "eu", 1, seconds(60)))
            assert self.left(limit, group) == 7, limit
            more = Check(group, "key", limit, 5)
            self.run(MergeUsage((more,), "eu", 1, seconds(60)))
            assert self.left(limit, group) == 5, limit

    def test_holders_may_have_any_name(self) -> None:
        limit, group = FixedWindow(10, 10), self.new_name()
        for n, holder in enumerate(("", "a,b", "ä|\x00", "h", "\ud800", "x" * 1000), 1):
            assert self.lend(limit, holder, 1, group=group).holders == n
            assert self.lend(limit, holder, 1, unused=1, group=group).leased == n

    def test_slots_are_not_lent(self) -> None:
        check = Check(self.new_name(), "key", Concurrency(3, 10))
        operations: tuple[Operation[Any], ...] = (
            GrantLease(check, "a", 1, SECOND),
            MergeUsage((check,), "eu", 1, SECOND),
        )
        for operation in operations:
            try:
                self.run(operation)
            except UsageError:
                continue
            raise AssertionError(f"{operation} was carried out")


# Random histories of leases and merged usage: a store has to say what the memory store says.
#
# Holders take loans, use them, lose replies, tell what they used, late or twice, and vanish. The
# counters are taken from, charged and reset by others meanwhile. (The clock only goes on: one that
# is set back makes stores stricter, each in its way.)


KEYS = ("a", "b")
HOLDERS = ("one", "two", "three")


class Holder:
    """Who borrows: what it has, what it used, and what of that it knows to be charged."""

    def __init__(self) -> None:
        self.amount = 0
        self.used = 0
        self.reported = 0

    def use(self, random: Random, *, is_charged: bool) -> None:
        used = random.randint(0, self.amount)
        self.amount -= used
        if not is_charged:
            self.used += used

    def heard(self, lent: LeaseGrant) -> None:
        self.reported = self.used
        self.amount = lent.amount


class LoanHistory:
    """One random history, lived through by a store and by a memory store."""

    def __init__(
        self,
        run: Callable[[Operation[Any]], Any],
        limits: tuple[Limit, ...],
        group: str,
        clock: ManualClock,
        tick_ns: int,
        seed: int,
    ) -> None:
        self.run = run
        self.limits = limits
        self.group = group
        self.clock = clock
        self.tick_ns = tick_ns
        self.reference = LeaseGrantingStore(clock=clock)
        self.random = Random(seed)  # noqa: S311 (a history that can be repeated, no secret)
        self.holders = {(holder, key): Holder() for holder in HOLDERS for key in KEYS}
        self.is_charged = self.random.random() < 0.5
        self.reported = [f"seed {seed}, {limits}"]

    def live(self, steps: int) -> None:
        verbs = (self.lend, self.lend, self.lend, self.take, self.charge, self.refund, self.hold)
        rare = (self.absorb, self.absorb, self.reset, self.switch)
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            self.random.choice(rare if self.random.random() < 0.25 else verbs)()

    def advance(self) -> None:
        period = self.limits[0].period_ns
        most = self.random.choice((1, 1_000, period // 10, period // 10, period, 3 * period))
        ticks = self.random.randint(0, max(1, most // self.tick_ns))
        self.reported.append(f"advance_ns({ticks * self.tick_ns})")
        self.clock.advance_ns(ticks * self.tick_ns)

    def lend(self) -> None:
        name, key = self.random.choice(list(self.holders))
        holder = self.holders[name, key]
        holder.use(self.random, is_charged=self.is_charged)
        quota = self.limits[0].quota
        operation = GrantLease(
            self.check(key, self.random.choice((0, 1, 1, self.amount()))),
            name,
            self.random.choice((0, 1, quota // 3, quota + 1)),
            self.ttl_ns(),
            unused=self.random.choice((holder.amount, holder.amount, 0, holder.amount + 3)),
            used=holder.used,
            reported=self.random.choice((holder.reported, 0)),
            cap=self.random.choice((None, quota // 2, 1)),
            is_charged=self.is_charged if self.random.random() < 0.9 else not self.is_charged,
        )
        holder.amount = 0
        lent = self.compare(operation)
        if self.random.random() < 0.8:
            holder.heard(lent)
        else:
            self.reported.append("  (nobody hears it)")

    def take(self) -> None:
        # A store may convert the counter of a changed limit when it is peeked at, or later.
        consume = self.random.random() < 0.7 or len(self.limits) > 1
        self.compare(Take((self.check(),), consume=consume))

    def charge(self) -> None:
        self.compare(Charge((self.check(),)))

    def refund(self) -> None:
        self.compare(Refund((self.check(),)))

    def hold(self) -> None:
        if self.random.random() < 0.3:
            self.compare(Hold((self.check(),), str(len(self.reported)), self.ttl_ns()))

    def absorb(self) -> None:
        window = self.clock() // self.limits[0].period_ns - self.random.choice((0, 0, 0, 1, 1, 2))
        limit = self.random.choice(self.limits)  # elsewhere it may have been changed already
        checks = tuple(
            replace(self.check(key), limit=limit) for key in KEYS[: self.random.randint(1, 2)]
        )
        self.compare(MergeUsage(checks, self.random.choice(HOLDERS), window, 5 * self.ttl_ns()))

    def reset(self) -> None:
        if self.random.random() < 0.3:
            self.compare(Reset((self.check(),)))

    def switch(self) -> None:
        """The limit is changed, for everybody."""
        if self.random.random() < 0.3:
            self.limits = (*self.limits[1:], self.limits[0])

    def check(self, key: str | None = None, cost: int | None = None) -> Check:
        key = self.random.choice(KEYS) if key is None else key
        return Check(self.group, key, self.limits[0], self.amount() if cost is None else cost)

    def amount(self) -> int:
        return self.random.choice((1, 1, 2, self.random.randint(0, self.limits[0].quota + 1)))

    def ttl_ns(self) -> int:
        most = self.limits[0].period_ns * self.random.choice((1, 1, 6)) // 2_000
        return self.random.randint(1, 1 + most) * 1_000

    def compare(self, operation: Operation[Any]) -> Any:
        self.reported.append(f"{operation}")
        said, wanted = self.run(operation), self.rounded(self.reference.run(operation))
        story = "\n".join(self.reported)
        assert said == wanted, f"{story}\nsaid   {said}\nwanted {wanted}"
        return said

    def rounded(self, reply: Any) -> Any:
        """*reply* as a store can tell it whose clock has ticks."""
        if isinstance(reply, LeaseGrant):
            return replace(
                reply,
                outcome=self.rounded(reply.outcome),
                lasts_ns=self.up(reply.lasts_ns),
                wait_ns=None if reply.wait_ns is None else self.up(reply.wait_ns),
            )
        if isinstance(reply, Outcome):
            allowed, remaining, wait_ns, reset_ns, *_ = reply
            wait_ns = None if wait_ns is None else self.up(wait_ns)
            return Outcome(allowed, remaining, wait_ns, self.up(reset_ns))
        return tuple(map(self.rounded, reply)) if isinstance(reply, tuple) else reply

    def up(self, nanoseconds: int) -> int:
        return -(-nanoseconds // self.tick_ns) * self.tick_ns


@needs("grants_leases")
class LoanHistoryContract(StoreUnderTest):
    """For stores that lend: whatever happens, they say what the memory store says."""

    def test_a_random_history_of_loans_is_that_of_the_memory_store(self) -> None:
        for seed, limit in enumerate((*TENS, *TENS, *ODD)):
            self.story((limit,), seed).live(70)

    def test_loans_outlive_a_change_of_the_limit_as_in_the_memory_store(self) -> None:
        for seed, limit in enumerate(TENS):
            for other in (TENS[0], FixedWindow(7, 10), SlidingWindowLog(13, 10)):
                self.story((limit, other), seed).live(50)

    def story(self, limits: tuple[Limit, ...], seed: int) -> LoanHistory:
        return LoanHistory(self.run, limits, self.new_name(), self.clock, self.tick_ns, seed)
