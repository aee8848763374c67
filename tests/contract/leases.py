"""Leases: the units granted, their lifetime, and how they are returned or charged."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headgate.algorithms import Outcome
from headgate.errors import UsageError
from headgate.limits import Concurrency, FixedWindow, Limit, SlidingWindowLog, TokenBucket
from headgate.stores.operations import (
    Charge,
    Check,
    GrantLease,
    Hold,
    LeaseGrant,
    MergeUsage,
    Operation,
    Refund,
    Reset,
    Take,
)
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import ODD, TENS, seconds
from tests.contract.layer_store import LayerStoreUnderTest
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.testing.clock import ManualClock


SECOND = seconds(1)


@needs("grants_leases")
class LeaseContract(LayerStoreUnderTest):
    """`GrantLease`, for stores that grant leases."""

    def grant(
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
        """Run `GrantLease`, with a check of cost 0 by default."""
        check = Check(group, "key", limit, cost)
        return self.run(
            GrantLease(
                check, holder, most, ttl_ns, unused, used, reported, cap, is_charged=is_charged
            )
        )

    def groups(self) -> list[tuple[Limit, str]]:
        """Return a limit of each algorithm, each with a new group."""
        return [(limit, self.new_name()) for limit in TENS]

    def test_a_lease_is_granted_beyond_the_check(self) -> None:
        for limit, group in self.groups():
            lease = self.grant(limit, "a", 4, cost=3, group=group)
            assert (lease.outcome.allowed, lease.outcome.remaining) == (True, 7), limit
            assert (lease.amount, lease.holders, lease.leased) == (4, 1, 4), limit
            assert self.left(limit, group) == 3, limit
            again = self.run(Take((Check(f"{group}'", "key", limit, 3),)))
            assert lease.outcome == again[0], limit

    def test_no_more_is_leased_than_fits(self) -> None:
        for limit, group in self.groups():
            assert self.grant(limit, "a", 100, cost=3, group=group).amount == 7, limit
            more = self.grant(limit, "b", 100, group=group)
            assert (more.outcome.allowed, more.amount, more.holders) == (True, 0, 1), limit

    def test_no_more_is_leased_than_the_cap_leaves(self) -> None:
        for limit, group in self.groups():
            assert self.grant(limit, "a", 3, cap=5, group=group).amount == 3, limit
            assert self.grant(limit, "b", 3, cap=5, group=group).amount == 2, limit
            third = self.grant(limit, "c", 3, cost=1, cap=5, group=group)
            assert (third.outcome.allowed, third.amount, third.holders) == (True, 0, 2), limit
            assert self.grant(limit, "a", 3, cap=5, unused=3, group=group).amount == 3, limit

    def test_unused_units_are_returned_and_no_more(self) -> None:
        for limit, group in self.groups():
            self.grant(limit, "a", 6, group=group)
            ended = self.grant(limit, "a", 0, unused=4, group=group)
            assert (ended.amount, ended.holders, ended.leased) == (0, 0, 0), limit
            assert self.left(limit, group) == 8, limit
            self.grant(limit, "a", 0, unused=4, group=group)
            assert self.left(limit, group) == 8, f"{limit}: returned twice"
            self.grant(limit, "a", 3, group=group)
            self.grant(limit, "a", 0, unused=100, group=group)
            assert self.left(limit, group) == 8, f"{limit}: more returned than leased"

    def test_an_expired_lease_stays_charged(self) -> None:
        for limit, group in self.groups():
            lease = self.grant(limit, "a", 6, group=group)
            assert lease.lasts_ns == SECOND, limit
            self.clock.advance_ns(SECOND - self.tick_ns)
            assert self.grant(limit, "b", 0, group=group).leased == 6, limit
            self.clock.advance_ns(self.tick_ns)
            before = self.left(limit, group)
            ended = self.grant(limit, "a", 0, unused=5, group=group)
            assert (ended.holders, ended.leased) == (0, 0), limit
            assert self.left(limit, group) == before, f"{limit}: an expired lease was returned"

    def test_a_postpaid_lease_is_not_charged_before_it_is_used(self) -> None:
        for limit, group in self.groups():
            lease = self.grant(limit, "a", 6, cap=7, is_charged=False, group=group)
            assert (lease.amount, lease.leased, self.left(limit, group)) == (6, 6, 10), limit
            assert self.grant(limit, "b", 6, cap=7, is_charged=False, group=group).amount == 1, (
                limit
            )
            self.grant(limit, "a", 0, unused=2, used=4, group=group)
            assert self.left(limit, group) == 6, limit

    def test_units_that_a_postpaid_lease_keeps_still_count_as_leased(self) -> None:
        for limit, group in self.groups():
            self.grant(limit, "a", 4, cap=5, is_charged=False, group=group)
            self.run(Take((Check(group, "key", limit, 10),)))
            kept = self.grant(limit, "a", 4, unused=3, used=3, cap=5, is_charged=False, group=group)
            assert (kept.amount, kept.leased) == (3, 3), (
                f"{limit}: nothing fits, three were reported"
            )
            less = self.grant(limit, "a", 2, unused=3, used=3, cap=5, is_charged=False, group=group)
            assert less.amount == 2, f"{limit}: more than was asked for"
            lease = self.grant(limit, "b", 2, unused=2, cap=5, group=group)
            assert lease.amount == 0, f"{limit}: it had no postpaid lease"

    def test_usage_that_is_reported_twice_is_charged_once(self) -> None:
        for limit, group in self.groups():
            for used, known, left in ((2, 0, 8), (2, 0, 8), (2, 2, 8), (5, 0, 5), (3, 0, 5)):
                self.grant(limit, "a", 2, used=used, reported=known, is_charged=False, group=group)
                assert self.left(limit, group) == left, f"{limit}: {used} used, {known} known"
            self.grant(limit, "b", 2, used=7, reported=6, is_charged=False, group=group)
            assert self.left(limit, group) == 4, f"{limit}: what was known to be charged"

    def test_an_expired_postpaid_lease_is_charged_in_full(self) -> None:
        for limit, group in self.groups():
            self.grant(limit, "a", 3, used=0, is_charged=False, group=group)
            self.clock.advance_ns(SECOND)
            seen = self.grant(limit, "b", 0, group=group)
            assert (seen.outcome.remaining, seen.holders, seen.leased) == (7, 0, 0), limit
            self.grant(limit, "a", 0, used=2, group=group)
            assert self.left(limit, group) == 7, f"{limit}: charged twice"
            self.grant(limit, "a", 0, used=4, reported=2, group=group)
            assert self.left(limit, group) == 5, f"{limit}: what was used since is not paid"

    def test_a_postpaid_lease_that_expired_long_ago_is_charged_while_it_matters(self) -> None:
        slow, group = TokenBucket(10, 0.01), self.new_name()
        self.grant(slow, "a", 5, is_charged=False, group=group)
        self.clock.advance_ns(seconds(300))
        assert self.grant(slow, "b", 0, group=group).outcome.remaining == 5

    def test_usage_beyond_an_expired_postpaid_lease_is_charged(self) -> None:
        for limit, group in self.groups():
            self.grant(limit, "a", 3, is_charged=False, group=group)
            self.clock.advance_ns(SECOND)
            self.grant(limit, "a", 0, used=5, group=group)
            assert self.left(limit, group) == 5, limit

    def test_a_denied_check_still_ends_the_lease_and_charges_its_usage(self) -> None:
        for limit, group in self.groups():
            self.grant(limit, "a", 2, is_charged=False, group=group)
            denied = self.grant(limit, "a", 3, cost=10, used=1, is_charged=False, group=group)
            assert (denied.outcome.allowed, denied.amount, denied.lasts_ns) == (False, 0, 0)
            assert (denied.outcome.remaining, denied.holders) == (9, 0), limit
            assert self.left(limit, group) == 9, limit

    def test_wait_ns_is_when_the_check_and_the_lease_fit(self) -> None:
        for limit, group in self.groups():
            self.run(Take((Check(group, "key", limit, 9),)))
            denied = self.grant(limit, "a", 3, cost=2, group=group)
            assert not denied.outcome.allowed, limit
            wait_ns = denied.wait_ns
            assert wait_ns is not None, limit
            assert wait_ns >= (denied.outcome.retry_after_ns or 0), limit
            self.clock.advance_ns(wait_ns - self.tick_ns)
            early = self.run(Take((Check(group, "key", limit, 5),), consume=False))
            assert not early[0].allowed, f"{limit}: it fits a tick earlier"
            self.clock.advance_ns(self.tick_ns)
            assert self.grant(limit, "a", 3, cost=2, group=group).amount == 3, limit
            assert self.grant(limit, "b", 9, cost=2, group=group).wait_ns is None, limit

    def test_no_lease_outlasts_the_window_or_the_refill(self) -> None:
        self.start_of(seconds(10))
        self.clock.advance_ns(seconds(7))
        fixed = FixedWindow(10, 10)
        lease = self.grant(fixed, "a", 5, ttl_ns=seconds(60), group=self.new_name())
        assert lease.lasts_ns == seconds(3)
        bucket = TokenBucket(10, 1)
        lease = self.grant(bucket, "a", 5, cost=1, ttl_ns=seconds(60), group=self.new_name())
        assert lease.lasts_ns == seconds(10)
        log = SlidingWindowLog(10, 10)
        lease = self.grant(log, "a", 5, cost=1, ttl_ns=seconds(60), group=self.new_name())
        assert lease.lasts_ns == seconds(10)

    def test_no_units_are_returned_into_another_window(self) -> None:
        fixed, group = FixedWindow(10, 10), self.new_name()
        self.start_of(seconds(10))
        self.grant(fixed, "a", 5, ttl_ns=seconds(60), group=group)
        self.clock.advance_ns(seconds(10))
        self.run(Take((Check(group, "key", fixed, 10),)))
        self.clock.advance_ns(-seconds(5))
        self.grant(fixed, "a", 0, unused=5, group=group)
        assert self.left(fixed, group) == 0
        self.clock.advance_ns(seconds(5))
        assert self.left(fixed, group) == 0

    def test_units_are_returned_where_they_were_charged(self) -> None:
        log, group = SlidingWindowLog(10, 10), self.new_name()
        self.grant(log, "a", 5, ttl_ns=seconds(60), group=group)
        self.clock.advance_ns(seconds(5))
        self.run(Take((Check(group, "key", log, 3),)))
        self.grant(log, "a", 0, unused=4, group=group)
        assert self.left(log, group) == 6
        self.clock.advance_ns(seconds(5))
        assert self.left(log, group) == 7, "usage of others was returned"
        self.clock.advance_ns(seconds(5))
        assert self.left(log, group) == 10

    def test_reserved_units_are_not_leased(self) -> None:
        for limit, group in self.groups():
            self.run(Hold((Check(group, "key", limit, 4),), "r", seconds(60)))
            assert self.grant(limit, "a", 10, cost=1, group=group).amount == 5, limit
            assert not self.grant(limit, "b", 1, cost=1, group=group).outcome.allowed, limit

    def test_units_that_were_charged_when_their_hold_expired_are_not_leased(self) -> None:
        for limit, group in self.groups():
            self.run(Hold((Check(group, "key", limit, 4),), "r", seconds(1), charges_expired=True))
            self.clock.advance_ns(seconds(1))
            assert self.grant(limit, "a", 10, cost=1, group=group).amount == 5, limit
            assert self.left(limit, group) == 0, limit

    def test_a_clock_that_steps_back_reopens_no_lease(self) -> None:
        for limit, group in self.groups():
            self.grant(limit, "a", 5, group=group)
            self.clock.advance_ns(SECOND)
            assert self.grant(limit, "b", 0, group=group).holders == 0, limit
            self.clock.advance_ns(-SECOND)
            before = self.left(limit, group)
            again = self.grant(limit, "a", 0, unused=5, group=group)
            assert again.holders == 0, limit
            assert self.left(limit, group) == before, limit

    def test_reset_forgets_leases_and_charges_merged_usage_once(self) -> None:
        for limit, group in self.groups():
            check = Check(group, "key", limit, 3)
            self.grant(limit, "a", 5, used=2, group=group)
            self.run(MergeUsage((check,), "eu", 1, seconds(60)))
            self.run(Reset((check,)))
            assert self.left(limit, group) == 10, limit
            assert self.grant(limit, "a", 1, used=2, unused=5, group=group).holders == 1, limit
            assert self.left(limit, group) == 7, limit
            self.run(MergeUsage((check,), "eu", 1, seconds(60)))
            assert self.left(limit, group) == 7, limit
            more = Check(group, "key", limit, 5)
            self.run(MergeUsage((more,), "eu", 1, seconds(60)))
            assert self.left(limit, group) == 5, limit

    def test_merged_usage_makes_no_larger_debt_than_it_may(self) -> None:
        for limit, group in self.groups():
            check = Check(group, "key", limit)

            def debt_after(
                origin: str, cost: int, max_debt: Fraction | None, check: Check = check
            ) -> int:
                merge = MergeUsage((check.with_cost(cost),), origin, 1, seconds(60), max_debt)
                self.run(merge)
                self.run(Refund((check.with_cost(1),)))  # else what is left says nothing of debt
                debt = 1
                while not self.left(check.limit, check.group):
                    self.run(Refund((check.with_cost(1),)))
                    debt += 1
                self.run(Charge((check.with_cost(debt),)))
                return debt - 1

            self.run(Take((check.with_cost(8),)))
            half = Fraction(1, 2)
            assert debt_after("eu", 40, half) == 5, limit
            assert debt_after("eu", 45, half) == 5, f"{limit}: what was forgiven stays so"
            assert debt_after("us", 9, half) == 5, f"{limit}: all origins share one debt"
            assert debt_after("us", 11, Fraction(1)) == 7, limit
            assert debt_after("us", 15, Fraction(0)) == 7, limit
            self.run(Charge((check.with_cost(20),)))
            assert debt_after("us", 16, Fraction(1)) == 27, f"{limit}: charges are in full"
            assert debt_after("us", 20, None) == 31, limit

    def test_holders_may_have_any_name(self) -> None:
        limit, group = FixedWindow(10, 10), self.new_name()
        for n, holder in enumerate(("", "a,b", "ä|\x00", "h", "\ud800", "x" * 1000), 1):
            assert self.grant(limit, holder, 1, group=group).holders == n
            assert self.grant(limit, holder, 1, unused=1, group=group).leased == n

    def test_slots_are_not_leased(self) -> None:
        check = Check(self.new_name(), "key", Concurrency(3, 10))
        operations: tuple[Operation[Any], ...] = (
            GrantLease(check, "a", 1, SECOND),
            MergeUsage((check,), "eu", 1, SECOND),
        )
        for operation in operations:
            with pytest.raises(UsageError):
                self.run(operation)


# Random histories of leases and merged usage: a store must reply as the memory store does.
#
# Holders take leases, use them, lose replies, report usage late or twice, and vanish. Meanwhile
# others take from the counters, charge and reset them. (The clock never steps back here: after a
# step back each store is stricter in its own way.)


KEYS = ("a", "b")
HOLDERS = ("one", "two", "three")


class Holder:
    """A holder of leases: its units, its usage, and the usage that it knows to be charged."""

    def __init__(self) -> None:
        self.amount = 0
        self.used = 0
        self.reported = 0

    def use(self, random: Random, *, is_charged: bool) -> None:
        used = random.randint(0, self.amount)
        self.amount -= used
        if not is_charged:
            self.used += used

    def receive(self, lease: LeaseGrant) -> None:
        self.reported = self.used
        self.amount = lease.amount


class LeaseHistory:
    """A random history, played on a store and on a memory store."""

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
        self.random = Random(seed)
        self.holders = {(holder, key): Holder() for holder in HOLDERS for key in KEYS}
        self.is_charged = self.random.random() < 0.5
        self.steps = [f"seed {seed}, {limits}"]

    def play(self, steps: int) -> None:
        verbs = (self.grant, self.grant, self.grant, self.take, self.charge, self.refund, self.hold)
        rare = (self.merge, self.merge, self.reset, self.switch)
        for _ in range(steps):
            if self.random.random() < 0.5:
                self.advance()
            self.random.choice(rare if self.random.random() < 0.25 else verbs)()

    def advance(self) -> None:
        period = self.limits[0].period_ns
        most = self.random.choice((1, 1_000, period // 10, period // 10, period, 3 * period))
        ticks = self.random.randint(0, max(1, most // self.tick_ns))
        self.steps.append(f"advance_ns({ticks * self.tick_ns})")
        self.clock.advance_ns(ticks * self.tick_ns)

    def grant(self) -> None:
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
        lease = self.compare(operation)
        if self.random.random() < 0.8:
            holder.receive(lease)
        else:
            self.steps.append("  (the reply is lost)")

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
            charges = self.random.random() < 0.5
            self.compare(Hold((self.check(),), str(len(self.steps)), self.ttl_ns(), charges))

    def merge(self) -> None:
        window = self.clock() // self.limits[0].period_ns - self.random.choice((0, 0, 0, 1, 1, 2))
        limit = self.random.choice(self.limits)  # another region may have changed it already
        checks = tuple(
            replace(self.check(key), limit=limit) for key in KEYS[: self.random.randint(1, 2)]
        )
        max_debt = self.random.choice((None, Fraction(0), Fraction(1, 3), Fraction(1)))
        holder = self.random.choice(HOLDERS)
        self.compare(MergeUsage(checks, holder, window, 5 * self.ttl_ns(), max_debt))

    def reset(self) -> None:
        if self.random.random() < 0.3:
            self.compare(Reset((self.check(),)))

    def switch(self) -> None:
        """Change the limit for all holders."""
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
        self.steps.append(f"{operation}")
        reply, expected = self.run(operation), self.rounded(self.reference.run(operation))
        story = "\n".join(self.steps)
        assert reply == expected, f"{story}\ngot      {reply}\nexpected {expected}"
        return reply

    def rounded(self, reply: Any) -> Any:
        """Return *reply* rounded to the ticks of the store."""
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
class LeaseHistoryContract(LayerStoreUnderTest):
    """Stores that grant leases always reply as the memory store does."""

    def test_a_random_history_of_leases_is_that_of_the_memory_store(self) -> None:
        for seed, limit in enumerate((*TENS, *TENS, *ODD)):
            self.story((limit,), seed).play(70)

    def test_leases_outlive_a_change_of_the_limit_as_in_the_memory_store(self) -> None:
        for seed, limit in enumerate(TENS):
            for other in (TENS[0], FixedWindow(7, 10), SlidingWindowLog(13, 10)):
                self.story((limit, other), seed).play(50)

    def story(self, limits: tuple[Limit, ...], seed: int) -> LeaseHistory:
        return LeaseHistory(self.run, limits, self.new_name(), self.clock, self.tick_ns, seed)
