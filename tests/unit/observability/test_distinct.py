"""The number of different keys."""

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.observability.sketches import ALL, Distinct, hash_of

HASHES = st.lists(st.integers(0, 999) | st.integers(0, ALL - 1), max_size=60)


def sketch_of(numbers: list[int], most: int = 16) -> Distinct:
    distinct = Distinct(most)
    for number in numbers:
        distinct.add(number)
    return distinct


def joined(sketches: list[Distinct], most: int = 10**6) -> Distinct:
    return Distinct(most).merge(*sketches)


def parts(sketch: Distinct) -> tuple[int, list[int]]:
    return sketch.bound, sorted(sketch.hashes)


def sketch_of_keys(first: int, last: int, most: int = 1024) -> Distinct:
    return sketch_of([hash_of(f"tenant={n}") for n in range(first, last)], most)


def test_few_keys_are_counted_exactly_however_often_they_come() -> None:
    sketch = sketch_of([hash_of(f"user={n % 1024}") for n in range(3000)], 1024)
    assert (sketch.count, sketch.is_exact) == (1024, True)
    one_more = sketch_of_keys(0, 1025)
    assert not one_more.is_exact
    assert len(one_more.hashes) == 1024


@pytest.mark.parametrize("count", [2_000, 10_000, 50_000])
def test_many_keys_are_counted_within_ten_percent(count: int) -> None:
    sketch = sketch_of_keys(0, count)
    assert not sketch.is_exact
    assert sketch.count == pytest.approx(count, rel=0.1)


def test_keys_that_two_have_seen_count_once() -> None:
    both = joined([sketch_of_keys(0, 6_000), sketch_of_keys(4_000, 10_000)])
    assert both.count == pytest.approx(10_000, rel=0.1)
    exact = joined([sketch_of_keys(0, 900), sketch_of_keys(600, 1_500)])
    assert (exact.count, exact.is_exact) == (1_500, True)


def test_one_that_is_exact_and_one_that_is_not_are_joined() -> None:
    both = joined([sketch_of_keys(0, 20), sketch_of_keys(0, 5_000)])
    assert parts(both) == parts(sketch_of_keys(0, 5_000))


@settings(deadline=None)
@given(st.lists(HASHES, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_joining_does_not_matter(lists: list[list[int]], chance: Random) -> None:
    sketches = [sketch_of(numbers) for numbers in lists]
    shuffled = [*sketches, *sketches[:1]]
    chance.shuffle(shuffled)
    whole = joined(sketches)
    assert parts(joined(shuffled)) == parts(whole)
    assert parts(joined([joined(sketches[:2]), *sketches[2:]])) == parts(whole)
    together = sketch_of(list(itertools.chain.from_iterable(lists)))
    assert parts(joined(sketches, 16)) == parts(together)
    assert all(number < whole.bound for number in whole.hashes)


@settings(deadline=None)
@given(HASHES)
def test_what_is_kept_are_the_least(numbers: list[int]) -> None:
    sketch = sketch_of(numbers)
    kept = sorted(set(numbers))
    assert sorted(sketch.hashes) == kept[:16]
    assert sketch.bound == (kept[16] if len(kept) > 16 else ALL)


@settings(deadline=None)
@given(HASHES)
def test_a_sketch_comes_back_as_it_was_packed(numbers: list[int]) -> None:
    sketch = sketch_of(numbers)
    assert parts(Distinct.unpacked(sketch.packed())) == parts(sketch)


def test_keys_of_any_characters_have_a_hash() -> None:
    assert hash_of("\ud800\0é") != hash_of("")
    assert 0 <= hash_of("") < ALL


@settings(deadline=None)
@given(HASHES, HASHES, st.integers(1, 16))
def test_sketches_are_merged_and_fewer_hashes_kept(
    numbers: list[int], others: list[int], most: int
) -> None:
    distinct, others_alone = sketch_of(numbers), sketch_of(others, 8)
    assert parts(Distinct.unpacked(distinct.packed())) == parts(distinct)
    distinct.merge(others_alone)
    both = [sketch_of(numbers), others_alone]
    assert parts(distinct) == parts(joined(both, 16))
    distinct.allot(most)
    assert parts(Distinct.unpacked(distinct.packed())) == parts(joined(both, most))
