"""What operators see: lines in the log, and measures."""

from __future__ import annotations

import gc
import logging

import pytest

from headgate.errors import StoreError
from headgate.observability.metrics import MEASURES
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.units import SECOND
from tests.support.failing_stores import Failing, Guarded, taking


def told(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= level]


class TestLog:
    def test_an_outage_is_a_warning_and_its_end_two_lines(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headgate.store")
        one = Guarded()
        for _ in range(5):
            one.store.run(taking())
        one.open()
        for _ in range(100):
            one.reason()
        one.trouble.heal()
        for _ in range(2):
            one.watch.now_ns += 10 * SECOND
            one.store.run(taking())
        fails, answers, is_back = told(caplog, logging.INFO)
        assert [one.levelname for one in caplog.records] == ["WARNING", "INFO", "INFO"]
        assert "somewhere:1 fails (timeout)" in fails
        assert "8 calls, 3 failed, 0 refused" in fails
        assert "answers after 10.0 s" in answers
        assert "1 calls, 0 failed, 100 refused" in answers
        assert "in full use again, 20.0 s" in is_back
        assert caplog.records[0].__dict__["event"] == "store_breaker_open"
        assert caplog.records[0].__dict__["reason"] == "timeout"

    def test_a_long_outage_is_told_once_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headgate.store")
        one = Guarded()
        one.open()
        for _ in range(300):
            one.watch.now_ns += 2 * SECOND
            one.reason()
        lines = told(caplog, logging.INFO)
        assert len(lines) == 11
        assert "still fails after 60.0 s" in lines[1]
        assert "30 calls, 30 failed, 0 refused" in lines[1]

    def test_a_part_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        one = Guarded(has_parts=True)
        one.trouble.fail()
        while one.reason(taking("a")) != "circuit_open":
            pass
        assert "its part node-a" in told(caplog, logging.WARNING)[0]


class TestMeasures:
    def test_calls_errors_refusals_and_transitions_are_counted(self) -> None:
        class Elsewhere(Failing):
            where = "counted:1"

        store = CircuitBreakerStore(Elsewhere())
        failing = store.store
        assert isinstance(failing, Failing)
        store.run(taking())
        failing.trouble.fail("readonly")
        for _ in range(10):
            with pytest.raises(StoreError):
                store.run(taking())
        at = {"store": "counted:1"}
        assert MEASURES.value("store_calls", **at) == 4
        assert MEASURES.value("store_errors", **at, reason="readonly") == 3
        assert MEASURES.value("store_refused", **at) == 7
        assert MEASURES.value("breaker_transitions", **at, to="open") == 1
        assert MEASURES.value("store_breaker_state", **at) == 2

    def test_the_gauge_tells_the_worst_of_all_guards_of_a_store(self) -> None:
        class Elsewhere(Failing):
            where = "gauged:1"

        at = {"store": "gauged:1"}
        first, second = CircuitBreakerStore(Elsewhere()), CircuitBreakerStore(Elsewhere())
        assert MEASURES.value("store_breaker_state", **at) == 0
        for store in (first, second):
            store.store.trouble.fail()  # type: ignore[attr-defined] # an Elsewhere
            while not store.is_open:
                with pytest.raises(StoreError):
                    store.run(taking())
        assert MEASURES.value("store_breaker_state", **at) == 2
        del store, first, second
        gc.collect()
        assert "gauged" not in "".join(
            line for line in MEASURES.text().splitlines() if "breaker_state" in line
        )
