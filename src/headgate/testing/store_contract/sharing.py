"""Parts of the store contract: what several tell each other."""

from __future__ import annotations

from headgate.stores import Check, Take
from headgate.stores.operations import MOST_PUBLISHERS, PublishedValues, PublishValue
from headgate.testing.store_contract.subject import TENS, StoreUnderTest, needs, seconds


@needs("publishes_values")
class SharingContract(StoreUnderTest):
    """`PublishValue`, for stores that know it."""

    def test_who_tells_hears_what_all_have_told(self) -> None:
        group = self.new_name()
        assert self.share(group, "a", 0.5, 3) == {("a", 0.5, 3)}
        assert self.share(group, "b", 1, 0.25) == {("a", 0.5, 3), ("b", 1, 0.25)}
        assert self.share(group, "a", 1 / 3, 1e-9) == {("a", 1 / 3, 1e-9), ("b", 1, 0.25)}
        assert self.share(group, "c", 1, 1, key="another") == {("c", 1, 1)}
        assert self.share(self.new_name(), "c", -2.5, 1e300) == {("c", -2.5, 1e300)}

    def test_who_has_no_weight_only_hears(self) -> None:
        group = self.new_name()
        assert self.share(group, "c", 1, 0) == set()
        self.share(group, "a", 0.5, 3)
        assert self.share(group, "c", 1, 0) == {("a", 0.5, 3)}
        assert self.share(group, "a", 1, 0) == {("a", 0.5, 3)}

    def test_what_was_told_lapses_unless_it_is_told_again(self) -> None:
        group = self.new_name()
        self.share(group, "a", 0.5, 3, ttl_ns=seconds(2))
        self.share(group, "b", 0.5, 3, ttl_ns=seconds(3))
        self.clock.advance_ns(seconds(2) - self.tick_ns)
        both = {("a", 0.5, 3), ("b", 0.5, 3)}
        assert self.share(group, "c", 1, 0) == both
        self.share(group, "b", 0.5, 3, ttl_ns=seconds(3))
        self.clock.advance_ns(self.tick_ns)
        assert self.share(group, "c", 1, 0) == {("b", 0.5, 3)}
        self.clock.advance_ns(seconds(2))
        assert self.share(group, "c", 1, 0) == {("b", 0.5, 3)}
        self.clock.advance_ns(seconds(1))
        assert self.share(group, "c", 1, 0) == set()

    def test_what_was_told_before_the_clock_was_set_back_counts_no_more(self) -> None:
        group = self.new_name()
        self.share(group, "dead", 0.1, 9, ttl_ns=seconds(3))
        self.share(group, "alive", 0.5, 1, ttl_ns=seconds(3))
        self.clock.advance_ns(-seconds(1))
        assert len(self.share(group, "c", 1, 0)) == 2, "a little is nothing"
        self.clock.advance_ns(-seconds(3600))
        assert self.share(group, "c", 1, 0) == set()
        assert self.share(group, "alive", 0.5, 1, ttl_ns=seconds(3)) == {("alive", 0.5, 1)}
        self.clock.advance_ns(seconds(2))
        assert self.share(group, "c", 1, 0) == {("alive", 0.5, 1)}

    def test_origins_and_keys_may_be_called_anything(self) -> None:
        group = self.new_name()
        origins = ("a,b", "|:{}", "\x00\r\n", "\N{SNOWMAN}", "long " * 100, "a", " ")
        for origin in origins:
            told = self.share(group, origin, 0.5, 1, key=origin)
            assert told == {(origin, 0.5, 1)}
            self.share(group, origin, 0.5, 1)
        assert self.share(group, "", 1, 0) == {(origin, 0.5, 1) for origin in origins}

    def test_one_origin_too_many_only_hears_until_another_lapses(self) -> None:
        group = self.new_name()
        self.share(group, "first", 1, 1, ttl_ns=seconds(1))
        for n in range(MOST_PUBLISHERS - 1):
            self.share(group, f"origin {n}", 1, 1)
        assert len(self.share(group, "late", 0.5, 1)) == MOST_PUBLISHERS
        assert ("first", 0.5, 2) in self.share(group, "first", 0.5, 2, ttl_ns=seconds(1))
        self.clock.advance_ns(seconds(1))
        told = self.share(group, "late", 0.5, 1)
        assert len(told) == MOST_PUBLISHERS
        assert ("late", 0.5, 1) in told

    def test_what_is_told_is_no_counter(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 4)
            self.run(Take((check,)))
            self.share(check.group, "a", 0.5, 3)
            assert self.left(limit, check.group) == 6, limit
            assert self.share(check.group, "b", 1, 1) == {("a", 0.5, 3), ("b", 1, 1)}

    def share(
        self,
        group: str,
        origin: str,
        value: float,
        weight: float,
        *,
        key: str = "key",
        ttl_ns: int = seconds(60),
    ) -> set[tuple[str, float, float]]:
        """Tell, and hear."""
        told: PublishedValues = self.run(PublishValue(group, key, origin, value, weight, ttl_ns))
        assert len({origin for origin, _, _ in told}) == len(told), "nobody is heard twice"
        return set(told)
