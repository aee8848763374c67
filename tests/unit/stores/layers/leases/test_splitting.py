"""How a counter is split: sizes that keep within what may be lent, names that spread."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest

from headgate.limits import Accuracy, Concurrency, TokenBucket
from headgate.stores.layers.leases.lease import PLACES, Split, pot_key, pots_group
from headgate.stores.redis.naming import TAGS, Names, slot_of


def split(quota: int = 100_000, **terms: object) -> Split | None:
    return Split.of(TokenBucket(quota, 1), Accuracy(**terms))  # type: ignore[arg-type]  # any terms


def test_a_quarter_of_what_may_be_lent_is_for_the_pots_and_nodes_leave_room_for_it() -> None:
    found = split(max_overshoot=Fraction(1, 100), split=8)
    assert found == Split(parts=8, share=31, cap=1000 - 8 * 7)
    assert found is not None
    assert found.node_cap == 1000 - 8 * 31


@pytest.mark.parametrize("seed", range(5))
def test_full_pots_and_all_loans_never_exceed_what_may_be_lent(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        quota, parts = rng.randrange(1, 10**6), rng.randrange(2, 65)
        overshoot = Fraction(rng.randrange(1, 101), 100)
        found = split(quota, max_overshoot=overshoot, split=parts)
        if found is None:
            continue
        cap = int(quota * overshoot)
        assert found.cap is not None
        assert found.cap + found.parts * (found.largest_draw - 1) == cap, f"seed {seed}"
        assert found.pour + found.largest_draw - 1 == found.share, f"seed {seed}"
        assert found.parts * found.share <= cap // 4, f"seed {seed}"
        assert found.pour >= 1, f"seed {seed}"
        assert found.largest_draw >= 1, f"seed {seed}"


def test_there_are_no_more_pots_than_units_for_them() -> None:
    found = split(100, max_overshoot=Fraction(1, 5), split=8)
    assert found == Split(parts=5, share=1, cap=20)
    assert split(100, max_overshoot=Fraction(7, 100), split=8) is None


def test_with_a_batch_for_each_holder_a_pot_is_a_holder() -> None:
    assert split(batch=20, split=4) == Split(parts=4, share=20, cap=None)
    found = split(1000, batch=20, max_overshoot=Fraction(1, 10), split=5)
    assert found == Split(parts=5, share=5, cap=100 - 5)


def test_what_needs_no_pots_has_none() -> None:
    tenth = Fraction(1, 10)
    assert split(max_overshoot=tenth) is None
    assert split(max_overshoot=tenth, sync_ns=10**8, split=8) is None
    terms = Accuracy(max_overshoot=tenth, split=8)
    assert Split.of(Concurrency(1000, 60), terms) is None


def test_pots_stand_in_as_many_places_of_a_cluster_as_there_are() -> None:
    assert PLACES == TAGS
    names = Names(has_tags=True)
    for parts in (2, 3, 8, 16):
        for key in ("user:42", "ключ", "x" * 300, "#3.1"):
            keys = [pot_key(key, part, parts) for part in range(parts)]
            slots = {slot_of(names.counter(pots_group("g"), name)) for name in keys}
            assert len(slots) == parts


def test_eight_pots_stand_evenly_on_three_primaries() -> None:
    names = Names(has_tags=True)
    primaries = Counter(
        slot_of(names.counter("g", pot_key("hot", part, 8))) * 3 // 16_384 for part in range(8)
    )
    assert sorted(primaries.values()) == [2, 3, 3]


def test_more_pots_than_places_are_shared_out_evenly() -> None:
    names = Names(has_tags=True)
    slots = Counter(slot_of(names.counter("g", pot_key("hot", part, 64))) for part in range(64))
    assert set(slots.values()) == {4}


def test_no_two_pots_have_one_name() -> None:
    keys = ["a", "a#0", "a#0.1", "a#1.0", "a#"]
    names = [pot_key(key, part, parts) for key in keys for parts in (2, 7) for part in range(parts)]
    by_counter = {(key, part) for key in keys for part in range(7)}
    assert len(set(names)) <= 2 * len(by_counter)
    owners = {name: name.rpartition("#")[0] for name in names}
    assert all(pot_key(owner, 0, 2) in names for owner in owners.values())


def test_the_pots_of_a_group_are_no_counters_of_a_limiter() -> None:
    names = Names(has_tags=False)
    assert names.counter(pots_group("8:headgate:0"), "k").startswith(b"@pots of ")
