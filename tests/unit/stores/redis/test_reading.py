"""What a person is told of a counter is what the algorithm would say."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.stores.redis.codec import paced_suffix
from headgate.stores.redis.inspect import (
    Held,
    State,
    read_slots,
    read_state,
)
from headgate.units import MICROSECOND, MINUTE, SECOND

NOW_US = 1_700_000_080_000_000  # 40 s after a whole minute
NOW = NOW_US * MICROSECOND


def read(value: str, *entries: str, now: int = NOW) -> State:
    state = read_state(value.encode(), [one.encode() for one in entries], now)
    assert state is not None
    return state


class TestPaced:
    @given(st.integers(1, 10**15), st.integers(1, 1_000), st.integers(1, 100))
    def test_units_in_use_are_those_that_were_taken(self, unit: int, ticks: int, used: int) -> None:
        rate = Fraction(ticks, unit)
        unit, ticks = rate.denominator, rate.numerator
        whole, more = divmod(used * unit, ticks)
        text = b"%016d%b" % (whole, paced_suffix(unit, ticks, 5)) + (
            b"%d" % more if ticks > 1 else b""
        )
        if whole >= 10**16:
            return
        state = read_state(text, [], 0)
        assert state is not None
        assert (state.kind, state.in_use) == ("paced", used)
        assert state.as_new_in_ns == -(-used * unit * MICROSECOND // ticks)

    @pytest.mark.parametrize(
        ("suffix", "limit"),
        [
            ("065,5", "100/m"),
            ("016,5", "1/s"),
            ("904,5", "10000/d"),
            ("204,5", "48/m"),
            ("/333333,5", "1/0.333333s"),
            ("/1000000/3/5/1", "3/s"),
            ("036,5", "20/m"),
            ("437,5", "1/430s"),
        ],
    )
    def test_the_rate_is_one_that_a_person_would_write(self, suffix: str, limit: str) -> None:
        assert read(f"{NOW_US}{suffix}").limit == limit

    def test_one_that_is_over_is_as_new(self) -> None:
        state = read(f"{NOW_US - 5}065,100")
        assert (state.in_use, state.as_new_in_ns) == (0, 0)

    def test_debt_has_the_time_of_its_writing_behind_it(self) -> None:
        assert read(f"{NOW_US + 600_000 * 120}065,100@{NOW_US}").in_use == 120

    def test_a_part_of_a_unit_counts_as_one(self) -> None:
        assert read(f"{NOW_US + 600_001}065,100").in_use == 2


class TestWindows:
    def test_a_fixed_window_is_counted_until_it_is_over(self) -> None:
        index = NOW // MINUTE
        state = read(f"F60000000,100,{index},7")
        stepped_back = read(f"F60000000,100,{index},7,{NOW_US - 1_000_000}")
        assert (stepped_back.in_use, stepped_back.as_new_in_ns) == (7, 59 * SECOND)
        assert (state.kind, state.limit, state.quota) == ("fixed_window", "100/m", 100)
        assert (state.in_use, state.as_new_in_ns) == (7, 20 * SECOND)
        over = read(f"F60000000,100,{index - 1},7")
        assert (over.in_use, over.as_new_in_ns) == (0, 0)

    def test_a_sliding_counter_is_estimated(self) -> None:
        index = NOW // MINUTE
        state = read(f"C60000000,1,100,{index},30,5")
        assert (state.kind, state.limit) == ("sliding_window_counter", "100/m")
        assert state.in_use == 30 // 3 + 5
        assert state.as_new_in_ns == 80 * SECOND

    def test_a_log_counts_the_entries_of_its_window(self) -> None:
        old, young = NOW_US - 1_000_000, NOW_US - 400_000
        state = read(f"L1000000,5,{NOW_US},4,0,0", f"{old}", f"{young}:3")
        assert (state.kind, state.limit) == ("sliding_window_log", "5/s")
        assert (state.in_use, state.as_new_in_ns) == (3, 600_000_000)

    def test_a_log_has_its_entries_moved_by_the_offset(self) -> None:
        assert read(f"L1000000,5,{NOW_US},1,0,{NOW_US - 100}", "99").in_use == 1

    def test_debt_is_in_use_beyond_the_quota(self) -> None:
        assert read(f"L1000000,5,{NOW_US},5,7,0", f"{NOW_US}:5").in_use == 12
        assert read(f"F60000000,5,{NOW // MINUTE},12").in_use == 12

    def test_a_log_whose_list_was_deleted_has_its_debt_left(self) -> None:
        state = read(f"L1000000,5,{NOW_US},5,7,0")
        assert (state.in_use, state.as_new_in_ns) == (7, SECOND)
        assert read(f"L1000000,5,{NOW_US},5,0,0").as_new_in_ns == 0


class TestReservationsAndSlots:
    def test_open_reservations_are_held_and_lapsed_ones_are_not(self) -> None:
        later, earlier = NOW_US + 9_000_000, NOW_US
        state = read(f"{NOW_US}065,100|{later}:8:9000000:a%7Cb%2525|{earlier}:5:1:gone")
        assert state.reservations == (Held("a|b%25", 8, 9 * SECOND),)
        assert (state.in_use, state.held, state.as_new_in_ns) == (0, 8, 9 * SECOND)

    def test_expired_reservations_that_charge_are_in_use_from_their_instant(self) -> None:
        before = NOW_US - 1_000_000
        charged = read(f"{before}065,100|{before}:5:9000000+:a|{before}:7:9000000!:b")
        assert charged.reservations == ()
        assert (charged.in_use, charged.as_new_in_ns) == (4, 2 * SECOND)
        again = read(f"{before}065,100|{before}:5:9000000+:a|{before - 1_000_000}:5:1+:b")
        assert (again.in_use, again.as_new_in_ns) == (9, 5 * SECOND)

    @pytest.mark.parametrize(
        ("value", "in_use", "entries"),
        [
            ("F60000000,100,{index},7", 12, ()),
            ("C60000000,1,100,{index},30,5", 20, ()),
            ("L60000000,9,{now},2,0,0", 7, ("{now}:2",)),
            ("L60000000,9,{now},0,0,0", 5, ()),
        ],
    )
    def test_expired_reservations_are_in_use_in_their_window(
        self, value: str, in_use: int, entries: tuple[str, ...]
    ) -> None:
        def filled(text: str) -> str:
            return text.format(index=NOW // MINUTE, now=NOW_US - 2_000_000)

        listed = [filled(one) for one in entries]
        hold = f"|{NOW_US - 1_000_000}:5:9000000+:a"
        assert read(filled(value) + hold, *listed).in_use == in_use

    def test_an_open_reservation_that_charges_is_as_new_after_its_charge(self) -> None:
        state = read(f"{NOW_US}065,100|{NOW_US + 9_000_000}:8:9000000+:a")
        assert state.reservations == (Held("a", 8, 9 * SECOND),)
        assert (state.in_use, state.as_new_in_ns) == (0, 13_800_000_000)

    def test_slots_are_leases_that_have_not_run_out(self) -> None:
        leases = [(b"over", float(NOW_US)), (b"b", NOW_US + 3e6), (b"a", NOW_US + 2e6)]
        parts = [b"!gold:1:1800000000000000:9", b"gold:%016d:a" % (NOW_US + 2_000_000), b"odd"]
        state = read_slots(leases, parts, NOW)
        assert (state.kind, state.in_use, state.quota) == ("concurrency", 2, None)
        assert [(one.name, one.part) for one in state.leases] == [("a", "gold"), ("b", None)]
        assert state.as_new_in_ns == 3 * SECOND


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"hello",
        b"12345",
        b"17000000400000000000",  # twenty digits
        b"1700000040000000000",  # a unit that takes no time
        b"1700000040000000/0,5",
        b"1700000040000000/5/0/9/1",
        b"1700000040000000065",  # no quota
        b"1700000040000000065,5|",
        b"1700000040000000065,5|x:1:1:y",
        b"F0,5,1,1",  # no window
        b"F60000000,0,1,1",
        b"Fair",
        b"C60000000,2,5,1,1,1",  # a count is missing
        b"C60000000,1,5,1,1,",
        b"L1,2,3",
        b"\xff\xfe",
        b"1" * 18,
        b"1" * 24,
        b"L",
    ],
)
def test_a_value_that_headgate_does_not_write_is_somebody_elses(value: bytes) -> None:
    assert read_state(value, [], NOW) is None


@given(st.binary(), st.lists(st.binary()))
def test_any_bytes_are_a_state_or_not(value: bytes, entries: list[bytes]) -> None:
    read_state(value, entries, NOW)


class TestQueue:
    def test_what_is_queued_is_in_use_and_what_was_given_up_is_not(self) -> None:
        state = read(f"Q100000,1,{NOW_US + 550_000},0,9,0")
        assert (state.kind, state.limit, state.quota) == ("leaky_queue", "10/s", None)
        assert (state.in_use, state.as_new_in_ns) == (6, 550_000_000)
        state = read(
            f"Q100000,1,{NOW_US + 550_000},0,9,0;{NOW_US + 150_000}:0:2|{NOW_US + 9}:4:9:name"
        )
        assert (state.in_use, state.held) == (4, 4)
        assert read(f"Q100000,1,{NOW_US - 5},0,9,0").in_use == 0

    def test_a_pace_that_does_not_divide_evenly(self) -> None:
        state = read(f"Q1000000,3,{NOW_US + 333_333},1,9,0")
        assert (state.limit, state.in_use, state.as_new_in_ns) == ("3/s", 1, 333_333_334)

    @pytest.mark.parametrize(
        "text", ["Q0,1,5,0,9,0", "Q1,0,5,0,9,0", "Q1,1,5,0", "Q1,1,5,0,9,0;1:2", "Q5,1,x,0,9,0"]
    )
    def test_what_is_no_queue_is_nothing(self, text: str) -> None:
        assert read_state(text.encode(), [], NOW) is None
