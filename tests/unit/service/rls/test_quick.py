"""The reply to an allowed call has the headers that any answer has, decided in one take or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.rls_client import NOON, Asker, DistantStore, desc

if TYPE_CHECKING:
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


def slowed(asker: Asker) -> None:
    """Have each call of *asker* decided and encoded in the general way."""
    asker.calls._encoder._can_be_quick = False
    read = asker.calls._read

    def read_call(request: bytes) -> PlannedCall:
        planned = read(request)
        planned.plan.is_plain = False
        return planned

    asker.calls._read = read_call  # type: ignore[method-assign]


def answers(
    limits: list[str],
    several: list[tuple[int, float, str]],
    *,
    slowly: bool,
    headers: bool,
    is_gone: bool = False,
) -> list[object]:
    """The replies to calls of *several*; *slowly*: each decided and encoded in the general way."""
    rules = [
        f"{{id: r{n}, key_by: 'attribute:u', {what if ':' in what else f'limit: {what}'}}}"
        for n, what in enumerate(limits)
    ]
    policy = f"version: 1\nrules: [{', '.join(rules)}]\n"
    clock = ManualClock(NOON + 0.25)
    store = DistantStore(clock) if is_gone else None
    if store is not None:
        store.is_gone = True
    asker = Asker(policy, options=RlsOptions(headers=headers), clock=clock, store=store)
    if slowly:
        slowed(asker)
    told: list[object] = []
    for hits, wait, user in several:
        asker.clock.advance(wait)
        told.append(asker.ask("edge", desc(f"u={user}"), hits=hits))
    return told


limits = st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3)


@settings(max_examples=example_count(300), deadline=None)
@given(limits, steps, st.booleans())
def test_the_reply_to_an_allowed_call_is_the_one_encoded_in_full(
    limits: list[str], several: list[tuple[int, float, str]], headers: bool
) -> None:
    quick = answers(limits, several, slowly=False, headers=headers)
    assert quick == answers(limits, several, slowly=True, headers=headers)


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("limits", [["100/day gcra"], ["100/day gcra", "1/hour"]])
def test_so_it_is_without_the_store(limits: list[str], headers: bool) -> None:
    # One call, whose figures are those of new counters: the fallback has the time of this host.
    asked = [(1, 0.0, "ada")]
    quick = answers(limits, asked, slowly=False, headers=headers, is_gone=True)
    assert quick == answers(limits, asked, slowly=True, headers=headers, is_gone=True)
