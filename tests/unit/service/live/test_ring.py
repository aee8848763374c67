"""Counts by second, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.live.recorder import MAX_LINES, WHOLE, Counts, Points, Ring, spread
from headgate.service.live.snapshot import NO_POINTS, RingPacker, joined, parted, unpacked
from tests.examples import example_count


def test_points_are_told_oldest_first_and_the_last_is_the_end() -> None:
    ring = Ring(1, 4)
    for number, count in ((10, 1), (11, 2), (12, 3)):
        ring.put(number, {("a", "allowed"): count})
    assert ring.points().end == 12
    assert list(ring.points().lines["a", "allowed"]) == [0, 1, 2, 3]


def test_old_points_go_and_points_at_which_nothing_was_said_are_zero() -> None:
    ring = Ring(1, 4)
    ring.put(10, {("a", "allowed"): 1})
    ring.put(11, {("a", "allowed"): 2})
    ring.put(13, {("a", "denied"): 9})
    lines = ring.points().lines
    assert list(lines["a", "allowed"]) == [1, 2, 0, 0]
    assert list(lines["a", "denied"]) == [0, 0, 0, 9]
    ring.put(99, {})
    assert [list(line) for line in ring.points().lines.values()] == [[0] * 4, [0] * 4]


def test_a_thousand_rules_leave_the_busiest() -> None:
    ring = Ring(1, 3)
    ring.put(1, {("busy", "allowed"): 1_000_000})
    for second in range(2, 4):
        ring.put(second, {(f"rule-{n}", "allowed"): n for n in range(1, 1000)})
    lines = ring.points().lines
    assert len(lines) == MAX_LINES
    assert ("busy", "allowed") in lines
    assert ("rule-999", "allowed") in lines
    assert ("rule-1", "allowed") not in lines


def test_whole_requests_are_never_left_out_for_rules() -> None:
    ring = Ring(1, 3)
    ring.put(1, {(WHOLE, "allowed"): 9, (WHOLE, "denied"): 1})
    for second in range(2, 4):
        ring.put(second, {(f"rule-{n}", "allowed"): 50 for n in range(1000)})
    lines = ring.points().lines
    assert len(lines) == MAX_LINES
    assert (list(lines[WHOLE, "allowed"]), list(lines[WHOLE, "denied"])) == ([9, 0, 0], [1, 0, 0])


def test_another_ring_goes_on_where_one_has_ended() -> None:
    first, second = Ring(1, 5), Ring(1, 5)
    for number in range(100, 108):
        first.put(number, {("a", "allowed"): number})
    second.restore(first.points())
    assert second.points() == first.points()
    for ring in (first, second):
        ring.put(109, {("a", "allowed"): 1})
    assert second.points() == first.points()
    assert list(second.points().lines["a", "allowed"]) == [105, 106, 107, 0, 1]


def test_a_ring_of_another_length_is_not_taken_over() -> None:
    first, second = Ring(1, 5), Ring(1, 6)
    first.put(3, {("a", "allowed"): 1})
    second.restore(first.points())
    assert not second.points().lines


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


def test_points_come_back_from_bytes() -> None:
    ring = Ring(1, 3)
    packer = RingPacker(ring)
    assert unpacked(packer.packed()) == Points(None, {})
    for number in range(7, 12):
        ring.put(number, {("ä\n", "allowed"): 2**40 + number, (f"b{number}", "denied"): 1})
        assert unpacked(packer.packed()) == ring.points()
    ring.go_back(10)
    assert unpacked(packer.packed()) == ring.points()
    other = Ring(1, 3)
    other.restore(ring.points())
    assert unpacked(RingPacker(other).packed()) == ring.points()
    ring.clear()
    assert unpacked(packer.packed()) == unpacked(NO_POINTS) == Points(None, {})


def test_points_that_have_not_changed_are_not_written_anew() -> None:
    ring = Ring(1, 3)
    ring.put(7, {("a", "allowed"): 1})
    packer = RingPacker(ring)
    assert packer.packed() is packer.packed()


def test_points_that_will_come_again_are_forgotten() -> None:
    ring = Ring(1, 5)
    for number in range(100, 107):
        ring.put(number, {("a", "allowed"): number})
    ring.go_back(107)
    assert ring.end == 106
    ring.go_back(105)
    assert ring.end == 104
    assert list(ring.points().lines["a", "allowed"]) == [0, 0, 102, 103, 104]
    ring.put(105, {("a", "allowed"): 1})
    assert list(ring.points().lines["a", "allowed"]) == [0, 102, 103, 104, 1]
    ring.go_back(7)
    assert ring.points() == Points(None, {})


@pytest.mark.parametrize(
    "data", [b"", b"\x02\0\0\0[]", b"\xff\xff\xff\xff", b"\x0d\0\0\0[1,3,[[1,2]]]"]
)
def test_bytes_that_are_no_points_are_told(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
        unpacked(data)


@settings(max_examples=example_count(30))
@given(st.lists(st.binary(max_size=50), max_size=5))
def test_sections_come_back(sections: list[bytes]) -> None:
    assert parted(joined(sections)) == sections


def test_sections_that_are_cut_are_told() -> None:
    with pytest.raises(ValueError, match="a section ends at"):
        parted(joined([b"abc"])[:-1])
