"""`HeavyHitters`: which keys are hot, how hot at least and at most, in how much memory."""

from __future__ import annotations

import math
import random
import threading
from collections import Counter

import pytest

from headgate.errors import OptionError
from headgate.observability.sketches import HeavyHitters
from headgate.units import MILLISECOND, SECOND

STEP = 1.02
"""The weights change in steps of a 64th of a half-life: about one percent."""


def steady(sketch: HeavyHitters, key: str, per_second: int, seconds: float, start_ns: int) -> float:
    apart_ns = SECOND // per_second
    rate = 0.0
    for n in range(int(per_second * seconds)):
        rate = sketch.add("g", key, 1, start_ns + n * apart_ns)
    return rate


def test_a_steady_rate_is_found_within_a_few_percent() -> None:
    sketch = HeavyHitters(8)
    assert steady(sketch, "a", 200, 12, 0) == pytest.approx(200, rel=0.03)


def test_after_one_half_life_of_load_half_of_the_rate_is_known() -> None:
    sketch = HeavyHitters(8, half_life_ns=2 * SECOND)
    assert steady(sketch, "a", 500, 2, 0) == pytest.approx(250, rel=0.03)


def test_units_count_not_requests() -> None:
    sketch = HeavyHitters(8)
    for n in range(100):
        one = sketch.add("g", "one", 1, n * MILLISECOND)
        ten = sketch.add("g", "ten", 10, n * MILLISECOND)
        assert ten == pytest.approx(10 * one)


def test_what_was_hot_is_half_as_hot_after_each_half_life_and_not_at_all_after_an_hour() -> None:
    sketch = HeavyHitters(8)
    rate = steady(sketch, "a", 1000, 5, 0)
    last_ns = 5 * SECOND
    assert sketch.add("g", "a", 0, last_ns + SECOND) == pytest.approx(rate / 2, rel=0.03)
    assert sketch.add("g", "a", 0, last_ns + 3 * SECOND) == pytest.approx(rate / 8, rel=0.03)
    assert sketch.top(3, last_ns + 3600 * SECOND) == []
    assert len(sketch) == 0


def test_the_estimate_goes_on_when_the_weights_start_anew() -> None:
    sketch = HeavyHitters(8, half_life_ns=10 * MILLISECOND)
    assert steady(sketch, "a", 1000, 5, 0) == pytest.approx(1000, rel=0.15)
    assert steady(sketch, "a", 1000, 5, 5 * SECOND) == pytest.approx(1000, rel=0.15)


def test_groups_do_not_mix() -> None:
    sketch = HeavyHitters(8)
    sketch.add("g", "a", 5, 0)
    assert sketch.add("h", "a", 0, 0) == 0.0


def test_a_clock_that_goes_back_neither_raises_nor_forgets() -> None:
    sketch = HeavyHitters(8)
    before = sketch.add("g", "a", 1, 10 * SECOND)
    after = sketch.add("g", "a", 1, 0)
    assert after == pytest.approx(2 * before)


def test_the_top_is_in_order_and_no_longer_than_asked_for() -> None:
    sketch = HeavyHitters(8)
    for key, amount in (("b", 20), ("c", 10), ("a", 30)):
        sketch.add("g", key, amount, 0)
    assert [heavy.key for heavy in sketch.top(2, 0)] == ["a", "b"]
    assert [heavy.key for heavy in sketch.top(9, 0)] == ["a", "b", "c"]


def test_memory_is_bounded_whatever_is_sprayed() -> None:
    sketch = HeavyHitters(50)
    for n in range(10_000):
        sketch.add("g", f"key-{n}", 1, n * 1000)
        assert len(sketch) <= 100


def test_a_long_key_is_known_by_a_short_name_of_its_own() -> None:
    sketch = HeavyHitters(8)
    sketch.add("g", "x" * 100_000 + "1", 1, 0)
    sketch.add("g", "x" * 100_000 + "2", 1, 0)
    names = [heavy.key for heavy in sketch.top(9, 0)]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 120
    assert sketch.add("g", "x" * 100_000 + "1", 0, 0) > 0


def test_sprayed_keys_do_not_look_hot_and_do_not_hide_a_hot_one() -> None:
    sketch = HeavyHitters(100)
    hottest = 0.0
    for n in range(60_000):
        now_ns = n * SECOND // 10_000
        hottest = max(hottest, sketch.add("g", f"spray-{n}", 1, now_ns))
        if n % 20 == 0:
            sketch.add("g", "hot", 1, now_ns)
    top = sketch.top(3, 6 * SECOND)
    assert top[0].key == "hot"
    assert top[0].per_second == pytest.approx(500, rel=0.05)
    assert hottest == pytest.approx(math.log(2), rel=0.01)


@pytest.mark.parametrize("seed", range(8))
def test_true_rates_lie_within_the_stated_error_and_every_heavy_key_is_known(seed: int) -> None:
    rng = random.Random(seed)
    capacity, half_life_ns = rng.choice([5, 20, 60]), rng.choice([SECOND, 50 * MILLISECOND])
    sketch = HeavyHitters(capacity, half_life_ns=half_life_ns)
    now_ns, seen = 0, []
    for _ in range(6000):
        now_ns += rng.randrange(2 * MILLISECOND)
        key = f"{int(rng.paretovariate(0.6)) % 5000}"
        amount = rng.randrange(1, 5)
        sketch.add("g", key, amount, now_ns)
        seen.append((key, amount, now_ns))
    true: Counter[str] = Counter()
    per_unit = math.log(2) * SECOND / half_life_ns
    for key, amount, at_ns in seen:
        true[key] += amount * 2 ** ((at_ns - now_ns) / half_life_ns) * per_unit  # type: ignore[assignment]  # a Counter of floats
    known = {heavy.key: heavy for heavy in sketch.top(10 * capacity, now_ns)}
    most_error = sum(true.values()) / capacity
    for key, heavy in known.items():
        assert heavy.error <= most_error * STEP, f"seed {seed}"
        assert heavy.per_second <= true[key] * STEP + 1e-6, f"seed {seed}"
        assert true[key] <= (heavy.per_second + heavy.error) * STEP + 1e-6, f"seed {seed}"
    for key, rate in true.items():
        assert rate <= most_error * STEP or key in known, f"seed {seed}"


def test_threads_may_share_one() -> None:
    sketch = HeavyHitters(16)

    def work(start: int) -> None:
        for n in range(5_000):
            sketch.add("g", "hot" if n % 2 else f"{start}-{n}", 1, n * 100_000)
            if n % 100 == 0:
                sketch.top(4, n * 100_000)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sketch.top(1, 500 * MILLISECOND)[0].key == "hot"
    assert len(sketch) <= 36


@pytest.mark.parametrize("options", [{"capacity": 0}, {"capacity": 3, "half_life_ns": 1}])
def test_what_makes_no_sketch_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="expected at least"):
        HeavyHitters(**options)
