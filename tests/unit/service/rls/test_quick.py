"""The reply to an allowed call has the headers that any answer has, decided in one take or not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.rls import RlsOptions, answer
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.rls_client import NOON, Asker, desc

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headgate.service.rls.descriptors import PlannedCall

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


def unprepared(asker: Asker) -> None:
    """Have no call of *asker* decided by prepared takes."""
    read = asker.calls._read

    def read_call(request: bytes) -> PlannedCall:
        planned = read(request)
        planned.plan.is_plain = False
        return planned

    asker.calls._read = read_call  # type: ignore[method-assign]


def in_full(*, slowly: bool) -> AbstractContextManager[object]:
    """Encode headers from the whole answer, if *slowly*."""
    return patch.object(answer, "allowed_lines", return_value=None) if slowly else nullcontext()


def answers(
    limit: str, several: list[tuple[int, float, str]], *, slowly: bool, headers: bool
) -> list[object]:
    what = limit if ":" in limit else f"limit: {limit}"
    policy = f"version: 1\nrules: [{{id: r, key_by: 'attribute:u', {what}}}]\n"
    asker = Asker(policy, options=RlsOptions(headers=headers), clock=ManualClock(NOON + 0.25))
    if slowly:
        unprepared(asker)
    told: list[object] = []
    with in_full(slowly=slowly):
        for hits, wait, user in several:
            asker.clock.advance(wait)
            told.append(asker.ask("edge", desc(f"u={user}"), hits=hits))
    return told


@settings(max_examples=example_count(150), deadline=None)
@given(st.sampled_from(LIMITS), steps, st.booleans())
def test_the_reply_to_an_allowed_call_is_the_one_encoded_in_full(
    limit: str,
    several: list[tuple[int, float, str]],
    headers: bool,
) -> None:
    quick = answers(limit, several, slowly=False, headers=headers)
    assert quick == answers(limit, several, slowly=True, headers=headers)
