"""The control of the pressure: from how requests fare to the factor in force."""

import gc
import logging
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from headgate.errors import LimitError, OptionError, StoreError
from headgate.observability.metrics import METRICS
from headgate.overload import PressureControl
from headgate.overload.pressure import STEPS
from headgate.policy.model import Pressure
from headgate.stores import MemoryStore, Store
from headgate.stores.operations import Operation
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND

PRESSURE = Pressure(latency_ns=500 * MILLISECOND, errors=Fraction(1, 20))


class Fleet:
    """Controls on one clock and one store, that take their steps by hand."""

    def __init__(self, count: int = 1, pressure: Pressure = PRESSURE) -> None:
        self.clock = ManualClock(1_000)
        self.store = FailingStore(self.clock)
        self.controls = [self.control(pressure) for _ in range(count)]

    def control(self, pressure: Pressure = PRESSURE) -> PressureControl:
        control = PressureControl(pressure, store=self.store, clock=self.clock)
        control._is_resting = False  # no thread: steps are taken below
        return control

    def pass_interval(self, *latencies_ms: int | None, failed: bool = False) -> None:
        """Each control has fifty requests that take so long, or none; then all take a step."""
        for control, latency_ms in zip(self.controls, latencies_ms, strict=False):
            for _ in range(50 if latency_ms is not None else 0):
                latency_ns = (latency_ms or 0) * MILLISECOND
                control.record(latency_ns=latency_ns, failed=failed)
        self.clock.advance(1)
        for control in self.controls:
            control.step()

    @property
    def factors(self) -> list[Fraction]:
        return [control.factor for control in self.controls]


class FailingStore(Store):
    """A memory store that is gone while it *is_gone*."""

    publishes_values = True

    def __init__(self, clock: ManualClock) -> None:
        self.inner = MemoryStore(clock=clock)
        self.is_gone = False

    def run(self, operation: Operation) -> object:  # type: ignore[type-arg, override]  # whatever
        if self.is_gone:
            raise StoreError("it is gone")
        return self.inner.run(operation)


def test_slow_requests_lower_it_step_by_step_with_a_pause_between() -> None:
    fleet = Fleet()
    seen = []
    for _ in range(6):
        fleet.pass_interval(900)
        seen.append(round(float(fleet.factors[0]), 2))
    assert seen == [0.7, 0.7, 0.48, 0.48, 0.34, 0.34]


def test_what_ends_while_it_holds_is_not_looked_at() -> None:
    fleet = Fleet()
    fleet.pass_interval(900)
    fleet.pass_interval(900)  # these began before
    for _ in range(3):
        fleet.pass_interval(10)
    assert fleet.factors[0] > Fraction(45, 64)


def test_failures_lower_it() -> None:
    fleet = Fleet()
    fleet.pass_interval(10, failed=True)
    assert fleet.factors == [Fraction(45, 64)]


def test_a_few_requests_say_nothing_however_they_fare() -> None:
    fleet = Fleet()
    for _ in range(10):
        fleet.controls[0].record(latency_ns=60 * SECOND, failed=True)
        fleet.pass_interval()
    assert fleet.factors == [1]


def test_it_recovers_smoothly_and_wholly() -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.pass_interval(900)
    assert fleet.factors == [Fraction(1, 10)]
    seen = []
    while fleet.factors != [1]:
        fleet.pass_interval(10)
        seen.append(fleet.factors[0])
    assert seen == sorted(seen)
    assert all(after - before <= Fraction(5, STEPS) for before, after in pairwise(seen))
    assert 18 <= len(seen) <= 40


def test_a_process_that_says_something_only_now_and_then_recovers_too() -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.pass_interval(900)
    seen = 0
    while fleet.factors != [1]:
        for _ in range(10):  # two intervals make a reading
            fleet.controls[0].record(latency_ns=10 * MILLISECOND)
        fleet.pass_interval()
        seen += 1
        assert seen < 100
    assert seen >= 36


@pytest.mark.parametrize(
    "field",
    [
        {"interval_ns": 0},
        {"latency_ns": 0},
        {"backoff": Fraction(1)},
        {"backoff": Fraction(0)},
        {"recovery": Fraction(0)},
        {"least": Fraction(0)},
        {"least": Fraction(2)},
        {"quantile": Fraction(3, 2)},
    ],
)
def test_terms_by_which_nothing_could_be_lowered_or_restored_are_refused(
    field: dict[str, Any],
) -> None:
    with pytest.raises(OptionError, match="more than 0"):
        PressureControl(replace(PRESSURE, **field))
    control = Fleet().controls[0]
    with pytest.raises(OptionError, match="more than 0"):
        control.replace(replace(PRESSURE, **field))
    assert control.pressure == PRESSURE


@pytest.mark.parametrize("said", [None, "many", float("nan"), float("inf"), -5])
def test_a_number_of_waiting_ones_that_is_none_is_no_reason_to_move(said: Any) -> None:
    control = PressureControl(Pressure(queue=1), waiting=lambda: said, clock=ManualClock())
    for _ in range(5):
        control.step()
    assert control.factor == 1


def test_without_requests_it_recovers_after_a_while() -> None:
    fleet = Fleet()
    fleet.pass_interval(900)
    for _ in range(5):
        fleet.pass_interval()
        assert fleet.factors == [Fraction(45, 64)]
    for _ in range(20):
        fleet.pass_interval()
    assert fleet.factors == [1]


def test_there_are_few_factors() -> None:
    fleet = Fleet()
    seen = set()
    for n in range(200):
        fleet.pass_interval(900 if n % 7 < 2 else 10)
        seen.add(fleet.factors[0])
    assert 5 < len(seen) < 50
    assert all((factor * STEPS).denominator == 1 or factor == Fraction(1, 10) for factor in seen)


def test_a_fleet_agrees() -> None:
    fleet = Fleet(3)
    for _ in range(12):
        fleet.pass_interval(900, 10, 10)
    apart = max(fleet.factors) - min(fleet.factors)
    assert apart <= Fraction(8, STEPS)
    assert Fraction(1, 2) < min(fleet.factors) < Fraction(9, 10)


def test_a_newcomer_is_told_with_its_first_step() -> None:
    fleet = Fleet(2)
    for _ in range(10):
        fleet.pass_interval(900, 900)
    newcomer = fleet.control()
    newcomer.step()
    assert newcomer.factor == fleet.factors[0] < Fraction(1, 4)


def test_a_newcomer_goes_on_from_where_the_others_are() -> None:
    fleet = Fleet(2)
    for _ in range(20):
        fleet.pass_interval(900, 900)
    fleet.controls.append(fleet.control())
    for _ in range(3):
        fleet.pass_interval(900, 900)
    for _ in range(1_000):
        fleet.controls[2].record(latency_ns=MILLISECOND)
    fleet.pass_interval(900, 900)
    assert max(fleet.factors) < Fraction(1, 4)


def test_a_little_more_or_less_changes_nothing() -> None:
    (control,) = Fleet().controls
    control.factor = Fraction(32, STEPS)
    assert control._quantised(32.7 / STEPS) == control._quantised(31.3 / STEPS) == control.factor
    assert control._quantised(32.8 / STEPS) == Fraction(33, STEPS)
    assert control._quantised(31.2 / STEPS) == Fraction(31, STEPS)


def test_who_dies_is_forgotten() -> None:
    fleet = Fleet(2)
    for _ in range(20):
        fleet.pass_interval(900, 10)
    assert fleet.factors[1] < 1
    fleet.controls.pop(0)
    for _ in range(12):
        fleet.pass_interval(10)
    assert fleet.factors == [1]


def test_while_the_store_is_gone_what_was_heard_last_counts_until_it_lapses() -> None:
    fleet = Fleet(2)
    for _ in range(9):
        fleet.pass_interval(900, 900)
    low = fleet.factors[1]
    fleet.store.is_gone = True
    fleet.pass_interval(900, None)
    assert fleet.factors[1] == pytest.approx(low, abs=0.1)
    for _ in range(40):
        fleet.pass_interval(900, 10)
    assert fleet.factors == [Fraction(1, 10), 1], "each for itself"
    fleet.store.is_gone = False
    for _ in range(3):
        fleet.pass_interval(900, 10)
    assert fleet.factors[0] > Fraction(1, 4)
    assert fleet.factors[1] < 1


def test_a_store_that_does_not_share_leaves_each_to_itself() -> None:
    class Lone(FailingStore):
        publishes_values = False

    clock = ManualClock()
    store = Lone(clock)
    store.is_gone = True
    control = PressureControl(Pressure(), store=store, clock=clock)
    control.signal("db", 2.0)
    control.step()
    assert control.factor == Fraction(45, 64)
    control.close()


def test_a_signal_of_the_users_own_lowers_it_until_it_lapses() -> None:
    fleet = Fleet(pressure=Pressure())
    control = fleet.controls[0]
    control.signal("db_lag", 1.5, lasts=2)
    fleet.pass_interval()
    assert fleet.factors == [Fraction(45, 64)]
    for _ in range(20):
        fleet.pass_interval()
    assert fleet.factors == [1]
    with pytest.raises(OptionError):
        control.signal("latency", 1.5)
    with pytest.raises(LimitError, match="a signal lasts"):
        control.signal("db_lag", 1.5, lasts=0)


def test_requests_that_wait_lower_it() -> None:
    fleet = Fleet(pressure=Pressure(queue=100))
    waiting = [101]
    fleet.controls[0].waiting = lambda: waiting[0]
    fleet.pass_interval()
    assert fleet.factors == [Fraction(45, 64)]
    waiting[0] = 95
    for _ in range(10):
        fleet.pass_interval()
    assert fleet.factors == [Fraction(45, 64)], "neither too many nor few enough"
    waiting[0] = 90
    for _ in range(20):
        fleet.pass_interval()
    assert fleet.factors == [1]


def test_whoever_listens_hears_each_change_whatever_other_listeners_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = Fleet()
    control = fleet.controls[0]
    heard: list[Fraction] = []
    heard_for_a_while: list[Fraction] = []

    def fail(_: Fraction) -> None:
        raise RuntimeError("a listener's mistake")

    control.on_change(fail)
    control.on_change(heard.append)
    forget = control.on_change(heard_for_a_while.append)
    fleet.pass_interval(900)
    forget()
    for _ in range(2):
        fleet.pass_interval(900)
    assert heard == [Fraction(45, 64), Fraction(31, 64)]
    assert heard_for_a_while == heard[:1]
    assert "a listener of the pressure failed" in caplog.text


def test_who_cannot_say_how_many_wait_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet(pressure=Pressure(queue=1, latency_ns=500 * MILLISECOND))
    fleet.controls[0].waiting = lambda: int("nobody knows")
    fleet.pass_interval(900)
    assert fleet.factors == [Fraction(45, 64)]
    assert "could not be read" in caplog.text


def test_other_terms_count_from_the_next_step_on() -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.pass_interval(900)
    fleet.controls[0].replace(Pressure(latency_ns=2 * SECOND, least=Fraction(1, 2)))
    fleet.pass_interval(900)
    assert fleet.factors == [Fraction(1, 2)]
    for _ in range(30):
        fleet.pass_interval(900)
    assert fleet.factors == [1]


def test_the_log_tells_why_limits_are_lowered_and_when_they_are_whole_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headgate.pressure")
    fleet = Fleet()
    for _ in range(7):
        fleet.pass_interval(900)
    for _ in range(40):
        fleet.pass_interval(10)
    first, last = caplog.messages
    assert first == (
        "limits of headgate are lowered to 70%: 90% of requests take up to 898 ms, more than 500 ms"
    )
    assert last.startswith("limits of headgate are restored after ")
    assert last.endswith("the lowest factor was 23%")


@pytest.mark.parametrize(
    ("pressure", "why"),
    [
        (Pressure(errors=Fraction(1, 20)), "100.0% of requests fail, more than 5%"),
        (Pressure(queue=10), "25 requests wait, more than 10"),
        (Pressure(), "db is 1.5 times its bound"),
    ],
)
def test_the_log_names_the_signal(
    pressure: Pressure, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet(pressure=pressure)
    fleet.controls[0].waiting = lambda: 25
    if pressure == Pressure():
        fleet.controls[0].signal("db", 1.5)
    fleet.pass_interval(900, failed=True)
    assert caplog.messages[0].endswith(why)


def test_who_is_lowered_by_others_says_so(caplog: pytest.LogCaptureFixture) -> None:
    fleet = Fleet(1)
    for _ in range(3):
        fleet.pass_interval(900)
    caplog.clear()
    fleet.control().step()
    assert "other processes are under pressure" in caplog.text


def test_measures_tell_the_factor_the_signals_and_the_steps() -> None:
    gc.collect()  # controls of other tests
    before = METRICS.value("pressure_steps", direction="down")
    ups = METRICS.value("pressure_steps", direction="up")
    fleet = Fleet(2)
    fleet.pass_interval(900, 10)
    fleet.pass_interval(900, 10)
    lowest = min(fleet.factors)
    assert METRICS.value("pressure_factor") == pytest.approx(float(lowest))
    assert METRICS.value("pressure_signal", signal="latency") == pytest.approx(1.8, abs=0.05)
    assert METRICS.value("pressure_signal", signal="errors") == 0
    assert METRICS.value("pressure_steps", direction="down") == before + 1
    for _ in range(12):
        fleet.pass_interval(10, 10)
    assert METRICS.value("pressure_steps", direction="up") > ups
    for control in fleet.controls:
        control.close()
    assert METRICS.value("pressure_signal", signal="latency") == 0
    assert METRICS.value("pressure_factor") == 1
