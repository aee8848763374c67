"""Log lines and metrics of a circuit breaker."""

from __future__ import annotations

import gc
import logging

import pytest

from headgate.errors import StoreError
from headgate.observability.metrics import METRICS
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.units import SECOND
from tests.support.failing_stores import Broken, Failing, taking


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= level]


class TestLog:
    def test_an_outage_is_a_warning_and_its_end_two_lines(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headgate.store")
        one = Broken()
        for _ in range(5):
            one.run(taking())
        one.open()
        for _ in range(100):
            one.reason()
        one.inner.recover()
        for _ in range(2):
            one.now_ns += 10 * SECOND
            one.run(taking())
        opened, answers, closed = logged(caplog, logging.INFO)
        assert [one.levelname for one in caplog.records] == ["WARNING", "INFO", "INFO"]
        assert opened == (
            "store somewhere:1: circuit open for 100 ms: 3 calls failed, timeout: no reply within "
            "50 ms (since the last report: 8 calls, 3 failed, 0 rejected)"
        )
        assert "answers again after 10.0 s" in answers
        assert "1 calls, 0 failed, 100 rejected" in answers
        assert "circuit closed, 20.0 s after it opened" in closed
        record = caplog.records[0].__dict__
        assert record["event"] == "store_breaker_open"
        assert (record["reason"], record["error"]) == ("timeout", "no reply within 50 ms")

    def test_a_long_outage_is_logged_once_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headgate.store")
        one = Broken()
        one.open()
        for _ in range(300):
            one.now_ns += 2 * SECOND
            one.reason()
        lines = logged(caplog, logging.INFO)
        assert len(lines) == 11
        assert "no reply for 60.0 s: timeout: no reply within 50 ms" in lines[1]
        assert "30 calls, 30 failed, 0 rejected" in lines[1]

    def test_a_part_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        Broken(has_parts=True).open("a")
        assert "somewhere:1 (node node-a): circuit open" in logged(caplog, logging.WARNING)[0]


class TestMetrics:
    def test_calls_errors_rejections_and_transitions_are_counted(self) -> None:
        inner = Failing()
        vars(inner)["where"] = "counted:1"
        store = CircuitBreakerStore(inner)
        store.run(taking())
        inner.fail("readonly")
        for _ in range(10):
            with pytest.raises(StoreError):
                store.run(taking())
        at = {"store": "counted:1"}
        assert METRICS.value("store_calls", **at) == 4
        assert METRICS.value("store_errors", **at, reason="readonly") == 3
        assert METRICS.value("store_rejected", **at) == 7
        assert METRICS.value("breaker_transitions", **at, to="open") == 1
        assert METRICS.value("store_breaker_state", **at) == 2

    def test_the_gauge_is_that_of_the_worst_breaker_of_a_store(self) -> None:
        at = {"store": "gauged:1"}
        inners = [Failing(), Failing()]
        for inner in inners:
            vars(inner)["where"] = "gauged:1"
        stores = [CircuitBreakerStore(inner) for inner in inners]
        assert METRICS.value("store_breaker_state", **at) == 0
        inners[1].fail()
        while not stores[1].health.is_open:
            with pytest.raises(StoreError):
                stores[1].run(taking())
        assert METRICS.value("store_breaker_state", **at) == 2
        inners[1].recover()
        stores.clear()
        gc.collect()
        assert "gauged" not in "".join(
            line for line in METRICS.text().splitlines() if "breaker_state" in line
        )
