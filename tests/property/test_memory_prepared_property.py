"""A prepared take of the memory store decides like the operation, for equal and different keys."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.limits import parse_limit
from headgate.stores.base import checks_at
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import Check, Reset, Take
from headgate.testing import ManualClock
from tests.examples import example_count

LIMITS = ("2/s", "3/2s gcra", "4/s fixed_window", "3/s sliding_window_counter")
KEYS = ("a", "b", "c", "d")
STEPS = st.tuples(
    st.lists(st.sampled_from(KEYS), min_size=3, max_size=3),
    st.lists(st.sampled_from([0, 1, 1, 1, 2, 9]), min_size=3, max_size=3),
    st.sampled_from([0, 0.01, 0.3, 1, 5, -1]),
    st.booleans(),
)


@settings(max_examples=example_count(200), deadline=None)
@given(
    st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3),
    st.lists(STEPS, min_size=1, max_size=30),
)
def test_a_prepared_take_decides_like_the_operation(
    texts: list[str], steps: list[tuple[list[str], list[int], float, bool]]
) -> None:
    places = [(f"group-{n}", parse_limit(text)) for n, text in enumerate(texts)]
    clock = ManualClock(1_800_000_000)
    one, other = MemoryStore(clock=clock), MemoryStore(clock=clock)
    prepared = one.prepare(places)
    for all_keys, all_costs, pause, is_reset in steps:
        clock.advance_ns(round(pause * 1e9))
        keys, costs = all_keys[: len(places)], all_costs[: len(places)]
        expected = other.run(Take(checks_at(places, keys, costs)))
        assert prepared.take(keys, costs) == expected
        if is_reset:
            group, limit = places[0]
            for store in (one, other):
                store.run(Reset((Check(group, keys[0], limit, 1),)))
