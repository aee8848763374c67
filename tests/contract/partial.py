"""Hits of up to some cost, case by case: as much of it as fits.

The public contract has them in its random histories.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from headgate.errors import UsageError
from headgate.limits import Concurrency, FixedWindow, LeakyQueue, TokenBucket
from headgate.stores.operations import Check, Take, TakeUpTo
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import ODD, TENS, StoreUnderTest, seconds

if TYPE_CHECKING:
    from headgate.stores.operations import Outcomes


@needs("exact")
class PartialContract(StoreUnderTest):
    """Hits that are allowed in part."""

    def test_the_decision_is_that_of_a_peek_at_the_rest(self) -> None:
        for limit in (*TENS, *ODD):
            for n in (0, 1, 2, limit.quota, limit.quota + 1, 10**18):
                limiter = self.limiter(limit)
                limiter.hit("key")
                self.clock.advance_ns(1_000)
                part = limiter.hit_up_to("key", n)
                rest = n - part.granted
                assert part.decision == limiter.peek("key", rest), f"{limit}: {n}"
                assert part.decision.allowed == (rest == 0), f"{limit}: {n}"

    def test_checks_of_one_counter_add_up(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 7)
            granted, outcomes = self.run(TakeUpTo((check, check)))
            assert granted == 5, limit
            rest = Check(check.group, "key", limit, 2)
            assert outcomes == self.run(Take((rest, rest), consume=False)), limit

    def test_it_grants_as_much_as_hits_of_one_unit_do(self) -> None:
        """Also beside other limits, open reservations, debt and refunds."""
        random = Random(13)
        for limit in (*TENS, *ODD):
            limits = [limit, TokenBucket(9, 2)]
            parts, ones = self.limiter(limits), self.limiter(limits)
            for _ in range(12):
                self.clock.advance_ns(random.choice((1_000, limit.period_ns // 7, seconds(1))))
                verb, amount = random.choice(("reserve", "charge", "refund")), random.randrange(5)
                for limiter in (parts, ones):
                    getattr(limiter, verb)("key", amount)
                n = random.randrange(2 * limit.quota)
                granted = parts.hit_up_to("key", n).granted
                assert granted == sum(ones.hit("key").allowed for _ in range(n)), f"{limit}: {n}"
                assert parts.peek("key") == ones.peek("key"), f"{limit}: {n}"

    def test_callers_at_the_same_time_are_granted_no_more_than_the_limit(self) -> None:
        for limit in TENS:
            group, other = self.new_name(), self.new_name()
            checks = Check(group, "key", limit, 3), Check(other, "key", FixedWindow(99, 3600), 3)
            replies = self._run_together([TakeUpTo(checks)] * 16)
            assert sum(granted for granted, _ in replies) == 10, limit
            assert self.left(limit, group) == 0, limit

    def test_slots_and_queues_are_not_granted_in_part(self) -> None:
        for limit in (Concurrency(3, 10), LeakyQueue(1, 10)):
            limiter = self.limiter([TokenBucket(10, 1), limit])
            check = Check(self.new_name(), "key", limit, 2)
            with pytest.raises(UsageError, match="hit_up_to is not for"):
                limiter.hit_up_to("key", 2)
            with pytest.raises(UsageError, match="hit_up_to is not for"):
                self.run(TakeUpTo((check,)))

    def _run_together(self, operations: list[TakeUpTo]) -> list[tuple[int, Outcomes]]:
        if not self.in_loop:
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(self.store.run, operations))

        async def run_all() -> list[tuple[int, Outcomes]]:
            return await asyncio.gather(*[self.store.arun(one) for one in operations])

        return self._runner.run(run_all())
