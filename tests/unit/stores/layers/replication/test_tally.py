"""The numbers of one node: what each region is told, and what is forgotten."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from headgate.algorithms import Outcome
from headgate.limits import Concurrency, Limit, TokenBucket
from headgate.stores.layers.replication.tally import LATE_NS, MOST_CHECKS, Message, Tally
from headgate.units import SECOND
from tests.support.region_fakes import FITS, totals_of

if TYPE_CHECKING:
    from headgate.stores.operations import MergeUsage

MINUTELY = TokenBucket(64, 1)
SECONDLY = TokenBucket(10, 10)
NOW = 6_400 * SECOND


def tally(*, peers: int = 2, max_keys: int = 1_000, max_debt_ns: int | None = None) -> Tally:
    return Tally("eu/1", peers=peers, max_keys=max_keys, max_debt_ns=max_debt_ns)


def use(one: Tally, key: str, amount: int = 1, *, at: int = NOW, limit: Limit = MINUTELY) -> bool:
    return one.add("g", key, limit, amount, at)


def tell(one: Tally, peer: int, now: int = NOW, outcome: Outcome = FITS) -> list[MergeUsage]:
    """Tell *peer* all there is; what it was told."""
    messages = one.messages(peer, now)
    for message in messages:
        hear(one, peer, message, outcome)
    return [message.absorb for message in messages]


def hear(one: Tally, peer: int, message: Message, outcome: Outcome = FITS) -> None:
    one.heard(peer, message, tuple(outcome for _ in message.said))


def test_totals_are_told_and_not_what_was_added() -> None:
    one = tally()
    use(one, "a", 3)
    assert totals_of(tell(one, 0)) == {"a": 3}
    use(one, "a", 4)
    (absorb,) = tell(one, 0)
    assert [check.cost for check in absorb.checks] == [7]


def test_each_region_is_told_for_itself() -> None:
    one = tally()
    use(one, "a", 3)
    tell(one, 0)
    assert one.is_told(0)
    assert not one.is_told(1)
    assert totals_of(tell(one, 1)) == {"a": 3}
    assert tell(one, 0) == tell(one, 1) == []


def test_what_was_not_heard_is_said_again() -> None:
    one = tally()
    use(one, "a", 3)
    one.messages(0, NOW)
    use(one, "a", 1)
    assert totals_of(tell(one, 0)) == {"a": 4}


def test_what_is_used_while_a_message_is_under_way_is_told_next() -> None:
    one = tally()
    use(one, "a", 3)
    (message,) = one.messages(0, NOW)
    use(one, "a", 4)
    hear(one, 0, message)
    assert not one.is_told(0)
    assert totals_of(tell(one, 0)) == {"a": 7}
    hear(one, 0, message)  # answered twice, late
    assert one.is_told(0)


def test_all_counters_of_one_window_go_in_one_message_up_to_a_size() -> None:
    one = tally()
    for n in range(MOST_CHECKS):
        use(one, f"k{n}")
    assert one.portions(0) == len(one.messages(0, NOW)) == 1
    use(one, "another")
    assert one.portions(0) == 2
    assert [len(message.said) for message in one.messages(0, NOW)] == [MOST_CHECKS]


def test_a_new_window_begins_from_nothing_and_the_one_before_is_still_told() -> None:
    one = tally()
    use(one, "a", 3)
    use(one, "a", 5, at=NOW + 64 * SECOND)
    told = tell(one, 0, NOW + 64 * SECOND)
    assert [(absorb.window, absorb.checks[0].cost) for absorb in told] == [(100, 3), (101, 5)]


def test_a_window_that_has_passed_is_not_told_any_more_and_counted_as_dropped() -> None:
    one = tally(peers=1)
    use(one, "a", 3)
    use(one, "b", 3)
    later = NOW + 128 * SECOND
    assert one.messages(0, later) == []
    while one.sweep(later, most=1):
        pass
    assert len(one) == 0
    assert one.is_told(0)
    assert one.dropped == 2


def test_what_everybody_knows_passes_without_being_counted_as_dropped() -> None:
    one = tally(peers=1)
    use(one, "a", 3)
    tell(one, 0)
    one.sweep(NOW + 128 * SECOND)
    assert len(one) == 0
    assert one.dropped == 0


def test_a_clock_that_steps_back_does_not_number_windows_anew() -> None:
    one = tally()
    use(one, "a", 3, at=NOW)
    use(one, "a", 3, at=NOW - 640 * SECOND)
    (absorb,) = tell(one, 0, NOW - 640 * SECOND)
    assert (absorb.window, absorb.checks[0].cost) == (100, 6)


def test_a_limit_with_other_windows_has_another_origin() -> None:
    one = tally()
    use(one, "a", 3)
    use(one, "a", 4, limit=SECONDLY)
    told = tell(one, 0)
    assert len({absorb.origin for absorb in told}) == 2
    assert totals_of(told) == {"a": 7}


def test_what_is_given_back_before_anybody_was_told_is_not_told() -> None:
    one = tally()
    use(one, "a", 5)
    use(one, "a", -2)
    assert totals_of(tell(one, 0)) == {"a": 3}
    use(one, "b", 1)
    use(one, "b", -1)
    assert tell(one, 0) == []


def test_what_was_said_once_is_never_taken_back_heard_or_not() -> None:
    one = tally()
    use(one, "a", 5)
    one.messages(0, NOW)
    use(one, "a", -5)
    assert totals_of(tell(one, 0)) == {"a": 5}
    assert totals_of(tell(one, 1)) == {"a": 5}


def test_counters_that_are_not_shared_are_not_told() -> None:
    one = tally()
    one.share({"g"})
    assert not one.add("other", "a", MINUTELY, 1, NOW)
    assert use(one, "b")
    one.share({"other"})
    assert not use(one, "c")
    assert one.add("other", "d", MINUTELY, 1, NOW)
    one.share(None)
    assert use(one, "e")
    assert totals_of(tell(one, 0)) == {"b": 1, "d": 1, "e": 1}


def test_only_the_first_use_after_all_was_told_needs_telling() -> None:
    one = tally()
    assert use(one, "a")
    assert not use(one, "a")
    tell(one, 0)
    assert use(one, "a")
    assert not use(one, "a")


def test_slots_are_never_shared() -> None:
    one = tally()
    assert not use(one, "a", limit=Concurrency(3, 10))


def test_the_lag_is_the_age_of_what_was_not_told_the_longest() -> None:
    one = tally()
    assert one.lag_ns(0, NOW) == 0
    use(one, "a", at=NOW)
    use(one, "b", at=NOW + 5)
    use(one, "a", at=NOW + 6)
    assert one.lag_ns(0, NOW + 10) == 10
    (message,) = one.messages(0, NOW + 7)
    use(one, "b", at=NOW + 8)
    hear(one, 0, message)
    assert one.lag_ns(0, NOW + 10) <= 3
    assert one.lag_ns(1, NOW + 10) == 10


def test_of_too_many_counters_those_go_first_that_everybody_knows() -> None:
    one = tally(max_keys=10)
    for n in range(10):
        use(one, f"k{n}", 1 + n)
    for peer in (0, 1):
        (message, *_) = one.messages(peer, NOW)
        one.heard(peer, message, tuple(FITS for _ in message.said))
    use(one, "k0", 1)
    use(one, "new", 1)
    assert len(one) <= 10
    assert one.dropped == 0
    assert totals_of(tell(one, 0)) == {"k0": 2, "new": 1}


def test_of_too_many_counters_that_nobody_knows_the_largest_are_kept() -> None:
    one = tally(peers=1, max_keys=10)
    for n in range(10):
        use(one, f"k{n}", 1 + n)
    use(one, "new", 1)
    assert one.dropped == 5
    assert totals_of(tell(one, 0)) == {"new": 1} | {f"k{n}": 1 + n for n in range(5, 10)}


def test_a_counter_that_was_forgotten_begins_again_under_another_name() -> None:
    one = tally(peers=1, max_keys=2)
    heard: list[MergeUsage] = []
    chance = random.Random(1)
    used: dict[str, int] = {}
    for _ in range(200):
        key = f"k{chance.randrange(6)}"
        used[key] = used.get(key, 0) + 1
        use(one, key)
        heard += tell(one, 0)
        assert len(one) <= 2
    assert one.dropped == 0
    assert totals_of(heard) == used


REFUSED = Outcome(allowed=False, remaining=0, retry_after_ns=5, reset_after_ns=5)
LATER = NOW + LATE_NS + 1


def test_a_region_in_debt_is_spared_the_rest_of_what_could_not_be_told_for_long() -> None:
    one = tally(peers=2, max_debt_ns=4)
    use(one, "a", 30)
    (absorb,) = tell(one, 0, LATER, REFUSED)
    assert absorb.checks[0].cost == 8  # an eighth of a quota, to see what it does
    assert one.is_told(0)
    assert one.spared == 22
    use(one, "a", 10, at=LATER)
    (absorb,) = tell(one, 0, LATER)
    assert absorb.checks[0].cost == 18  # what was spared is not told later either


def test_a_region_that_is_not_in_debt_is_told_all_that_waited() -> None:
    one = tally(peers=1, max_debt_ns=5)
    use(one, "a", 30)
    told = [absorb for _ in range(4) for absorb in tell(one, 0, LATER, REFUSED)]
    assert [absorb.checks[0].cost for absorb in told] == [8, 16, 24, 30]
    assert one.is_told(0)
    assert one.spared == 0


def test_what_is_told_in_time_is_told_in_full_whatever_debt_there_is() -> None:
    one = tally(peers=1, max_debt_ns=4)
    use(one, "a", 200)
    (message,) = one.messages(0, NOW)
    use(one, "a", 3)
    hear(one, 0, message, REFUSED)
    assert totals_of(tell(one, 0, outcome=REFUSED)) == {"a": 203}
    assert one.spared == 0


def test_without_a_bound_on_debt_all_is_told_at_once() -> None:
    one = tally(peers=1)
    use(one, "a", 200)
    assert totals_of(tell(one, 0, LATER, REFUSED)) == {"a": 200}


def test_pieces_are_told_faster_than_units_come_back() -> None:
    one = tally(peers=1, max_debt_ns=4)
    use(one, "a", 50, limit=TokenBucket(10, 4))
    assert totals_of(tell(one, 0, LATER)) == {"a": 4}


def test_what_is_never_heard_does_not_hold_up_the_rest() -> None:
    one = tally()
    for n in range(3 * MOST_CHECKS):
        use(one, f"k{n}")
    tried: set[str] = set()
    for _ in range(one.portions(0)):
        for message in one.messages(0, NOW):  # nobody hears it
            tried |= {check.key for check in message.absorb.checks}
    assert len(tried) == 3 * MOST_CHECKS
    assert one.lag_ns(0, NOW + SECOND) == SECOND


def test_a_counter_that_is_used_much_keeps_its_name_while_keys_are_sprayed() -> None:
    one = tally(max_keys=100)
    origins = set()
    for n in range(2_000):
        if n % 10 == 0:
            use(one, "hot", 5)
        use(one, f"k{n}")
        for message in one.messages(0, NOW) + one.messages(1, NOW):
            hear(one, 0, message)
            hear(one, 1, message)
            if any(check.key == "hot" for check in message.absorb.checks):
                origins.add(message.absorb.origin)
    assert len(origins) == 1
