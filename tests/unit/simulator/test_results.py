"""Counts of keys in bounded memory."""

import pytest

from headgate.simulator.results import KeyCounts


def forgotten() -> None:
    """Keep no counts."""


def test_keys_are_counted_exactly_while_there_is_room() -> None:
    keys = KeyCounts(forgotten, most=10)
    for number in range(10):
        keys.count_of(f"k{number}")[number % 2] += number
    assert keys.is_exact
    assert keys.totals() == (10, 5)
    assert [(one.key, one.denied) for one in keys.most_denied()][:2] == [("k9", 9), ("k7", 7)]


@pytest.mark.parametrize("count", [1000, 5000, 40_000])
def test_beyond_that_the_most_denied_stay_and_the_rest_is_estimated(count: int) -> None:
    cleared = []
    keys = KeyCounts(lambda: cleared.append(1), most=100)
    keys.count_of("victim")[1] += 1000
    for number in range(count):
        keys.count_of(f"k{number}")[number % 2] += 1
    asked, denied = keys.totals()
    assert not keys.is_exact
    assert cleared
    assert asked == pytest.approx(count + 1, rel=0.03)
    assert denied == pytest.approx(count / 2 + 1, rel=0.03)
    assert keys.most_denied()[0].key == "victim"
