"""Traffic over a time range, merged over workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.service.live.recorder import (
    LATENCIES,
    MAX_LINES,
    MINUTE,
    MINUTES,
    OUTAGE,
    SAMPLED,
    SECONDS,
    WHOLE,
)
from headgate.service.live.snapshot import Snapshot, TopKeys
from headgate.service.live.traffic import RANGES, traffic_view
from headgate.units import SECOND
from tests.support.live_states import NOW, NOW_NS, series_of, snapshot_of

if TYPE_CHECKING:
    from headgate.service.live.snapshot import KeyRow

LAST_MINUTE = (NOW - 1) // MINUTE
SO_FAR = (NOW - 1) % MINUTE + 1
"""The seconds of the minute that is not over."""


def traffic_of(*snapshots: Snapshot, range_name: str = "5m", **more: Any) -> dict[str, Any]:
    given = {"rule": None, "show_key": str, **more}
    at_ns = NOW * SECOND
    return traffic_view(snapshots, range_name=range_name, now_ns=NOW_NS, at_ns=at_ns, **given)


def worker(seconds: dict[Any, list[int]], minutes: dict[Any, list[int]], **more: Any) -> Snapshot:
    """A worker with these last seconds and minutes."""
    return snapshot_of(
        seconds=series_of(NOW - 1, SECONDS, seconds),
        minutes=series_of(LAST_MINUTE - 1, MINUTES, minutes),
        **more,
    )


@pytest.mark.parametrize("name", RANGES)
def test_every_range_ends_now_with_its_number_of_points(name: str) -> None:
    found = traffic_of(worker({}, {}), range_name=name)
    step, points = RANGES[name]
    assert (found["step"], found["end"]) == (step, (NOW - 1) // step * step)
    assert len(found["seconds"]) == len(found["requests"]["denied"]) == points


def test_requests_are_added_up_and_the_recorded_seconds_are_not() -> None:
    one = worker({(WHOLE, "allowed"): [1, 2], SAMPLED: [1, 1, 1]}, {})
    other = worker({(WHOLE, "allowed"): [10, 20], SAMPLED: [1, 1]}, {})
    found = traffic_of(one, other)
    assert found["requests"]["allowed"][-3:] == [0, 11, 22]
    assert found["seconds"][-4:] == [0, 1, 1, 1]


def test_shadow_denials_of_all_requests_are_those_of_all_rules() -> None:
    one = worker({("a", "shadow_denied"): [2], ("b", "shadow_denied"): [3]}, {})
    assert traffic_of(one)["requests"]["shadow_denied"][-1] == 5


def test_the_minute_that_is_not_over_is_the_last_point() -> None:
    line = WHOLE, "allowed"
    one = worker({line: [1] * SECONDS, SAMPLED: [1] * SECONDS}, {line: [7, 60], SAMPLED: [9, 60]})
    found = traffic_of(one, range_name="1h")
    assert found["requests"]["allowed"][-3:] == [7, 60, SO_FAR]
    assert found["seconds"][-4:] == [0, 9, 60, SO_FAR]


@pytest.mark.parametrize("name", ["6h", "24h"])
def test_points_of_several_minutes_begin_at_multiples_of_them(name: str) -> None:
    minutes = [*range(1, MINUTES + 1)]
    one = worker({(WHOLE, "denied"): [5]}, {(WHOLE, "denied"): minutes})
    found = traffic_of(one, range_name=name)
    each = RANGES[name].step // MINUTE
    in_last = LAST_MINUTE % each  # complete minutes of the last point
    last = minutes[len(minutes) - in_last :]
    before = minutes[len(minutes) - in_last - each : len(minutes) - in_last]
    assert found["requests"]["denied"][-2:] == [sum(before), sum(last) + 5]


def test_a_worker_of_another_process_has_the_same_traffic() -> None:
    one = worker({SAMPLED: [1]}, {(WHOLE, "allowed"): [4, 5], SAMPLED: [60, 60]})
    other = Snapshot.decoded(one.encoded())
    assert traffic_of(other, range_name="24h") == traffic_of(one, range_name="24h")


def test_the_latency_of_a_point_is_that_of_its_decisions_on_all_workers() -> None:
    fast, slow = LATENCIES[0], LATENCIES[9]  # below 1 us; from 0.5 to 1 ms
    found = traffic_of(worker({fast: [3, 99]}, {}), worker({slow: [1]}, {}))["latency"]
    assert found["p50"][-3] is None
    assert found["p50"][-2] == pytest.approx(0.5e-6)
    assert found["p99"][-1] == pytest.approx(1e-6)
    assert traffic_of(worker({slow: [1]}, {}))["latency"]["p90"][-1] == pytest.approx(0.95e-3)


def test_an_outage_of_any_worker_is_one_of_the_node() -> None:
    one, other = worker({OUTAGE: [1, 0, 0]}, {}), worker({OUTAGE: [1, 1, 0]}, {})
    assert traffic_of(one, other)["outage"][-4:] == [0, 1, 1, 0]
    assert traffic_of(worker({}, {}))["outage"] == []


def test_a_rule_has_its_own_decisions_and_keys() -> None:
    busiest: list[KeyRow] = [("a", "k", 3.0, 3.0), ("b", "k", 9.0, 9.0)]
    keys = TopKeys(busiest, [("a", "k", 1.0, 1.0)], [], [])
    one = worker({("a", "denied"): [4], ("b", "denied"): [5]}, {}, keys=keys)
    found = traffic_of(one, rule="a", show_key=str.upper)
    assert found["rule"]["denied"][-1] == 4
    assert [(row["rule_id"], row["key"]) for row in found["busiest_keys"]] == [("a", "K")]
    assert len(found["refused_keys"]) == 1
    assert len(traffic_of(one)["busiest_keys"]) == 2
    assert traffic_of(one, rule="idle")["rule"]["denied"] == [0] * SECONDS


def test_a_rule_that_may_have_been_dropped_is_unknown_and_not_zero() -> None:
    lines = {(f"rule-{number}", "allowed"): [1] for number in range(MAX_LINES)}
    found = traffic_of(worker(lines, {}), rule="dropped")
    assert found["rule"] is None
    assert traffic_of(worker(lines, {}), rule="rule-7")["rule"]["allowed"][-1] == 1
