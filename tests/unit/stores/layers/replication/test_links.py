"""Pauses between reports to another region, log lines and metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.observability import METRICS
from headgate.stores.layers.replication.store import LONGEST_PAUSE_NS, Link
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    import pytest

EVERY = 100 * MILLISECOND
GONE = StoreError("gone", reason="unreachable")


def link(chance: float) -> Link:
    return Link("eu", "us", every_ns=EVERY, chance=lambda: chance)


def test_reports_are_sent_at_intervals_that_differ_by_a_quarter() -> None:
    assert link(0.0).pause_ns() == EVERY * 3 // 4
    assert link(1.0).pause_ns() == EVERY * 5 // 4


def test_the_time_of_the_last_reports_is_part_of_the_interval() -> None:
    assert link(0.5).pause_ns(spent_ns=60 * MILLISECOND) == 40 * MILLISECOND
    assert link(0.5).pause_ns(spent_ns=600 * MILLISECOND) == 0


def test_pauses_after_failures_grow_up_to_a_bound() -> None:
    one = link(1.0)
    pauses = []
    for _ in range(100):
        one.failed(GONE)
        pauses.append(one.pause_ns())
    assert pauses == sorted(pauses)
    assert pauses[0] == 2 * EVERY
    assert pauses[-1] == LONGEST_PAUSE_NS
    one.succeeded()
    assert one.pause_ns() == EVERY * 5 // 4


def test_links_that_failed_together_do_not_come_back_in_step() -> None:
    early, late = link(0.0), link(1.0)
    for one in (early, late):
        one.failed(GONE)
    assert early.pause_ns() * 2 == late.pause_ns()


def test_an_outage_is_logged_once_and_its_end_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = link(0.5)
    with caplog.at_level(logging.INFO, logger="headgate.stores.layers.replication"):
        one.succeeded()
        for _ in range(3):
            one.failed(GONE)
        assert not one.is_up
        for _ in range(3):
            one.succeeded()
        assert one.is_up
    assert [record.getMessage() for record in caplog.records] == [
        "region eu: cannot report usage to us, retrying: gone",
        "region eu: us can be reached again after 3 failed attempts",
    ]


def test_reports_are_counted() -> None:
    merged = METRICS.value("region_exchanges", peer="us")
    failed = METRICS.value("region_failures", peer="us")
    one = link(0.5)
    one.merged.add()
    one.failed(GONE)
    one.failed(GONE)
    assert METRICS.value("region_exchanges", peer="us") == merged + 1
    assert METRICS.value("region_failures", peer="us") == failed + 2
