"""Pots, and what was used elsewhere."""

from __future__ import annotations

from headgate.limits import TokenBucket
from headgate.stores import Charge, Check, Take
from headgate.stores.operations import Absorb, Draw, Pour
from headgate.testing.contract_subject import TENS, StoreUnderTest, needs, seconds


@needs("lends")
class ElsewhereContract(StoreUnderTest):
    """`Pour`, `Draw` and `Absorb`, for stores that lend."""

    def test_what_was_poured_can_be_drawn_and_no_more(self) -> None:
        group = self.new_name()
        assert self.run(Draw(group, "pot", 1)) is None
        assert self.run(Draw(group, "pot", 0)) == 0
        assert self.run(Pour(group, "pot", 5, seconds(60))) == 5
        assert self.run(Pour(group, "pot", 2, seconds(60))) == 7
        assert self.run(Draw(group, "pot", 4)) == 3
        assert self.run(Draw(group, "pot", 4)) is None
        assert self.run(Draw(group, "pot", 0)) == 3
        assert self.run(Draw(group, "pot", 3)) == 0
        assert self.run(Draw(group, "pot", 1)) is None
        assert self.run(Draw(group, "another", 1)) is None

    def test_a_pot_lapses(self) -> None:
        group = self.new_name()
        self.run(Pour(group, "pot", 5, seconds(60)))
        self.run(Pour(group, "pot", 5, seconds(2)))
        self.clock.advance_ns(seconds(60) - self.tick_ns)
        assert self.run(Draw(group, "pot", 1)) == 9
        self.clock.advance_ns(self.tick_ns)
        assert self.run(Draw(group, "pot", 1)) is None
        assert self.run(Pour(group, "pot", 3, seconds(2))) == 3

    def test_a_pot_is_no_counter(self) -> None:
        for limit in TENS:
            check = Check(self.new_name(), "key", limit, 4)
            self.run(Take((check,)))
            self.run(Pour(check.group, "key", 5, seconds(60)))
            assert self.left(limit, check.group) == 6, limit

    def test_a_total_is_charged_as_far_as_it_was_not_told(self) -> None:
        for limit in TENS:
            group = self.new_name()
            for total, left in ((3, 7), (3, 7), (5, 5), (2, 5), (0, 5)):
                told = self.absorb(Check(group, "key", limit, total), "eu", 7)
                assert told == left, f"{limit}: a total of {total}"
            assert self.absorb(Check(group, "key", limit, 3), "us", 7) == 2, limit
            assert self.absorb(Check(group, "key", limit, 13), "us", 7) == 0, limit
            assert self.left(limit, group) == 0, f"{limit}: debt"

    def test_the_window_before_is_still_known_and_older_ones_are_not(self) -> None:
        for limit in TENS:
            group = self.new_name()
            story = ((7, 2, 8), (8, 1, 7), (7, 3, 6), (7, 3, 6), (8, 1, 7 - 1), (6, 9, 6))
            for window, total, left in (*story, (10, 1, 5), (9, 2, 3), (8, 9, 3)):
                told = self.absorb(Check(group, "key", limit, total), "eu", window)
                assert told == left, f"{limit}: {total} of window {window}"

    def test_several_counters_are_told_of_together(self) -> None:
        for limit in TENS:
            group = self.new_name()
            checks = tuple(Check(group, f"key {n}", limit, n) for n in range(8))
            for _ in range(2):
                outcomes = self.run(Absorb(checks, "eu", 1, seconds(60)))
                assert [outcome.remaining for outcome in outcomes] == [10 - n for n in range(8)]
            twice = (Check(group, "key", limit, 2), Check(group, "key", limit, 3))
            outcomes = self.run(Absorb(twice, "eu", 1, seconds(60)))
            assert [outcome.remaining for outcome in outcomes] == [7, 7], limit

    def test_a_region_with_another_limit_changes_nothing_but_what_is_used(self) -> None:
        for limit in TENS:
            for other in (*TENS, TokenBucket(1_000, 1_000)):
                told, charged = self.new_name(), self.new_name()
                self.clock.advance_ns(-self.clock() % limit.period_ns)  # where a window begins
                for group in (told, charged):
                    self.run(Take((Check(group, "key", limit, 6),)))
                for total in (1, 2, 3):
                    self.absorb(Check(told, "key", other, total), "eu", 7)
                    self.run(Charge((Check(charged, "key", limit, 1),)))
                    self.clock.advance_ns(seconds(2))
                    self.absorb(Check(told, "key", other, total), "eu", 7)
                    left = self.left(limit, told), self.left(limit, charged)
                    assert left[0] == left[1], f"{limit}, and {other} elsewhere"

    def test_what_was_told_is_forgotten_after_a_while(self) -> None:
        for limit in TENS:
            group = self.new_name()
            check = Check(group, "key", limit, 3)
            self.run(Absorb((check,), "eu", 1, seconds(1)))
            self.clock.advance_ns(seconds(1) - self.tick_ns)
            self.run(Absorb((check,), "eu", 1, seconds(1)))
            self.clock.advance_ns(seconds(1) - self.tick_ns)
            before = self.left(limit, group)
            assert self.absorb(check, "eu", 1, ttl_ns=self.tick_ns) == before, limit
            self.clock.advance_ns(self.tick_ns)
            assert self.absorb(check, "eu", 1) < before, limit

    def absorb(self, check: Check, origin: str, window: int, ttl_ns: int = seconds(60)) -> int:
        """Tell of one counter; what is left in it."""
        return self.run(Absorb((check,), origin, window, ttl_ns))[0].remaining
