"""The quick answer is the one that the long way gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.rls import RlsOptions, fast_path
from headgate.service.rls.fast_path import Way, quick_answer
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.rls_client import NOON, Asker, desc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from headgate.clock import Clock
    from headgate.service.rls.descriptors import Part
    from headgate.service.rls.fast_path import Admitted

LIMITS = (
    "10/minute",
    "7/3s",
    "1/hour",
    "1000/second burst 5",
    "100/day gcra",
    "20/minute leaky_bucket",
    "10/minute fixed_window",
    "3/hour fixed_window",
    "10/minute sliding_window_log",
    "10/minute sliding_window_counter",
    "shape: {rate: 7/3s, queue: 4, max_wait: 1500ms}",
)
steps = st.lists(
    st.tuples(
        st.integers(0, 12), st.floats(0, 100, allow_nan=False), st.sampled_from(["ada", "bob"])
    ),
    min_size=1,
    max_size=12,
)


class NoWays(dict[Any, Any]):
    """There is no short cut to anything."""

    def __missing__(self, place: object) -> Way:
        return Way(None, None, None)


def answers(
    limit: str, several: list[tuple[int, float, str]], *, slowly: bool, headers: bool
) -> list[object]:
    what = limit if ":" in limit else f"limit: {limit}"
    policy = f"version: 1\nrules: [{{id: r, key_by: 'attribute:u', {what}}}]\n"
    asker = Asker(policy, options=RlsOptions(headers=headers), clock=ManualClock(NOON + 0.25))
    if slowly:
        asker.calls._ways._ways = NoWays()
    told: list[object] = []
    for hits, wait, user in several:
        asker.clock.advance(wait)
        told.append(asker.ask("edge", desc(f"u={user}"), hits=hits))
    return told


@settings(max_examples=example_count(150), deadline=None)
@given(st.sampled_from(LIMITS), steps, st.booleans())
def test_both_ways_say_the_same(
    limit: str,
    several: list[tuple[int, float, str]],
    headers: bool,
) -> None:
    quick = answers(limit, several, slowly=False, headers=headers)
    assert quick == answers(limit, several, slowly=True, headers=headers)


def test_the_quick_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(parts: Sequence[Part], clock: Clock, *, with_headers: bool) -> Admitted:
        made.append(parts)
        return quick_answer(parts, clock, with_headers=with_headers)

    monkeypatch.setattr(fast_path, "quick_answer", counted)
    asker = Asker("version: 1\nrules: [{id: r, key_by: 'attribute:u', limit: 10/minute}]\n")
    for user in ("ada", "bob", "ada"):
        asker.ask("edge", desc(f"u={user}"))
    assert len(made) == 1
