"""Many counters: keys, namespaces, stacks and batches."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from headgate.limits import FixedWindow, SlidingWindowLog, TokenBucket
from headgate.stores import Hit
from headgate.testing.capabilities import needs
from headgate.testing.store_contract.subject import TENS, StoreUnderTest

NASTY: Final = (
    "a",
    "A",
    "a ",
    " a",
    "a:b",
    "a:b:c",
    ":",
    "::",
    "0",
    "None",
    "{a}",
    "{}",
    "}{",
    "{a}:b",
    "*",
    "a*",
    "[a]",
    "a\0",
    "\0",
    "a\r\n",
    "\r\nSET x 1\r\n",
    "$1\r\na",
    "%s",
    "../a",
    "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    "cafe\N{COMBINING ACUTE ACCENT}",
    "\N{WATER WAVE}",
    "\N{WATER WAVE}\N{WATER WAVE}",
    "\N{RIGHT-TO-LEFT OVERRIDE}a",
    "x" * 65_536,
    "x" * 65_537,
    "\N{WATER WAVE}" * 16_384,
)
"""Keys that are easily confused with one another or with syntax."""


class KeysContract(StoreUnderTest):
    """Each check changes its own counters and no others."""

    def test_every_key_has_a_counter_of_its_own(self) -> None:
        for limit, limiter in self.limiters(
            TokenBucket(100, 1), FixedWindow(100, 10), SlidingWindowLog(100, 10)
        ):
            for used, key in enumerate(NASTY):
                limiter.hit(key, used)
            for used, key in enumerate(NASTY):
                left = limiter.peek(key).remaining
                assert self.is_about(left, 100 - used, limit), f"{key[:20]!r} has {left} left"

    def test_a_decision_names_the_key_as_it_was_given(self) -> None:
        limiter = self.limiter(TokenBucket(10, 1))
        assert [limiter.hit(key).key for key in NASTY] == list(NASTY)
        assert [decision.key for decision in limiter.hit_many(NASTY)] == list(NASTY)

    def test_namespaces_do_not_share_counters(self) -> None:
        first = self.new_name()
        pairs = (
            (first, "b:c"),
            (f"{first}:b", "c"),
            (f"{first}:b:c", "d"),
            (f"{first}:0", "b:c"),
            (f"{{{first}}}", "b:c"),
            (first.upper(), "b:c"),
        )
        limit = FixedWindow(1_000, 10)
        for used, (namespace, key) in enumerate(pairs, 1):
            self.limiter(limit, namespace).hit(key, 100 * used)
        for used, (namespace, key) in enumerate(pairs, 1):
            left = self.limiter(limit, namespace).peek(key).remaining
            assert self.is_about(left, 1_000 - 100 * used, limit), f"{namespace}, {key}: {left}"

    def test_stacked_limits_do_not_share_a_counter(self) -> None:
        for limit in TENS:
            twice = self.limiter([limit, limit])
            assert twice.hit("key").remaining == 9, limit
        for first, second in combinations(TENS, 2):
            decision = self.limiter([first, second]).hit("key", 3)
            assert [part.remaining for part in decision.limits] == [7, 7], f"{first}; {second}"
            assert [part.limit for part in decision.limits] == [first, second]

    def test_a_denial_by_one_limit_charges_no_other(self) -> None:
        for wide in TENS:
            for tight in (TokenBucket(2, 0.1), FixedWindow(2, 60), SlidingWindowLog(2, 60)):
                for stack in ([wide, tight], [tight, wide]):
                    limiter = self.limiter(stack)
                    allowed = [limiter.hit("key").allowed for _ in range(6)]
                    assert allowed == [True, True, False, False, False, False], stack
                    left = {part.limit: part.remaining for part in limiter.peek("key").limits}
                    assert left == {wide: 8, tight: 0}, stack

    @needs("exact")
    def test_a_stack_waits_for_the_slowest_and_has_left_the_least(self) -> None:
        limiter = self.limiter([TokenBucket(4, 1), TokenBucket(5, 0.1), TokenBucket(9, 0.01)])
        assert limiter.hit("key", 4).remaining == 0
        denial = limiter.hit("key", 3)
        assert [part.retry_after for part in denial.limits] == [3, 20, 0]
        assert [part.remaining for part in denial.limits] == [0, 1, 5]
        assert (denial.retry_after, denial.remaining) == (20, 0)
        assert denial.reset_after == max(part.reset_after for part in denial.limits)
        assert denial.limit == TokenBucket(5, 0.1)
        self.assert_fits_exactly_after(denial, limiter, 3)

    def test_a_stack_never_allows_what_one_of_its_limits_never_allows(self) -> None:
        limiter = self.limiter([TokenBucket(10, 1), TokenBucket(2, 1)])
        limiter.hit("key", 2)
        denial = limiter.hit("key", 3)
        assert (denial.allowed, denial.retry_after) == (False, None)
        assert [part.remaining for part in denial.limits] == [8, 0]

    def test_hit_many_is_in_order_and_each_for_itself(self) -> None:
        hits: list[str | tuple[str, int]] = [("a", 6), ("a", 6), ("b", 10), ("a", 4), "b", "c"]
        for limit in TENS:
            decisions = self.limiter(limit).hit_many(hits)
            assert [d.key for d in decisions] == ["a", "a", "b", "a", "b", "c"], limit
            assert [d.allowed for d in decisions] == [True, False, True, True, False, True], limit
            assert [d.remaining for d in decisions] == [4, 4, 0, 0, 0, 9], limit

    def test_hit_many_keeps_each_stack_whole(self) -> None:
        limiter = self.limiter([FixedWindow(10, 10), FixedWindow(2, 10)])
        decisions = limiter.hit_many([("a", 2), ("a", 1), ("b", 1)])
        assert [d.allowed for d in decisions] == [True, False, True]
        assert [part.remaining for part in limiter.peek("a").limits] == [8, 0]

    def test_hit_all_is_all_or_nothing(self) -> None:
        limiter = self.limiter(TokenBucket(1, 1))
        user, tenant = TokenBucket(5, 1), FixedWindow(8, 10)
        assert limiter.hit_all([Hit("u1", user, 5), Hit("t", tenant, 5)])
        denial = limiter.hit_all([Hit("u2", user, 4), Hit("t", tenant, 4)])
        assert (denial.allowed, denial.key, denial.limit) == (False, "t", tenant)
        assert [(part.key, part.allowed) for part in denial.limits] == [("u2", True), ("t", False)]
        assert limiter.hit_all([Hit("u2", user, 5), Hit("t", tenant, 3)])
        assert not limiter.hit_all([Hit("u1", user), Hit("u3", user)])
        assert limiter.hit_all([Hit("u3", user, 5)])

    def test_hit_all_adds_up_what_concerns_the_same_counter(self) -> None:
        for limit in TENS:
            limiter = self.limiter(TokenBucket(1, 1))
            assert not limiter.hit_all([Hit("key", limit, 6), Hit("key", limit, 6)]), limit
            assert limiter.hit_all([Hit("key", limit, 6), Hit("key", limit, 4)]), limit
            denial = limiter.hit_all([Hit("key", limit, 1), Hit("key", limit, 1)])
            assert not denial, limit
            self.clock.advance_ns(denial.retry_after_ns or 0)
            assert limiter.hit_all([Hit("key", limit, 1), Hit("key", limit, 1)]), limit
