"""What Envoy decides by itself, as decisions of the node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headgate.gateway.processes.envoy import local_counts
from headgate.observability import DecisionRecorder
from headgate.service.live import SharedSnapshots
from headgate.service.live.envoy_counts import EnvoyCounts, EnvoyTotals, write_totals
from headgate.service.live.shared_snapshots import new_file

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def shared() -> Iterator[SharedSnapshots]:
    fileno = new_file()
    yield SharedSnapshots(fileno, count=2)
    os.close(fileno)


def recorded(decisions: DecisionRecorder) -> dict[tuple[str, str, str], int]:
    return {name: cell[0] for name, cell in decisions.cells.items()}


def test_growth_is_recorded_under_the_name_of_envoy(shared: SharedSnapshots) -> None:
    decisions = DecisionRecorder()
    counts = EnvoyCounts(shared, decisions, is_successor=False)
    counts.record()
    for totals in ((3, 1), (3, 1), (10, 2)):
        write_totals(shared, {"flood": totals})
        counts.record()
    assert recorded(decisions) == {
        ("flood", "allowed", "envoy"): 10,
        ("flood", "denied", "envoy"): 2,
    }


def test_a_successor_leaves_out_what_was_counted_before(shared: SharedSnapshots) -> None:
    decisions = DecisionRecorder()
    write_totals(shared, {"flood": (10, 2)})
    counts = EnvoyCounts(shared, decisions, is_successor=True)
    write_totals(shared, {"flood": (11, 2), "new": (1, 0)})
    counts.record()
    found = recorded(decisions)
    assert (found["flood", "allowed", "envoy"], found["new", "allowed", "envoy"]) == (1, 1)


def test_totals_go_on_with_the_next_envoy() -> None:
    totals = EnvoyTotals()
    for counts in ((5, 1), (7, 1), (2, 0), (3, 0)):
        totals.add({"flood": counts})
    assert totals.totals == {"flood": (10, 1)}


def test_counters_of_several_limits_are_those_of_one_rule() -> None:
    counter = "local-{}.http_local_rate_limit.{}".format
    stats = {
        counter("a.b", "ok"): 9,
        counter("a.b", "rate_limited"): 1,
        counter("a.b/2", "ok"): 6,
        counter("a.b/2", "rate_limited"): 3,
        counter("idle", "ok"): 0,
    }
    assert local_counts(stats) == {"a.b": (6, 4), "idle": (0, 0)}
