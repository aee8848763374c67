"""Several workers as one view."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.service.live.merged_view import MAX_RULES, encoded_view, merged_view
from headgate.service.live.recorder import OUTCOMES, WHOLE
from headgate.service.live.snapshot import Snapshot, TopKeys
from headgate.units import SECOND
from tests.support.live_states import NOW, NOW_NS, POLICY, STORE, any_worker, snapshot_of

RULES = [("a", "enforce", None), ("c", "shadow", "a")]
NO_KEYS = TopKeys([], [], [], [])


def view_of(*snapshots: Snapshot, rules: Any = RULES) -> dict[str, Any]:
    return merged_view(snapshots, rules, now_ns=NOW_NS, at_ns=NOW * SECOND, show_key=str)


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_the_order_of_the_workers_does_not_matter(seed: int, count: int) -> None:
    random = Random(seed)
    snapshots = [any_worker(random) for _ in range(count)]
    assert view_of(*snapshots) == view_of(*random.sample(snapshots, count))


@given(st.integers(0, 2**32))
def test_a_snapshot_comes_back_from_its_bytes(seed: int) -> None:
    snapshot = any_worker(Random(seed))
    found = Snapshot.decoded(snapshot.encoded())
    assert replace(found, minutes=found.minute_series()) == snapshot


def test_the_reply_is_the_view_as_json() -> None:
    keys = NO_KEYS._replace(hot=[("a", 'k"\u00e4', 1.0, 2.0)])
    one = snapshot_of(
        cells={("a", "allowed", "store"): 3}, keys=keys, allowed={"a": [1, 2], "b": [3]}
    )
    view = view_of(one, snapshot_of(end=None))
    assert json.loads(encoded_view(view)) == json.loads(json.dumps(view))


def test_counts_are_added_up_and_rules_that_are_gone_have_no_mode() -> None:
    rates = {("a", "allowed", "lease"): 2.0, ("a", "allowed", "store"): 1.0}
    one = snapshot_of(
        cells={("a", "allowed", "store"): 2, ("old", "denied", "cache"): 1},
        previous={("a", "allowed", "store"): 1},
        rates=rates,
        allowed={"a": [30]},
    )
    other = snapshot_of(
        cells={("a", "allowed", "lease"): 4},
        rates=rates,
        requests=(1, 7),
        allowed={"a": [10, 20]},
    )
    found = view_of(one, other)
    by_id = {row["rule_id"]: row for row in found["rules"]}
    assert list(by_id) == ["a", "c", "old"]
    assert by_id["a"] == {
        "rule_id": "a",
        "mode": "enforce",
        "candidate_of": None,
        "allowed": 7,
        "denied": 0,
        "shadow_allowed": 0,
        "shadow_denied": 0,
        "per_second": {"allowed": 6.0, **dict.fromkeys(OUTCOMES[1:], 0.0)},
        "sources": {"lease": 4, "store": 3},
        "sources_per_second": {"lease": 4.0, "store": 2.0},
    }
    assert (by_id["c"]["mode"], by_id["c"]["candidate_of"]) == ("shadow", "a")
    assert (by_id["old"]["mode"], by_id["old"]["denied"]) == (None, 1)
    assert found["requests"] == {"allowed": 7, "denied": 1}
    assert found["series"]["end"] == NOW - 1
    line = found["series"]["rules"]["a"]["allowed"]
    assert (len(line), line[-3:]) == (120, [0, 10, 50])


def test_all_requests_are_a_series_beside_the_rules() -> None:
    found = view_of(
        snapshot_of(allowed={WHOLE: [30], "a": [30]}), snapshot_of(allowed={WHOLE: [10, 20]})
    )
    assert {len(line) for line in found["series"]["requests"].values()} == {120}
    assert WHOLE not in found["series"]["rules"]
    assert found["series"]["requests"]["allowed"][-3:] == [0, 10, 50]
    assert not any(found["series"]["requests"]["denied"])


def test_a_worker_that_is_a_little_late_holds_the_last_point_back() -> None:
    late = snapshot_of(end=NOW - 2, allowed={"a": [10, 20]})
    found = view_of(snapshot_of(allowed={"a": [1, 2, 3]}), late)
    assert found["series"]["end"] == NOW - 2
    assert found["series"]["rules"]["a"]["allowed"][-3:] == [0, 11, 22]


def test_a_worker_that_is_very_late_does_not() -> None:
    late = snapshot_of(end=NOW - 6, allowed={"a": [10, 20]})
    found = view_of(snapshot_of(allowed={"a": [1, 2, 3]}), late)
    assert found["series"]["end"] == NOW - 3
    assert found["series"]["rules"]["a"]["allowed"][-5:] == [10, 20, 0, 0, 1]


def test_of_a_dead_worker_only_the_counts_stay() -> None:
    dead = snapshot_of(
        seen_ns=NOW_NS - 11 * SECOND,
        requests=(1, 2),
        factor=0.5,
        keys=NO_KEYS._replace(hot=[("a", "k", 5.0, 6.0)]),
        store={**STORE, "state": "open", "errors": {"timeout": 2}, "calls": 9},
        policy={**POLICY, "revision": 6},
        end=NOW - 12,
        allowed={"a": [4]},
    )
    found = view_of(snapshot_of(requests=(0, 5)), dead)
    assert found["workers"] == 1
    assert found["requests"] == {"allowed": 7, "denied": 1}
    assert found["factor"] == 1.0
    assert found["hot_keys"] == []
    assert found["policy"]["revision"] == 7
    assert found["store"]["state"] == "ok"
    assert (found["store"]["errors"], found["store"]["calls"]) == ({"timeout": 2}, 9)
    assert found["series"]["end"] == NOW - 1
    assert found["series"]["rules"]["a"]["allowed"][-12:] == [4] + [0] * 11


def test_the_policy_is_that_of_the_worst_worker() -> None:
    bad = {**POLICY, "revision": 6, "current": False, "trouble": "no answer", "problems": 2}
    assert view_of(snapshot_of(), snapshot_of(policy=bad))["policy"] == {**bad, "stale": False}
    none = view_of(snapshot_of(), snapshot_of(policy={**POLICY, "revision": None}))
    assert none["policy"]["revision"] is None


def test_the_same_key_at_several_workers_is_one() -> None:
    one = NO_KEYS._replace(busiest=[("a", "k", 1.5, 2.0), ("a", "other", 2.0, 2.0)])
    other = NO_KEYS._replace(
        busiest=[("a", "k", 1.0, 1.5)], denied=[("a", f"k{n}", 1.0, 1.0) for n in range(100)]
    )
    found = view_of(snapshot_of(keys=one), snapshot_of(keys=other))
    assert found["busiest_keys"] == [
        {"rule_id": "a", "key": "k", "per_second": 2.5, "at_most": 3.5},
        {"rule_id": "a", "key": "other", "per_second": 2.0, "at_most": 2.0},
    ]
    assert len(found["refused_keys"]) == 20


def test_the_overshoot_is_that_of_the_fleet_and_not_added_up() -> None:
    one = NO_KEYS._replace(bounds=[("a", 2, 50), (None, 1, 5)])
    other = NO_KEYS._replace(bounds=[("a", 3, 60)])
    assert view_of(snapshot_of(keys=one), snapshot_of(keys=other))["bounds"] == [
        {"rule_id": "a", "holders": 3, "units": 60},
        {"rule_id": None, "holders": 1, "units": 5},
    ]


def test_queues_are_added_up_and_wait_as_long_as_the_slowest() -> None:
    one, other = ({"g": [1.0, 2.0, 3.0, 0.5]}, {"g": [4.0, 5.0, 6.0, 0.25]})
    queue = {"gate": "g", "waiting": 5, "in_flight": 7, "slots": 9, "wait_seconds": 0.5}
    assert view_of(snapshot_of(queues=one), snapshot_of(queues=other))["queues"] == [queue]


def test_the_latency_is_that_of_all_workers_together() -> None:
    quick, slow = snapshot_of(), snapshot_of()
    quick.latency[0], slow.latency[3] = 90, 10
    found = view_of(quick, slow)["latency"]
    assert found["count"] == 100
    assert found["p50"] < 1e-6
    assert 5e-6 < found["p99"] <= 1e-5
    none = {"p50": None, "p90": None, "p99": None, "count": 0}
    assert view_of(snapshot_of())["latency"] == none


def test_of_thousands_of_rules_the_busiest_are_listed() -> None:
    declared = [(f"r{n:04}", "enforce", None) for n in range(3000)]
    cells = {("r2999", "allowed", "store"): 1, ("gone", "denied", "store"): 5}
    found = view_of(snapshot_of(cells=cells), rules=declared)["rules"]
    assert len(found) == MAX_RULES
    assert [row["rule_id"] for row in found[-2:]] == ["r2999", "gone"]
    assert found[0]["rule_id"] == "r0000"


def test_a_series_has_the_hundred_busiest_rules() -> None:
    found = view_of(snapshot_of(allowed={f"r{n}": [n] for n in range(200)}))
    assert len(found["series"]["rules"]) == 100
    assert next(iter(found["series"]["rules"])) == "r199"


def test_the_store_is_out_for_as_long_as_the_worker_that_waits_longest() -> None:
    waits = [{**STORE, "state": "open", "reason": why, "open_for": s} for why, s in WAITS]
    found = view_of(snapshot_of(), *(snapshot_of(store=store) for store in waits))["store"]
    assert (found["state"], found["reason"], found["open_for"]) == ("open", "timeout", 0.19)
    assert view_of(snapshot_of())["store"]["open_for"] is None


WAITS = (("unreachable", 0.0), ("timeout", 0.19))


def test_the_nodes_are_those_that_the_first_worker_knows() -> None:
    nodes = [{"node": "a:1"}, {"node": "b:1"}]
    found = view_of(snapshot_of(), snapshot_of(nodes=nodes))
    assert found["nodes"] == nodes
