"""The contract of operations that only layers of Headgate use, for stores that support them.

Leases are in `leases`. This module has usage of other regions (`MergeUsage`), values that nodes
publish for each other (`PublishValue`), and replication.
"""

from __future__ import annotations

from headgate.limits import TokenBucket
from headgate.stores.operations import (
    MOST_PUBLISHERS,
    Charge,
    Check,
    Hold,
    MergeUsage,
    PublishedValues,
    PublishValue,
    Refund,
    Settle,
    Take,
)
from headgate.testing import StoreContract
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import TENS, seconds
from tests.contract.constants import ConstantContract
from tests.contract.layer_store import LayerStoreUnderTest
from tests.contract.leases import LeaseContract, LeaseHistoryContract
from tests.contract.partial import PartialContract
from tests.contract.queues import QueueContract, QueueHistoryContract
from tests.contract.slot_shares import (
    KeepingContract,
    SharesContract,
    SharesHistoryContract,
)


@needs("grants_leases")
class MergeUsageContract(LayerStoreUnderTest):
    """`MergeUsage`, for stores that grant leases."""

    def test_only_the_new_part_of_a_total_is_charged(self) -> None:
        for limit in TENS:
            group = self.new_name()
            for total, left in ((3, 7), (3, 7), (5, 5), (2, 5), (0, 5)):
                left_now = self.merge(Check(group, "key", limit, total), "eu", 7)
                assert left_now == left, f"{limit}: a total of {total}"
            assert self.merge(Check(group, "key", limit, 3), "us", 7) == 2, limit
            assert self.merge(Check(group, "key", limit, 13), "us", 7) == 0, limit
            assert self.left(limit, group) == 0, f"{limit}: debt"

    def test_the_window_before_is_still_known_and_older_ones_are_not(self) -> None:
        for limit in TENS:
            group = self.new_name()
            story = ((7, 2, 8), (8, 1, 7), (7, 3, 6), (7, 3, 6), (8, 1, 7 - 1), (6, 9, 6))
            for window, total, left in (*story, (10, 1, 5), (9, 2, 3), (8, 9, 3)):
                left_now = self.merge(Check(group, "key", limit, total), "eu", window)
                assert left_now == left, f"{limit}: {total} of window {window}"

    def test_usage_of_several_counters_is_merged_together(self) -> None:
        for limit in TENS:
            group = self.new_name()
            checks = tuple(Check(group, f"key {n}", limit, n) for n in range(8))
            for _ in range(2):
                outcomes = self.run(MergeUsage(checks, "eu", 1, seconds(60)))
                assert [outcome.remaining for outcome in outcomes] == [10 - n for n in range(8)]
            twice = (Check(group, "key", limit, 2), Check(group, "key", limit, 3))
            outcomes = self.run(MergeUsage(twice, "eu", 1, seconds(60)))
            assert [outcome.remaining for outcome in outcomes] == [7, 7], limit

    def test_a_region_with_another_limit_changes_nothing_but_what_is_used(self) -> None:
        for limit in TENS:
            for other in (*TENS, TokenBucket(1_000, 1_000)):
                merged, charged = self.new_name(), self.new_name()
                self.clock.advance_ns(-self.clock() % limit.period_ns)  # where a window begins
                for group in (merged, charged):
                    self.run(Take((Check(group, "key", limit, 6),)))
                for total in (1, 2, 3):
                    self.merge(Check(merged, "key", other, total), "eu", 7)
                    self.run(Charge((Check(charged, "key", limit, 1),)))
                    self.clock.advance_ns(seconds(2))
                    self.merge(Check(merged, "key", other, total), "eu", 7)
                    left = self.left(limit, merged), self.left(limit, charged)
                    assert left[0] == left[1], f"{limit}, and {other} elsewhere"

    def test_merged_totals_expire(self) -> None:
        for limit in TENS:
            group = self.new_name()
            check = Check(group, "key", limit, 3)
            self.run(MergeUsage((check,), "eu", 1, seconds(1)))
            self.clock.advance_ns(seconds(1) - self.tick_ns)
            self.run(MergeUsage((check,), "eu", 1, seconds(1)))
            self.clock.advance_ns(seconds(1) - self.tick_ns)
            before = self.left(limit, group)
            assert self.merge(check, "eu", 1, ttl_ns=self.tick_ns) == before, limit
            self.clock.advance_ns(self.tick_ns)
            assert self.merge(check, "eu", 1) < before, limit

    def merge(self, check: Check, origin: str, window: int, ttl_ns: int = seconds(60)) -> int:
        """Merge usage of one counter; return the units left in it."""
        return self.run(MergeUsage((check,), origin, window, ttl_ns))[0].remaining


@needs("publishes_values")
class PublishedValuesContract(LayerStoreUnderTest):
    """`PublishValue`, for stores that know it."""

    def test_publishing_returns_the_values_of_all_origins(self) -> None:
        group = self.new_name()
        assert self.publish(group, "a", 0.5, 3) == {("a", 0.5, 3)}
        assert self.publish(group, "b", 1, 0.25) == {("a", 0.5, 3), ("b", 1, 0.25)}
        assert self.publish(group, "a", 1 / 3, 1e-9) == {("a", 1 / 3, 1e-9), ("b", 1, 0.25)}
        assert self.publish(group, "c", 1, 1, key="another") == {("c", 1, 1)}
        assert self.publish(self.new_name(), "c", -2.5, 1e300) == {("c", -2.5, 1e300)}

    def test_an_origin_without_weight_only_reads(self) -> None:
        group = self.new_name()
        assert self.publish(group, "c", 1, 0) == set()
        self.publish(group, "a", 0.5, 3)
        assert self.publish(group, "c", 1, 0) == {("a", 0.5, 3)}
        assert self.publish(group, "a", 1, 0) == {("a", 0.5, 3)}

    def test_a_value_expires_unless_it_is_published_again(self) -> None:
        group = self.new_name()
        self.publish(group, "a", 0.5, 3, ttl_ns=seconds(2))
        self.publish(group, "b", 0.5, 3, ttl_ns=seconds(3))
        self.clock.advance_ns(seconds(2) - self.tick_ns)
        both = {("a", 0.5, 3), ("b", 0.5, 3)}
        assert self.publish(group, "c", 1, 0) == both
        self.publish(group, "b", 0.5, 3, ttl_ns=seconds(3))
        self.clock.advance_ns(self.tick_ns)
        assert self.publish(group, "c", 1, 0) == {("b", 0.5, 3)}
        self.clock.advance_ns(seconds(2))
        assert self.publish(group, "c", 1, 0) == {("b", 0.5, 3)}
        self.clock.advance_ns(seconds(1))
        assert self.publish(group, "c", 1, 0) == set()

    def test_values_from_before_a_large_step_back_are_dropped(self) -> None:
        group = self.new_name()
        self.publish(group, "dead", 0.1, 9, ttl_ns=seconds(3))
        self.publish(group, "alive", 0.5, 1, ttl_ns=seconds(3))
        self.clock.advance_ns(-seconds(1))
        assert len(self.publish(group, "c", 1, 0)) == 2, "a small step back changes nothing"
        self.clock.advance_ns(-seconds(3600))
        assert self.publish(group, "c", 1, 0) == set()
        assert self.publish(group, "alive", 0.5, 1, ttl_ns=seconds(3)) == {("alive", 0.5, 1)}
        self.clock.advance_ns(seconds(2))
        assert self.publish(group, "c", 1, 0) == {("alive", 0.5, 1)}

    def test_origins_and_keys_may_be_called_anything(self) -> None:
        group = self.new_name()
        origins = ("a,b", "|:{}", "\x00\r\n", "\N{SNOWMAN}", "long " * 100, "a", " ")
        for origin in origins:
            values = self.publish(group, origin, 0.5, 1, key=origin)
            assert values == {(origin, 0.5, 1)}
            self.publish(group, origin, 0.5, 1)
        assert self.publish(group, "", 1, 0) == {(origin, 0.5, 1) for origin in origins}

    def test_one_origin_too_many_only_reads_until_another_expires(self) -> None:
        group = self.new_name()
        self.publish(group, "first", 1, 1, ttl_ns=seconds(1))
        for n in range(MOST_PUBLISHERS - 1):
            self.publish(group, f"origin {n}", 1, 1)
        assert len(self.publish(group, "late", 0.5, 1)) == MOST_PUBLISHERS
        assert ("first", 0.5, 2) in self.publish(group, "first", 0.5, 2, ttl_ns=seconds(1))
        self.clock.advance_ns(seconds(1))
        values = self.publish(group, "late", 0.5, 1)
        assert len(values) == MOST_PUBLISHERS
        assert ("late", 0.5, 1) in values

    def test_a_published_value_is_not_a_counter(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 4)
            self.run(Take((check,)))
            self.publish(check.group, "a", 0.5, 3)
            assert self.left(limit, check.group) == 6, limit
            assert self.publish(check.group, "b", 1, 1) == {("a", 0.5, 3), ("b", 1, 1)}

    def publish(
        self,
        group: str,
        origin: str,
        value: float,
        weight: float,
        *,
        key: str = "key",
        ttl_ns: int = seconds(60),
    ) -> set[tuple[str, float, float]]:
        """Publish a value; return the values of all origins."""
        values: PublishedValues = self.run(PublishValue(group, key, origin, value, weight, ttl_ns))
        assert len({origin for origin, _, _ in values}) == len(values), "an origin is listed twice"
        return set(values)


@needs("replicates")
class ReplicationContract(LayerStoreUnderTest):
    """Usage in one region counts in the other once it is sent."""

    def test_usage_counts_in_the_other_region_once(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 3)
            for expected in (7, 4):
                assert self.run(Take((check,)))[0].allowed, limit
                self.exchange()
                self.exchange()
                assert self.left_there(check) == expected, limit
                assert self.left(limit, check.group) == expected, limit

    def test_usage_of_a_limiter_counts_in_the_other_region(self) -> None:
        for limit in TENS:
            name = self.new_name()
            here, there = self.limiter(limit, name), self.limiter(limit, name, self.peer())
            assert here.hit("key", 2), limit
            assert all(here.hit_many([("key", 1), ("key", 3)])), limit
            here.reserve("key", 3).commit(1)
            self.exchange()
            assert there.peek("key").remaining == 3, limit
            assert not there.hit("key", 4), limit
            assert there.hit("key", 3), limit

    def test_a_hold_that_expired_counts_elsewhere_with_what_it_is_settled_for(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 6)
            self.run(Hold((check,), "name", seconds(60), charges_expired=True))
            self.clock.advance_ns(seconds(60))
            self.exchange()
            assert self.left_there(check) == 10, limit
            self.run(Settle((check.with_cost(7),), "name", charge_lapsed=True))
            self.exchange()
            assert self.left_there(check) == self.left(limit, check.group) == 3, limit

    def test_usage_that_was_not_consumed_is_not_sent(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 11)
            limiter = self.limiter(limit)
            assert not self.run(Take((check,)))[0].allowed, limit
            limiter.peek("key")
            limiter.reserve("key", 5).cancel()
            self.exchange()
            assert self.left_there(check) == 10, limit

    def test_debt_and_refunds_are_sent(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 25)
            self.run(Charge((check,)))
            self.exchange()
            assert self.left_there(check) == 0, limit
            self.run(Refund((Check(check.group, "other", limit, 0),)))
            self.run(Take((Check(check.group, "other", limit, 6),)))
            self.run(Refund((Check(check.group, "other", limit, 2),)))
            self.exchange()
            there = self.left(limit, check.group, "other", self.peer())
            assert there == 6, limit

    def test_regions_allow_at_most_the_limit_each_before_they_exchange(self) -> None:
        for limit in TENS:
            name = self.new_name()
            here, there = self.limiter(limit, name), self.limiter(limit, name, self.peer())
            assert sum(here.hit("key").allowed for _ in range(20)) == 10, limit
            assert sum(there.hit("key").allowed for _ in range(20)) == 10, limit
            self.exchange()
            allowed = 0
            for _ in range(9):
                self.clock.advance_ns(seconds(1))
                allowed += there.hit("key").allowed
            assert allowed == 0, f"{limit}: the other region has 20 of 10 used"

    def left_there(self, check: Check) -> int:
        """Return what is left of a counter in the other region."""
        return self.left(check.limit, check.group, check.key, self.peer())


class LayerStoreContract(
    StoreContract,
    ConstantContract,
    PartialContract,
    QueueContract,
    QueueHistoryContract,
    SharesContract,
    SharesHistoryContract,
    KeepingContract,
    LeaseContract,
    LeaseHistoryContract,
    MergeUsageContract,
    PublishedValuesContract,
    ReplicationContract,
):
    """The public contract, queues and shares of slots, and the operations which layers use."""

    def test_the_store_is_as_declared(self) -> None:
        declared = (self.store.grants_leases, self.store.publishes_values)
        assert declared == (self.grants_leases, self.publishes_values)
