"""What a load test says of a history: never that a limit was exceeded that was kept, and always if
one more was admitted than can be."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from headgate import RateLimiter
from headgate.limits import Limit, PacedLimit, WindowedLimit, parse_limits
from headgate.loadtest.judgement import due_of, excess, most_between
from headgate.testing import ManualClock
from tests.support.histories import MILLISECOND, SECOND, STARTS, examples

LIMITS = (
    "3/s",
    "1/s",
    "10/s burst 4",
    "7/3s gcra",
    "5/s leaky_bucket",
    "4/s fixed_window",
    "3/s sliding_window_log",
    "4/s sliding_window_counter",
    "6/2s sliding_window_counter subwindows 3",
    "5/s; 8 per 3s fixed_window",
    "10/s peak 20/s for 1s",
)


class Asked(NamedTuple):
    """A request: how long after the one before, and how far the client's times are off."""

    later: int
    sent_before: int
    answered_after: int


class History(NamedTuple):
    """What a limiter did with requests: when it decided, and which it admitted."""

    limits: tuple[Limit, ...]
    cost: int
    times: list[int]
    allowed: list[bool]


def _gaps(most: int) -> st.SearchStrategy[int]:
    edges = (0, 1, 100 * MILLISECOND, SECOND // 3, SECOND - 1, SECOND, SECOND + 1)
    return st.sampled_from([one for one in edges if one <= most]) | st.integers(0, most)


ASKED = st.builds(
    Asked, _gaps(2 * SECOND) | st.integers(0, 50 * MILLISECOND), _gaps(SECOND), _gaps(SECOND)
)
CASES = st.tuples(
    st.sampled_from(LIMITS), st.sampled_from([1, 1, 1, 2]), STARTS, st.lists(ASKED, max_size=25)
)
Case = tuple[str, int, int, list[Asked]]


def _history(case: Case) -> History:
    text, cost, start, asked = case
    limits = parse_limits(text)
    cost = min(cost, *(limit.quota for limit in limits))
    clock = ManualClock()
    clock.advance_ns(start)
    limiter = RateLimiter(limits, clock=clock)
    times, admitted = [], []
    for one in asked:
        clock.advance_ns(one.later)
        times.append(clock())
        admitted.append(bool(limiter.hit("caller", cost)))
    return History(limits, cost, times, admitted)


@examples(300)
@given(CASES)
def test_what_a_limiter_admitted_is_never_too_much_however_late_it_is_heard_of(case: Case) -> None:
    history = _history(case)
    rows = list(zip(history.times, history.allowed, case[3], strict=True))
    sent = [time - one.sent_before for time, admitted, one in rows if admitted]
    answered = [time + one.answered_after for time, admitted, one in rows if admitted]
    assert excess(history.limits, history.cost, sent, answered) is None


@examples(200)
@given(CASES, st.data())
def test_one_more_than_a_limiter_admitted_is_too_much(case: Case, data: st.DataObject) -> None:
    history = _history(case)
    refused = [place for place, admitted in enumerate(history.allowed) if not admitted]
    if not refused:
        return
    extra = data.draw(st.sampled_from(refused))
    times = [
        time
        for place, (time, admitted) in enumerate(zip(history.times, history.allowed, strict=True))
        if admitted or place == extra
    ]
    found = excess(history.limits, history.cost, times, times)
    assert found is not None
    assert found.at_most < found.allowed <= len(times)


@examples(200)
@given(CASES)
@example(("3/s sliding_window_log", 1, 0, [Asked(100 * MILLISECOND, 0, 0)] * 9))
def test_what_is_due_is_what_a_limiter_admits(case: Case) -> None:
    history = _history(case)
    due = due_of(history.limits, history.cost, history.times)
    assert due == sum(history.allowed)


SPANS = st.lists(st.tuples(_gaps(SECOND), _gaps(SECOND)), min_size=1, max_size=20)


@examples(300)
@given(st.sampled_from([*LIMITS[:7]]), STARTS, SPANS)
def test_all_intervals_of_all_lengths_are_looked_at(
    text: str, start: int, spans: list[tuple[int, int]]
) -> None:
    (limit,) = parse_limits(text)
    now, sent, answered = start, [], []
    for gap, width in spans:
        now += gap
        sent.append(now)
        answered.append(now + width)
    found = excess([limit], 1, sent, answered)
    assert (found is not None) == _some_interval_has_too_many(limit, sorted(sent), sorted(answered))
    if found is not None:
        assert found.at_most == _most(limit, found.began_ns, found.ended_ns)


def _some_interval_has_too_many(limit: Limit, begins: list[int], ends: list[int]) -> bool:
    """The definition, by trying all of them."""
    return any(
        last - first + 1 > _most(limit, begins[first], ends[last])
        for last in range(len(ends))
        for first in range(last + 1)
    )


def _most(limit: Limit, began: int, ended: int) -> int:
    """The most that a limit admits between two moments, by its formula."""
    passed = ended - began
    if isinstance(limit, PacedLimit):
        return limit.quota + int(limit.per_second * passed / SECOND) if passed >= 0 else 0
    assert isinstance(limit, WindowedLimit)
    window = limit.window_ns
    if limit.algorithm == "fixed_window":
        return limit.quota * (ended // window - began // window + 1)
    return limit.quota * (passed // window + 1)


@examples(100)
@given(st.sampled_from([*LIMITS[:7]]), STARTS, _gaps(5 * SECOND))
def test_the_most_between_two_moments_is_what_the_formula_says(
    text: str, start: int, passed: int
) -> None:
    (limit,) = parse_limits(text)
    expected = _most(limit, start, start + passed)
    assert most_between([limit], 1, start, start + passed, 1_000) == expected
