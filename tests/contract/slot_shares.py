"""Slots that are guaranteed to partitions, and lent to others while they are idle.

As in `queues`: what the algorithm promises, for all our stores.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final

from headgate.algorithms import ConcurrencyAlgorithm
from headgate.algorithms.concurrency import CLAIM_NS, GRAIN_NS, KEEP_NS
from headgate.limits import Concurrency
from headgate.stores.operations import Check, ReleaseSlot, RenewSlot, Reset, Take
from headgate.testing.store_contract.subject import StoreUnderTest, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.algorithms import Outcome
    from headgate.algorithms.concurrency import Slots
    from headgate.decision import Decision
    from headgate.limiter import RateLimiter
    from headgate.limiter.holds import Slot


KEPT: Final = Concurrency(10, 60, (("gold", 4), ("free", 2)), lends=False)
"""Ten slots, of which six are guaranteed and stay free for their partitions."""
LENT: Final = Concurrency(10, 60, (("gold", 4), ("free", 2)))
"""The same, with guaranteed slots that are lent while they are idle."""


def taken(limiter: RateLimiter, part: str | None, count: int) -> list[Slot]:
    """Take as many slots as *part* can get, at most *count*."""
    slots = [limiter.slot("key", part) for _ in range(count)]
    return [slot for slot in slots if slot.take()]


def take(limiter: RateLimiter, part: str | None) -> Decision:
    return limiter.slot("key", part).take()


class SharesContract(StoreUnderTest):
    """At most the limit in all; a share is available at once, or as slots are released."""

    def test_guaranteed_slots_are_for_others_only_if_the_limit_lends_them(self) -> None:
        for limit, most in ((KEPT, 4), (LENT, 10)):
            limiter = self.limiter(limit)
            assert limiter.peek("key").remaining == most, limit
            assert len(taken(limiter, None, 11)) == most, limit
            assert limiter.peek("key").remaining == 0, limit

    def test_guaranteed_slots_that_are_not_lent_are_available_at_once(self) -> None:
        limiter = self.limiter(KEPT)
        assert len(taken(limiter, None, 11)) == 4
        assert [take(limiter, "gold").remaining for _ in range(4)] == [3, 2, 1, 0]
        assert not take(limiter, "gold")
        assert len(taken(limiter, "free", 11)) == 2

    def test_a_partition_may_exceed_its_share_with_slots_that_are_not_guaranteed(self) -> None:
        limiter = self.limiter(KEPT)
        assert (
            take(limiter, "gold").remaining == 7
        )  # its four, and the four that are not guaranteed, less one
        assert len(taken(limiter, "gold", 11)) == 7
        assert len(taken(limiter, None, 11)) == 0
        assert len(taken(limiter, "free", 11)) == 2

    def test_all_partitions_together_never_exceed_the_limit(self) -> None:
        for limit in (KEPT, LENT):
            for parts in ((None, "gold", "free"), ("gold", "free", None), ("free", None, "gold")):
                limiter = self.limiter(limit)
                counts = [len(taken(limiter, part, 11)) for part in parts]
                assert sum(counts) == 10, f"{limit}: {parts} got {counts}"

    def test_released_slots_go_to_the_partition_that_was_denied_its_share(self) -> None:
        limiter = self.limiter(LENT)
        borrowed = taken(limiter, None, 10)
        assert not take(limiter, "gold")
        assert not take(limiter, "gold")
        for slot in borrowed[:2]:
            assert slot.release()
        assert limiter.peek("key").remaining == 0, "what is claimed is not lent"
        assert not take(limiter, None)
        assert take(limiter, "free"), "below its share a part gets any slot that is free"
        assert take(limiter, "gold")
        assert borrowed[2].release()
        assert not take(limiter, None)
        assert take(limiter, "gold")
        assert borrowed[3].release()
        assert take(limiter, None), "no partition claims it"

    def test_a_partition_claims_no_more_than_it_lacks(self) -> None:
        limiter = self.limiter(LENT)
        borrowed = [*taken(limiter, "gold", 3), *taken(limiter, None, 7)]
        for _ in range(5):
            assert not take(limiter, "gold")
        for slot in borrowed[3:6]:
            slot.release()
        assert len(taken(limiter, None, 3)) == 2

    def test_a_claim_is_renewed_by_asking_again_and_then_forgotten(self) -> None:
        limiter = self.limiter(LENT)
        borrowed = taken(limiter, None, 10)
        assert not take(limiter, "gold")
        self.clock.advance_ns(CLAIM_NS - self.tick_ns)
        assert not take(limiter, "gold")
        self.clock.advance_ns(CLAIM_NS - self.tick_ns)
        assert borrowed[0].release()
        denial = take(limiter, None)
        assert not denial
        assert denial.retry_after_ns == self.tick_ns
        self.clock.advance_ns(self.tick_ns)
        assert take(limiter, None), "the claim has expired"

    def test_a_partition_beyond_its_share_claims_nothing(self) -> None:
        limiter = self.limiter(LENT)
        slots = [*taken(limiter, "gold", 4), *taken(limiter, None, 6)]
        assert not take(limiter, "gold")
        slots[-1].release()
        assert take(limiter, None)

    def test_a_peek_claims_nothing(self) -> None:
        name = self.new_name()
        check = Check(name, "key", Concurrency(1, 60, (("gold", 1),), "gold"))
        others = Check(name, "key", Concurrency(1, 60, (("gold", 1),)))
        assert self.run(Take((others,), lease="a"))[0].allowed
        assert not self.run(Take((check,), consume=False))[0].allowed
        self.run(ReleaseSlot((others,), "a"))
        assert self.run(Take((others,), lease="b"))[0].allowed

    def test_a_slot_denied_by_another_limit_claims_nothing(self) -> None:
        name = self.new_name()
        gold = Check(name, "key", Concurrency(2, 60, (("gold", 1),), "gold"))
        others = Check(name, "key", Concurrency(2, 60, (("gold", 1),)))
        full = Check(f"{name}-other", "key", Concurrency(1, 60))
        assert self.run(Take((full,), lease="x"))[0].allowed
        assert self.run(Take((others,), lease="a"))[0].allowed
        assert not self.run(Take((gold, full), lease="b"))[1].allowed
        assert self.run(Take((others,), lease="c"))[0].allowed

    def test_the_wait_of_a_store_is_exact_for_each_part(self) -> None:
        """The time until leases expire. (A limiter estimates when a slot is released.)"""
        for limit in (KEPT, LENT):
            for part in (None, "gold", "free"):
                take = self._taker(limit)
                for n, one in enumerate((None, "gold", "free", None, "gold") * 3):
                    take(one)
                    self.clock.advance_ns(n * self.tick_ns)
                while take(part).allowed:
                    pass
                wait_ns = take(part).retry_after_ns
                assert wait_ns is not None, f"{limit} for {part}"
                self.clock.advance_ns(wait_ns - self.tick_ns)
                assert not take(part).allowed, f"{limit} for {part}: one tick early"
                self.clock.advance_ns(self.tick_ns)
                assert take(part).allowed, f"{limit} for {part}: denied after the wait"

    def test_a_partition_that_can_never_get_a_slot_has_no_retry_after(self) -> None:
        limiter = self.limiter(Concurrency(2, 60, (("gold", 2),), lends=False))
        denial = take(limiter, None)
        assert (denial.allowed, denial.remaining, denial.retry_after_ns) == (False, 0, None)
        assert take(limiter, "gold").remaining == 1

    def test_the_slots_of_crashed_holders_are_free_when_their_leases_expire(self) -> None:
        for limit, limiter in self.limiters(KEPT, LENT):
            lost = taken(limiter, "gold", 4)
            taken(limiter, None, 10)
            self.clock.advance_ns(seconds(60))
            assert len(taken(limiter, "gold", 4)) == 4, limit
            assert not any(slot.renew() or slot.release() for slot in lost), limit
            assert take(limiter, "free").remaining == 5, limit

    def test_a_renewed_slot_stays_with_its_partition(self) -> None:
        limiter = self.limiter(KEPT)
        slots = taken(limiter, "gold", 4)
        self.clock.advance_ns(seconds(59))
        assert all(slot.renew() for slot in slots)
        self.clock.advance_ns(seconds(59))
        assert len(taken(limiter, None, 11)) == 4
        assert all(slot.release() for slot in slots)
        assert len(taken(limiter, "gold", 11)) == 4

    def test_leases_carry_over_when_the_shares_change(self) -> None:
        name = self.new_name()
        plain, shared = (
            self.limiter(Concurrency(4, 60), name),
            self.limiter(Concurrency(4, 60, (("gold", 2),), lends=False), name),
        )
        old = taken(plain, None, 2)
        assert len(taken(shared, None, 4)) == 0
        gold = taken(shared, "gold", 4)
        assert len(gold) == 2
        assert not plain.slot("key").take()
        other = self.limiter(Concurrency(5, 60, (("silver", 1),), lends=False), name)
        assert not take(other, None), "slots of removed partitions are still in use"
        assert take(other, "silver")
        assert old[0].release()
        assert gold[0].release()
        assert [take(shared, part).allowed for part in (None, "gold", None)] == [
            False,
            True,
            False,
        ]

    def test_the_same_slots_can_be_asked_for_under_a_smaller_limit(self) -> None:
        shares = (("gold", 2), ("free", 1))
        for lends in (True, False):
            name = self.new_name()
            most, less = (
                self.limiter(Concurrency(limit, 60, shares, lends=lends), name) for limit in (6, 4)
            )
            assert len(taken(less, None, 9)) == (4 if lends else 1)
            assert len(taken(less, "gold", 9)) == (0 if lends else 2)
            assert len(taken(less, "free", 9)) == (0 if lends else 1)
            assert not take(less, "gold")
            assert not take(less, "gold")
            assert len(taken(most, None, 9)) == 2, "callers under a smaller limit leave it free"

    def test_reset_frees_the_slots_of_all_parts(self) -> None:
        for limit, limiter in self.limiters(KEPT, LENT):
            slots = [*taken(limiter, None, 10), *taken(limiter, "gold", 10)]
            take(limiter, "gold")
            limiter.reset("key")
            assert not any(slot.renew() for slot in slots), limit
            assert take(limiter, None).remaining == (3 if limit is KEPT else 9), limit
            assert take(limiter, "gold").remaining == (6 if limit is KEPT else 8), limit

    def _taker(self, limit: Concurrency) -> Callable[[str | None], Outcome]:
        """Return a function that takes a slot of a new counter for a partition."""
        group, names = self.new_name(), count()

        def take(part: str | None) -> Outcome:
            check = Check(group, "key", replace(limit, partition=part))
            (outcome,) = self.run(Take((check,), lease=f"lease-{next(names)}"))
            return outcome

        return take


# Where slots are lent, a slot that a partition releases is kept for it for a moment.


SHARES: Final = (("gold", 4), ("free", 2))


class KeepingContract(StoreUnderTest):
    """A busy partition keeps its share; an idle one lends it after a moment."""

    def test_a_released_slot_is_kept_for_its_partition(self) -> None:
        limiter = self.limiter(LENT)
        gold = taken(limiter, "gold", 4)
        assert len(taken(limiter, None, 9)) == 6
        assert gold[0].release()
        assert not take(limiter, "free"), "nor is it for a part that has less than its share"
        assert limiter.peek("key").remaining == 0
        assert take(limiter, "gold")

    def test_a_released_slot_is_lent_when_its_partition_stays_idle(self) -> None:
        for borrower in (None, "free"):
            limiter = self.limiter(LENT)
            gold = taken(limiter, "gold", 4)
            taken(limiter, None, 6)
            assert gold[0].release()
            self.clock.advance_ns(KEEP_NS - self.tick_ns)
            assert not take(limiter, borrower)
            self.clock.advance_ns(GRAIN_NS)
            assert take(limiter, borrower), borrower

    def test_no_more_is_kept_than_the_partition_used_lately(self) -> None:
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
        assert take(limiter, "gold")

    def test_slots_beyond_the_share_of_a_partition_are_not_kept(self) -> None:
        limiter = self.limiter(LENT)
        gold = taken(limiter, "gold", 6)
        assert len(taken(limiter, None, 9)) == 4
        assert gold[0].release()
        assert gold[1].release()
        assert len(taken(limiter, None, 9)) == 2
        assert gold[2].release()
        assert not take(limiter, None)

    def test_no_slot_of_an_expired_lease_is_kept(self) -> None:
        limiter = self.limiter(LENT)
        gold = taken(limiter, "gold", 4)
        self.clock.advance_ns(seconds(60))
        assert len(taken(limiter, None, 5)) == 5
        assert not any(slot.release() for slot in gold)
        assert len(taken(limiter, None, 9)) == 5

    def test_slots_that_are_not_guaranteed_are_not_kept(self) -> None:
        limiter = self.limiter(LENT)
        slots = taken(limiter, None, 10)
        assert slots[0].release()
        assert take(limiter, None)

    def test_who_asks_under_a_larger_limit_need_not_keep_it(self) -> None:
        name = self.new_name()
        larger, smaller = (self.limiter(Concurrency(n, 60, SHARES), name) for n in (8, 6))
        gold = taken(smaller, "gold", 4)
        assert len(taken(smaller, None, 9)) == 2
        assert gold[0].release()
        assert not take(smaller, None)
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
            assert not any(take(limiter, "gold") for limiter in limiters)
            assert all(slot.release() for slot in borrowed[:3])
            assert len(taken(larger, None, 9)) == 1, order

    def test_a_released_slot_cannot_be_renewed(self) -> None:
        for part in (None, "gold"):
            check = Check(self.new_name(), "key", replace(LENT, partition=part))
            assert self.run(Take((check,), lease="a"))[0].allowed
            assert self.run(RenewSlot((check,), "a"))
            assert self.run(ReleaseSlot((check,), "a"))
            assert not self.run(RenewSlot((check,), "a"))
            assert not self.run(ReleaseSlot((check,), "a"))
            (looked,) = self.run(Take((check,), consume=False))
            assert looked.remaining == 10

    def test_guaranteed_slots_that_are_not_lent_are_not_kept_twice(self) -> None:
        limiter = self.limiter(Concurrency(10, 60, SHARES, lends=False))
        gold = taken(limiter, "gold", 4)
        assert all(slot.release() for slot in gold)
        assert limiter.peek("key").remaining == 4
        assert limiter.peek("key").reset_after == 0


# Slots against the pure algorithm, over long random histories of changing policies.


LIMITS: Final = (
    *(Concurrency(limit, ttl) for limit, ttl in ((5, 4), (3, 4), (5, 7))),
    *(
        Concurrency(limit, ttl, shares, part, lends)
        for limit, ttl in ((5, 4), (4, 4), (7, 3))
        for shares in ((("a", 3), ("b", 1)), (("a", 1), ("b", 1), ("c", 2)))
        for part in (None, "a", "b")
        for lends in (True, True, False)
    ),
)
"""Limits that are applied to the one counter of a history, one after another."""


SEEDS: Final = (0, 10, 31, 38, 48, 156, 174)
"""Histories that reveal every known mistake."""
VERBS: Final = ("take",) * 8 + ("look", "renew", "renew") + ("leave",) * 4 + ("reset",)
PAUSES: Final = (0,) * 6 + (1, 1, 20_000, 62_500, 100_000, 200_000, 900_000, 1_500_000)
QUICK: Final = (0,) * 4 + (1, 20_000, 62_500, 100_000, 190_000)
"""Microseconds from one step of a history to the next."""


class SharesHistoryContract(StoreUnderTest):
    """A store against the pure algorithm, over long random histories of changing policies."""

    def test_every_reply_is_that_of_the_pure_algorithm(self) -> None:
        for seed in SEEDS:
            self.play(seed)

    def play(self, seed: int) -> None:
        """Play the history of *seed*."""
        random = Random(seed)
        group, model = self.new_name(), SlotsModel()
        few = usual_limits(random)
        pauses = random.choice((PAUSES, QUICK))
        for step in range(120):
            self.clock.advance_ns(random.choice(pauses) * 1_000)
            check = Check(group, "key", random.choice(few), random.choice((1, 1, 1, 1, 2, 0)))
            lease, now = f"lease{random.randrange(14)}", self.clock()
            case = f"seed {seed}, step {step}: {check}, {lease}"
            match random.choice(VERBS):
                case "take" if check.cost:
                    (outcome,) = self.run(Take((check,), lease=lease))
                    assert outcome == model.take(check, lease, now), case
                case "look" | "take":
                    (outcome,) = self.run(Take((check,), consume=False))
                    assert outcome == model.look(check, now), case
                case "renew":
                    assert self.run(RenewSlot((check,), lease)) == model.renew(check, lease, now), (
                        case
                    )
                case "leave":
                    if pauses is QUICK:
                        lease, check = model.held(random, lease, check, few)
                    assert self.run(ReleaseSlot((check,), lease)) == model.leave(
                        check, lease, now
                    ), case
                case _ if step % 9 == 0:
                    self.run(Reset((check,)))
                    model.state = None


def usual_limits(random: Random) -> list[Concurrency]:
    """Return the partitions under one limit, most of the time, and perhaps some others."""
    limit = random.choice(LIMITS[3:])
    parts = [replace(limit, partition=part) for part in (None, "a", "a", "b")]
    return parts * 2 + random.sample(LIMITS, random.choice((0, 1, 6)))


class SlotsModel:
    """The slots of one counter, by the pure algorithm."""

    def __init__(self) -> None:
        self.state: Slots | None = None

    def take(self, check: Check, lease: str, now: int) -> Outcome:
        algorithm = _algorithm(check)
        wait = algorithm.wait(self.state, check.cost, now)
        if wait == 0:
            self.state = algorithm.enter(self.state, lease, now)
        outcome = algorithm.outcome(self.state, wait, now)
        if wait:
            self.state = algorithm.deny(self.state, check.cost, now)
        return outcome

    def held(
        self, random: Random, lease: str, check: Check, limits: list[Concurrency]
    ) -> tuple[str, Check]:
        """Return an open lease, and *check* as its partition would make it."""
        if self.state is None or not self.state.leases:
            return lease, check
        lease = random.choice(list(self.state.leases))
        part = self.state.leases[lease].part
        own = [limit for limit in limits if limit.partition == part]
        return lease, replace(check, limit=random.choice(own)) if own else check

    def look(self, check: Check, now: int) -> Outcome:
        algorithm = _algorithm(check)
        wait = algorithm.wait(self.state, check.cost, now) if check.cost else 0
        return algorithm.outcome(self.state, wait, now)

    def renew(self, check: Check, lease: str, now: int) -> bool:
        algorithm = _algorithm(check)
        if self.state is None or not algorithm.holds(self.state, lease, now):
            return False
        self.state = algorithm.renew(self.state, lease, now)
        return True

    def leave(self, check: Check, lease: str, now: int) -> bool:
        algorithm = _algorithm(check)
        had = algorithm.holds(self.state, lease, now)
        self.state = algorithm.leave(self.state, lease, now)
        return had


def _algorithm(check: Check) -> ConcurrencyAlgorithm:
    assert isinstance(check.limit, Concurrency)
    return ConcurrencyAlgorithm(check.limit)
