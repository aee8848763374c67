"""The prepared answer to an allowed call is the one made from its decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.rls import RlsOptions, answer
from headgate.service.rls.answer import Answering, allowed_answer
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.rls_client import NOON, Asker, desc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from headgate.clock import Clock
    from headgate.engine.calls import Part
    from headgate.service.rls.answer import Allowed
    from headgate.service.rls.descriptors import Asked

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


class AtLength(Answering):
    """No call is decided by its prepared take, and no answer is prepared."""

    def prepared(self, asked: Asked) -> None:
        asked.plan.is_plain = False


def answers(
    limit: str, several: list[tuple[int, float, str]], *, slowly: bool, headers: bool
) -> list[object]:
    what = limit if ":" in limit else f"limit: {limit}"
    policy = f"version: 1\nrules: [{{id: r, key_by: 'attribute:u', {what}}}]\n"
    asker = Asker(policy, options=RlsOptions(headers=headers), clock=ManualClock(NOON + 0.25))
    if slowly:
        asker.calls._answering = AtLength(asker.core, asker.calls._options)
    told: list[object] = []
    for hits, wait, user in several:
        asker.clock.advance(wait)
        told.append(asker.ask("edge", desc(f"u={user}"), hits=hits))
    return told


@settings(max_examples=example_count(150), deadline=None)
@given(st.sampled_from(LIMITS), steps, st.booleans())
def test_a_prepared_answer_is_the_one_made_from_the_decision(
    limit: str,
    several: list[tuple[int, float, str]],
    headers: bool,
) -> None:
    quick = answers(limit, several, slowly=False, headers=headers)
    assert quick == answers(limit, several, slowly=True, headers=headers)


def test_an_answer_is_prepared_once_for_all_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(parts: Sequence[Part], clock: Clock, *, with_headers: bool) -> Allowed:
        made.append(parts)
        return allowed_answer(parts, clock, with_headers=with_headers)

    monkeypatch.setattr(answer, "allowed_answer", counted)
    asker = Asker("version: 1\nrules: [{id: r, key_by: 'attribute:u', limit: 10/minute}]\n")
    for user in ("ada", "bob", "ada"):
        asker.ask("edge", desc(f"u={user}"))
    assert len(made) == 1
