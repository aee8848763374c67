"""Who asked and who was denied, in bounded memory."""

import pytest

from headgate.simulator.tallies import Distinct, Keys


def forgotten() -> None:
    """Nobody keeps counts here."""


def test_keys_are_counted_exactly_while_there_is_room() -> None:
    keys = Keys(forgotten, most=10)
    for number in range(10):
        keys.count_of(f"k{number}")[number % 2] += number
    assert keys.is_exact
    assert keys.how_many() == (10, 5)
    assert [(one.key, one.denied) for one in keys.most_denied()][:2] == [("k9", 9), ("k7", 7)]


def test_beyond_that_the_most_denied_stay_and_the_rest_is_estimated() -> None:
    cleared = []
    keys = Keys(lambda: cleared.append(1), most=100)
    keys.count_of("victim")[1] += 1000
    for number in range(5000):
        keys.count_of(f"k{number}")[number % 2] += 1
    asked, denied = keys.how_many()
    assert not keys.is_exact
    assert cleared
    assert asked == pytest.approx(5001, rel=0.05)
    assert denied == pytest.approx(2501, rel=0.05)
    assert keys.most_denied()[0].key == "victim"


@pytest.mark.parametrize("count", [0, 10, 1000, 40_000, 80_000])
def test_an_estimate_is_near_and_always_the_same(count: int) -> None:
    one, other = Distinct(), Distinct()
    for number in range(count):
        one.add(f"key-{number}")
        other.add(f"key-{count - 1 - number}")
    assert len(one) == len(other) == pytest.approx(count, rel=0.03)
