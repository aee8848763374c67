"""Which requests are refused under pressure."""

import math
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.plan import Priority
from headgate.errors import OptionError
from headgate.observability.metrics import METRICS
from headgate.overload import LoadShedder
from headgate.policy.model import PRIORITIES
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.examples import example_count


def pressed(
    shedder: LoadShedder, seconds: float, *, pressure: float = 1.0, start: float = 0.0
) -> float:
    """The level after that long under *pressure*, looked at ten times a second."""
    for tenth in range(round(seconds * 10) + 1):
        shedder.observe(pressure, now_ns=round((start + tenth / 10) * SECOND))
    return shedder.level


def admitted(shedder: LoadShedder, priority: Priority, asked: int = 100) -> int:
    return sum(shedder.allows(priority) for _ in range(asked))


def test_without_pressure_all_are_let_in() -> None:
    shedder = LoadShedder()
    pressed(shedder, 60, pressure=0.69)
    assert [admitted(shedder, priority) for priority in PRIORITIES] == [100, 100, 100]


def test_sheddable_requests_go_first_and_little_by_little() -> None:
    shedder = LoadShedder(rise=10)
    assert pressed(shedder, 3) == pytest.approx(0.3)
    assert admitted(shedder, "sheddable") == 70
    assert admitted(shedder, "default") == 100


def test_default_requests_go_when_all_sheddable_ones_have_gone() -> None:
    shedder = LoadShedder(rise=10)
    assert pressed(shedder, 15) == pytest.approx(1.5)
    assert admitted(shedder, "sheddable") == 0
    assert admitted(shedder, "default") == 50
    assert admitted(shedder, "critical") == 100


def test_critical_requests_are_never_shed() -> None:
    shedder = LoadShedder()
    assert pressed(shedder, 3_600) == 2
    assert [admitted(shedder, priority) for priority in PRIORITIES] == [100, 0, 0]


def test_critical_requests_go_last_if_that_is_allowed() -> None:
    shedder = LoadShedder(rise=10, spare_critical=False)
    assert pressed(shedder, 25) == pytest.approx(2.5)
    assert admitted(shedder, "critical") in (50, 51)


def test_a_share_of_a_quarter_is_every_fourth_one() -> None:
    shedder = LoadShedder(rise=4)
    shedder.observe(1, now_ns=0)
    shedder.observe(1, now_ns=SECOND)
    assert [shedder.allows("sheddable") for _ in range(8)] == [True, True, True, False] * 2


def test_between_low_and_high_the_level_stays() -> None:
    shedder = LoadShedder(high=0.9, low=0.7)
    risen = pressed(shedder, 2)
    assert pressed(shedder, 60, pressure=0.89, start=2) == risen
    assert pressed(shedder, 60, pressure=0.71, start=62) == risen


def test_what_was_shed_comes_back_slowly_and_wholly() -> None:
    shedder = LoadShedder(rise=5, fall=20)
    assert pressed(shedder, 5) == pytest.approx(1)
    assert pressed(shedder, 10, pressure=0, start=5) == pytest.approx(0.5)
    assert pressed(shedder, 11, pressure=0, start=15) == 0
    assert admitted(shedder, "sheddable") == 100


def test_the_nearer_to_high_the_more_slowly_it_rises() -> None:
    near, far = LoadShedder(high=0.9), LoadShedder(high=0.9)
    assert 0 < pressed(near, 2, pressure=0.92) < pressed(far, 2, pressure=0.98) / 3


def test_a_long_silence_is_not_a_long_pressure() -> None:
    shedder = LoadShedder(rise=5)
    shedder.observe(1, now_ns=0)
    shedder.observe(1, now_ns=3_600 * SECOND)
    assert shedder.level == pytest.approx(0.2)


def test_what_is_no_number_moves_nothing() -> None:
    shedder = LoadShedder()
    risen = pressed(shedder, 2)
    assert pressed(shedder, 60, pressure=math.nan, start=2) == risen


def test_it_reads_a_pressure_of_the_users_when_asked_but_not_too_often() -> None:
    clock = ManualClock()
    reads: list[int] = []

    def pressure() -> float:
        reads.append(clock())
        return 1.0

    shedder = LoadShedder(pressure, rise=1, interval=0.1, clock=clock)
    for _ in range(100):
        shedder.allows("default")
        clock.advance(0.01)
    assert len(reads) == 10
    assert shedder.level == pytest.approx(0.9)


def test_a_pressure_that_cannot_be_read_neither_fails_requests_nor_moves_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    told: list[object] = [1.0, 1.0]

    def pressure() -> float:
        return told[-1]() if callable(told[-1]) else told[-1]  # type: ignore[return-value]

    def fails() -> float:
        raise OSError("no such file")

    shedder = LoadShedder(pressure, rise=2, interval=0.1, clock=clock)
    shedder.allows()
    clock.advance(1)
    shedder.allows()
    for broken in (fails, None, "much"):
        told.append(broken)
        for _ in range(20):
            clock.advance(0.1)
            assert shedder.allows()
        assert shedder.level == pytest.approx(0.5)
    assert len(caplog.records) == 1, "told once"
    told.append(0.0)
    clock.advance(1)
    shedder.allows()
    assert shedder.level < 0.5


def test_after_a_quiet_night_nobody_is_refused() -> None:
    clock, busy = ManualClock(), 1.0
    shedder = LoadShedder(lambda: busy, clock=clock)
    for _ in range(200):
        shedder.allows()
        clock.advance(0.1)
    assert shedder.level == 2
    busy = 0.1
    clock.advance(8 * 3600)
    assert [shedder.allows(priority) for priority in PRIORITIES] == [True] * 3
    assert shedder.level == 0


def test_who_is_refused_is_told_when_not_all_of_its_class_will_be() -> None:
    shedder = LoadShedder(rise=10, fall=20)
    pressed(shedder, 15)
    assert shedder.retry_after("sheddable") == pytest.approx(10)
    assert shedder.retry_after("default") == 1


def test_a_clock_that_goes_back_neither_moves_it_nor_stops_it() -> None:
    clock = ManualClock()
    shedder = LoadShedder(lambda: 1.0, rise=1, interval=0.1, clock=clock)
    shedder.allows()
    clock.advance(0.5)
    shedder.allows()
    clock.set(-3_600)
    shedder.allows()
    assert shedder.level == pytest.approx(0.5)
    clock.advance(0.3)
    shedder.allows()
    assert shedder.level == pytest.approx(0.8)


@given(
    told=st.lists(
        st.tuples(st.floats(-1, 3) | st.just(math.nan), st.integers(-SECOND, 3 * SECOND)),
        max_size=30,
    ),
    spared=st.booleans(),
)
@settings(max_examples=example_count(100), deadline=None)
def test_who_matters_more_is_never_shed_more(
    told: Iterable[tuple[float, int]], spared: bool
) -> None:
    shedder = LoadShedder(rise=2, fall=3, spare_critical=spared)
    now_ns = 0
    for pressure, later_ns in told:
        now_ns += later_ns
        before = shedder.level
        shedder.observe(pressure, now_ns=now_ns)
        assert abs(shedder.level - before) <= 0.5  # a step is a second at most
        assert 0 <= shedder.level <= 3 - spared
        critical, default, sheddable = (shedder.share(priority) for priority in PRIORITIES)
        assert 0 <= critical <= default <= sheddable <= 1


@given(share=st.floats(0, 1), asked=st.integers(1, 300))
@settings(max_examples=example_count(100), deadline=None)
def test_the_share_is_kept_to_within_one_request(share: float, asked: int) -> None:
    shedder = LoadShedder(rise=1)
    shedder.observe(1, now_ns=0)
    shedder.observe(1, now_ns=round(share * SECOND))
    shed = asked - admitted(shedder, "sheddable", asked)
    assert abs(shed - shedder.level * asked) < 1 + 1e-6


def test_it_tells_what_it_did_by_class() -> None:
    shedder = LoadShedder(rise=1, name="told")
    shedder.observe(1, now_ns=0)
    shedder.observe(1, now_ns=SECOND)
    admitted(shedder, "sheddable", 7)
    admitted(shedder, "critical", 5)
    assert dict(shedder.counts) == {"sheddable": (0, 7), "default": (0, 0), "critical": (5, 0)}
    assert METRICS.value("shed_requests", priority="sheddable", shedder="told") == 7
    assert METRICS.value("shedding_level", shedder="told") == pytest.approx(1)


def test_an_unknown_class_is_an_error_that_says_which_there_are() -> None:
    with pytest.raises(OptionError, match="critical, default, sheddable"):
        LoadShedder().allows("vital")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoadShedder(high=0.5, low=0.6),
        lambda: LoadShedder(high=1.0),
        lambda: LoadShedder(low=0),
        lambda: LoadShedder(high=math.nan),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make: Callable[[], LoadShedder]) -> None:
    with pytest.raises(OptionError, match="expected"):
        make()
