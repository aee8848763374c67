"""Several workers as one picture."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.service.live import merging
from headgate.service.live.merging import encoded_view, merged_view
from headgate.service.live.recorder import OUTCOMES, WHOLE
from headgate.units import SECOND
from tests.support.live_states import NOW, NOW_NS, POLICY, STORE, any_worker, series_of, state_of

RULES = [("a", "enforce", None), ("c", "shadow", "a")]


def picture_of(*heard: Any) -> dict[str, Any]:
    return merged_view(heard, RULES, now_ns=NOW_NS, at_ns=NOW * SECOND)


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_the_order_of_the_workers_does_not_matter(seed: int, count: int) -> None:
    random = Random(seed)
    heard = [any_worker(random) for _ in range(count)]
    other = random.sample(heard, count)
    assert picture_of(*heard) == picture_of(*other)


def test_the_answer_is_that_picture_as_json() -> None:
    state = state_of(cells=[("a", "allowed", "store", 3)], hot_keys=[("a", 'k"\u00e4', 1.0, 2.0)])
    picture = picture_of((state, series_of(a=[1, 2], b=[3])), (state_of(), series_of(None)))
    assert json.loads(encoded_view(picture)) == json.loads(json.dumps(picture))


def test_counts_are_added_up_and_gone_rules_are_told_without_a_mode() -> None:
    rates = [("a", "allowed", "lease", 2.0), ("a", "allowed", "store", 1.0)]
    one = state_of(cells=[("a", "allowed", "store", 3), ("old", "denied", "cache", 1)], rates=rates)
    other = state_of(cells=[("a", "allowed", "lease", 4)], rates=rates, requests=[1, 7])
    found = picture_of((one, series_of(a=[30])), (other, series_of(a=[10, 20])))
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


def test_whole_requests_of_all_workers_are_a_series_beside_the_rules() -> None:
    one = series_of(NOW - 1, **{WHOLE: [30], "a": [30]})
    found = picture_of(
        (state_of(), one), (state_of(worker=1), series_of(NOW - 1, **{WHOLE: [10, 20]}))
    )
    for name, length in (("series", 120), ("minutes", 180)):
        told = found[name]
        assert {len(line) for line in told["requests"].values()} == {length}
        assert WHOLE not in told["rules"]
    assert found["series"]["requests"]["allowed"][-3:] == [0, 10, 50]
    assert not any(found["series"]["requests"]["denied"])


def test_a_worker_that_is_a_little_late_holds_the_last_point_back() -> None:
    here, late = series_of(NOW - 1, a=[1, 2, 3]), series_of(NOW - 2, a=[10, 20])
    found = picture_of((state_of(), here), (state_of(), late))
    assert found["series"]["end"] == NOW - 2
    assert found["series"]["rules"]["a"]["allowed"][-3:] == [0, 11, 22]


def test_a_worker_that_is_very_late_does_not() -> None:
    here, late = series_of(NOW - 1, a=[1, 2, 3]), series_of(NOW - 6, a=[10, 20])
    found = picture_of((state_of(), here), (state_of(), late))
    assert found["series"]["end"] == NOW - 3
    assert found["series"]["rules"]["a"]["allowed"][-5:] == [10, 20, 0, 0, 1]


def test_of_a_worker_that_is_gone_the_counts_stay_and_the_rest_goes() -> None:
    gone = state_of(
        seen_ns=NOW_NS - 11 * SECOND,
        requests=[1, 2],
        factor=0.5,
        hot_keys=[("a", "k", 5.0, 6.0)],
        store={**STORE, "state": "open", "errors": {"timeout": 2}, "calls": 9},
        policy={**POLICY, "revision": 6},
    )
    found = picture_of((state_of(requests=[0, 5]), series_of()), (gone, series_of(NOW - 12, a=[4])))
    assert found["workers"] == 1
    assert found["requests"] == {"allowed": 7, "denied": 1}
    assert found["factor"] == 1.0
    assert found["hot_keys"] == []
    assert found["policy"]["revision"] == 7
    assert found["store"]["state"] == "ok"
    assert (found["store"]["errors"], found["store"]["calls"]) == ({"timeout": 2}, 9)
    assert found["series"]["end"] == NOW - 1
    assert found["series"]["rules"]["a"]["allowed"][-12:] == [4] + [0] * 11


def test_a_policy_is_as_old_and_as_troubled_as_at_the_worst_worker() -> None:
    bad = {**POLICY, "revision": 6, "current": False, "trouble": "no answer", "problems": 2}
    found = merging.merged_policy([state_of(), state_of(policy=bad)])
    assert found == {**bad, "stale": False}
    none = merging.merged_policy([state_of(), state_of(policy={**POLICY, "revision": None})])
    assert none["revision"] is None


def test_the_same_key_at_several_workers_is_one() -> None:
    rows = [("a", "k", 1.5, 2.0), ("a", "other", 2.0, 2.0), ("a", "k", 1.0, 1.5)]
    assert merging.merged_keys(rows) == [
        {"rule_id": "a", "key": "k", "per_second": 2.5, "at_most": 3.5},
        {"rule_id": "a", "key": "other", "per_second": 2.0, "at_most": 2.0},
    ]
    assert len(merging.merged_keys([("a", f"k{n}", 1.0, 1.0) for n in range(100)])) == 20


def test_an_overshoot_is_the_fleets_and_not_added_up() -> None:
    rows = [("a", 2, 50), ("a", 3, 60), (None, 1, 5)]
    assert merging.merged_bounds(rows) == [
        {"rule_id": "a", "holders": 3, "units": 60},
        {"rule_id": None, "holders": 1, "units": 5},
    ]


def test_those_who_wait_are_added_up_and_wait_as_long_as_the_slowest() -> None:
    rows = [("g", 1, 2, 3, 0.5), ("g", 4, 5, 6, 0.25)]
    told = {"gate": "g", "waiting": 5, "in_flight": 7, "slots": 9, "wait_seconds": 0.5}
    assert merging.merged_queues(rows) == [told]


def test_how_long_decisions_took_is_that_of_all_together() -> None:
    quick, slow = state_of(), state_of()
    quick["latency"][0], slow["latency"][3] = 90, 10
    found = merging.merged_latency([quick, slow])
    assert found["count"] == 100
    assert found["p50"] < 1e-6
    assert 5e-6 < found["p99"] <= 1e-5
    assert merging.merged_latency([state_of()]) == {
        "p50": None,
        "p90": None,
        "p99": None,
        "count": 0,
    }


def test_of_thousands_of_rules_those_are_told_that_most_is_asked_of() -> None:
    declared = [(f"r{n:04}", "enforce", None) for n in range(3000)]
    state = state_of(cells=[("r2999", "allowed", "store", 1), ("gone", "denied", "store", 5)])
    found = merging.merged_rules([state], declared, {})
    assert len(found) == merging.MAX_RULES
    assert [row["rule_id"] for row in found[-2:]] == ["r2999", "gone"]
    assert found[0]["rule_id"] == "r0000"


def test_a_hundred_rules_are_drawn_the_busiest() -> None:
    last = {f"r{n}": [n] for n in range(200)}
    found = picture_of((state_of(), series_of(NOW - 1, **last)))
    assert len(found["series"]["rules"]) == 100
    assert next(iter(found["series"]["rules"])) == "r199"
