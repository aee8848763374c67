"""How requests fared: few say nothing, and whether they took too long is told exactly."""

from fractions import Fraction

import pytest

from headgate.overload.pressure_signals import FEWEST, PATIENCE, Readings
from headgate.units import MILLISECOND, SECOND

TARGET = 500 * MILLISECOND
NINE_TENTHS = Fraction(9, 10)


def noted(*latencies_ms: float, failed: int = 0, target: int | None = TARGET) -> Readings:
    readings = Readings(target, NINE_TENTHS)
    for n, latency in enumerate(latencies_ms):
        readings.record(int(latency * MILLISECOND), failed=n < failed)
    return readings


@pytest.mark.parametrize(
    ("slow", "took_ms", "is_too_long"),
    [(10, 501, False), (11, 501, True), (11, 500, False), (100, 500, False), (11, 60_000, True)],
)
def test_it_is_too_long_if_more_than_the_rest_beyond_the_quantile_took_longer(
    slow: int, took_ms: float, is_too_long: bool
) -> None:
    reading = noted(*[took_ms] * slow, *[3] * (100 - slow)).take()
    assert reading is not None
    assert reading.requests == 100
    assert reading.latency is not None
    assert (reading.latency > 1) is is_too_long


@pytest.mark.parametrize("took_ms", [1, 50, 250, 499, 700, 1_000, 3_900])
def test_how_long_it_took_is_known_to_a_thirty_second_part(took_ms: int) -> None:
    reading = noted(*[took_ms] * 50).take()
    assert reading is not None
    assert reading.latency == pytest.approx(took_ms / 500, abs=1 / 32)


def test_nonsense_is_neither_lost_nor_harmful() -> None:
    reading = noted(*[-5] * 25, *[10**12] * 25).take()
    assert reading is not None
    assert reading.requests == 50
    assert reading.latency is not None
    assert 8 <= reading.latency < 9


def test_the_share_of_failures_is_told_and_latency_only_if_asked_for() -> None:
    reading = noted(*[10] * 40, failed=10, target=None).take()
    assert reading is not None
    assert (reading.latency, reading.failed) == (None, 0.25)


def test_what_was_looked_at_is_forgotten() -> None:
    readings = noted(*[1_000] * FEWEST)
    assert readings.take() is not None
    assert readings.take() is None


def test_too_few_are_kept_until_there_are_enough() -> None:
    readings = noted(*[1_000] * (FEWEST - 1))
    assert readings.take() is None
    assert not readings.is_quiet
    readings.record(SECOND, failed=True)
    reading = readings.take()
    assert reading is not None
    assert reading.requests == FEWEST


def test_what_is_too_few_for_long_is_forgotten_and_said_to_be_quiet() -> None:
    readings = noted(*[1_000] * (FEWEST - 1))
    for _ in range(PATIENCE):
        assert not readings.is_quiet
        assert readings.take() is None
    assert readings.is_quiet
    readings.record(SECOND, failed=True)
    assert readings.take() is None, "those before are forgotten"
    assert readings.is_quiet
    for _ in range(FEWEST):
        readings.record(SECOND, failed=True)
    assert readings.take() is not None
    assert not readings.is_quiet


def test_each_request_is_fresh_once() -> None:
    readings = noted(*[10] * 7)
    assert (readings.fresh(), readings.fresh()) == (7, 0)
    readings.record(SECOND, failed=False)
    assert readings.fresh() == 1
