"""Points by second, in bounded memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.live.recorder import MAX_LINES, WHOLE, Counts, Series, spread
from tests.examples import example_count


def test_points_are_oldest_first_and_the_last_is_the_end() -> None:
    series = Series(4)
    for number, count in ((10, 1), (11, 2), (12, 3)):
        series.put(number, {("a", "allowed"): count})
    assert series.end == 12
    assert list(series.lines["a", "allowed"]) == [0, 1, 2, 3]


def test_old_points_go_and_skipped_points_are_zero() -> None:
    series = Series(4)
    series.put(10, {("a", "allowed"): 1})
    series.put(11, {("a", "allowed"): 2})
    series.put(13, {("a", "denied"): 9})
    lines = series.lines
    assert list(lines["a", "allowed"]) == [1, 2, 0, 0]
    assert list(lines["a", "denied"]) == [0, 0, 0, 9]
    series.put(99, {})
    assert [list(line) for line in series.lines.values()] == [[0] * 4, [0] * 4]


def test_of_a_thousand_rules_the_busiest_are_kept() -> None:
    series = Series(3)
    series.put(1, {("busy", "allowed"): 1_000_000})
    for second in range(2, 4):
        series.put(second, {(f"rule-{n}", "allowed"): n for n in range(1, 1000)})
    lines = series.lines
    assert len(lines) == MAX_LINES
    assert ("busy", "allowed") in lines
    assert ("rule-999", "allowed") in lines
    assert ("rule-1", "allowed") not in lines


def test_the_line_of_all_requests_is_never_dropped_for_rules() -> None:
    series = Series(3)
    series.put(1, {(WHOLE, "allowed"): 9, (WHOLE, "denied"): 1})
    for second in range(2, 4):
        series.put(second, {(f"rule-{n}", "allowed"): 50 for n in range(1000)})
    lines = series.lines
    assert len(lines) == MAX_LINES
    assert (list(lines[WHOLE, "allowed"]), list(lines[WHOLE, "denied"])) == ([9, 0, 0], [1, 0, 0])


@settings(max_examples=example_count(30))
@given(
    st.dictionaries(
        st.tuples(st.text(max_size=5), st.sampled_from(["allowed", "denied"])),
        st.integers(0, 1000),
        max_size=6,
    ),
    st.integers(1, 60),
)
def test_spreading_loses_nothing_and_is_even(counts: Counts, over: int) -> None:
    parts = spread(counts, over)
    assert len(parts) == over
    for line, count in counts.items():
        shares = [part.get(line, 0) for part in parts]
        assert sum(shares) == count
        assert max(shares) - min(shares) <= 1


def test_points_that_will_come_again_are_removed() -> None:
    series = Series(5)
    for number in range(100, 107):
        series.put(number, {("a", "allowed"): number})
    series.go_back(107)
    assert series.end == 106
    series.go_back(105)
    assert series.end == 104
    assert list(series.lines["a", "allowed"]) == [0, 0, 102, 103, 104]
    series.put(105, {("a", "allowed"): 1})
    assert list(series.lines["a", "allowed"]) == [0, 102, 103, 104, 1]
    series.go_back(7)
    assert series == Series(5)


def test_lines_can_be_moved_to_any_end_without_a_change_to_the_series() -> None:
    series = Series(4)
    for number in range(10, 14):
        series.put(number, {("a", "allowed"): number})
    ends = {9: [0] * 4, 12: [0, 10, 11, 12], 13: [10, 11, 12, 13], 15: [12, 13, 0, 0], 99: [0] * 4}
    for end, points in ends.items():
        assert list(series.moved_to(end)["a", "allowed"]) == points
    assert list(series.lines["a", "allowed"]) == [10, 11, 12, 13]


def test_sums_are_those_of_the_points_that_exist() -> None:
    series = Series(4)
    assert series.sums(0, 9) == {}
    for number in range(10, 14):
        series.put(number, {("a", "allowed"): number})
    assert series.sums(0, 11) == {("a", "allowed"): 21}
    assert series.sums(13, 60) == {("a", "allowed"): 13}
    assert series.sums(0, 9) == series.sums(14, 60) == {}
