"""What says that there is pressure."""

from fractions import Fraction

import pytest

from headgate.errors import OptionError
from headgate.overload import PressureControl
from headgate.overload.pressure_signals import MOST_SIGNALS, Reading, UserSignals, judge, signals_of
from headgate.policy.model import Pressure
from headgate.testing import ManualClock
from headgate.units import SECOND


def test_the_largest_signal_above_one_says_why(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    control = PressureControl(Pressure(), clock=clock)
    for name, value in (("lag", 1.2), ("depth", 3.0), ("load", 0.1)):
        control.signal(name, value)
    clock.advance(1)
    control.step()
    assert "depth is 3 times its bound" in caplog.text
    control.close()


def test_between_calm_and_pressure_it_is_uncertain() -> None:
    for worst, mood in ((0.0, "calm"), (0.9, "calm"), (0.91, "uncertain"), (1.0, "uncertain")):
        assert judge({"db": worst}, is_known=True) == mood


def test_it_is_never_calm_as_long_as_nobody_knows_how_requests_fare() -> None:
    assert judge({}, is_known=True) == "calm"
    assert judge({"db": 0.1}, is_known=False) == "unknown"
    assert judge({"db": 1.1}, is_known=False) == "pressed"


def test_errors_are_told_by_what_they_may_be() -> None:
    reading = Reading(100, 0.5, 0.1)
    pressure = Pressure(latency_ns=SECOND, errors=Fraction(1, 20))
    assert signals_of(reading, pressure) == {"latency": 0.5, "errors": pytest.approx(2)}
    assert signals_of(Reading(100, None, 0.1), Pressure()) == {}
    none_allowed = Pressure(errors=Fraction(0))
    assert signals_of(reading, none_allowed)["latency"] == 0.5
    assert signals_of(reading, none_allowed)["errors"] > 1
    assert signals_of(Reading(100, None, 0.0), none_allowed) == {"errors": 0}


def test_what_users_tell_counts_until_it_is_told_anew_or_lapses() -> None:
    told = UserSignals()
    told.set("db", 1.5, 10)
    told.set("cpu", 0.5, 20)
    assert told.now(9) == {"db": 1.5, "cpu": 0.5}
    told.set("cpu", 0.25, 30)
    assert told.now(10) == {"cpu": 0.25}
    assert told.now(30) == {}


@pytest.mark.parametrize("name", ["latency", "errors", "queue", "", "DB", "a b", 7, "x" * 65])
def test_a_signal_has_a_name_of_its_own(name: object) -> None:
    with pytest.raises(OptionError, match="a name of its own"):
        UserSignals().set(name, 1.0, 10)


@pytest.mark.parametrize("value", [-1, float("nan"), True, "1", None])
def test_a_signal_is_a_number(value: object) -> None:
    with pytest.raises(OptionError, match="a number from 0"):
        UserSignals().set("db", value, 10)


def test_there_are_few_signals() -> None:
    told = UserSignals()
    for n in range(MOST_SIGNALS):
        told.set(f"signal{n}", float("inf"), 10)
    told.set("signal0", 1.0, 20)
    with pytest.raises(OptionError, match="one signal too many"):
        told.set("another", 1.0, 10)
