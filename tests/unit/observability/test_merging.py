"""What several processes have counted of rules in shadow, as one."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

from headgate.observability.candidates import (
    Candidates,
    ShadowRule,
    folded_candidates,
    merged_candidates,
)
from headgate.units import SECOND

HOUR = 3600
START = 1000 * HOUR


def snapshot(
    keys: range,
    *,
    began: float = START,
    at: float | None = None,
    version: str = "1",
    ahead: float = 0,
    is_restart: bool = False,
) -> dict[str, Any]:
    """What a worker says that refused something to each of *keys* when it began, by a wall clock
    that was *ahead*."""
    now = [began]
    candidates = Candidates(
        lambda: int((now[0] + ahead) * SECOND), monotonic=lambda: int(now[0] * SECOND)
    )
    if is_restart:
        candidates.put_in_force([ShadowRule("trial", "live", "another")])
    candidates.put_in_force([ShadowRule("trial", "live", version)])
    for key in keys:
        said = [
            ("live", f"user={key}", False, True, "store"),
            ("trial", f"user={key}", True, False, "store"),
        ]
        candidates.record(said, is_allowed=True)
    now[0] = began if at is None else at
    return candidates.snapshot()


def test_workers_add_up_in_any_order_and_no_key_counts_twice() -> None:
    told = [snapshot(range(10)), snapshot(range(5, 20), began=START - 60), snapshot(range(3))]
    first, *others = (merged_candidates(order, START) for order in itertools.permutations(told))
    assert all(other == first for other in others)
    [one] = first
    assert (one["requests"], one["would_deny"], one["newly_denied"]) == (28, 28, 28)
    assert (one["keys"], one["keys_exact"], one["since"]) == (20, True, START - 60)


def test_merging_changes_no_snapshot() -> None:
    one = snapshot(range(10))
    before = merged_candidates([one], START)
    assert merged_candidates([one, one], START)[0]["requests"] == 20  # each is to be there once
    assert merged_candidates([one], START) == before


def test_many_keys_of_many_workers_are_estimated() -> None:
    told = [snapshot(range(n * 2000, n * 2000 + 3000)) for n in range(4)]
    [one] = merged_candidates(told, START)
    assert not one["keys_exact"]
    assert abs(one["keys"] - 9000) < 900
    assert abs(one["last_day"]["keys"] - 9000) < 1800


def test_a_worker_that_has_the_old_version_yet_does_not_count() -> None:
    told = [snapshot(range(9)), snapshot(range(2), began=START + 5, version="2")]
    [one] = merged_candidates(told, START + 5)
    assert (one["requests"], one["since"]) == (2, START + 5)


def test_what_a_process_has_left_behind_counts_and_does_not_keep_a_rule_alive() -> None:
    left = snapshot(range(9))
    [one] = merged_candidates([left, snapshot(range(2), began=START + 600)], START + 600)
    assert one["requests"] == 11
    empty = {"at": START + 600.0, "seen_ns": (START + 600) * SECOND, "rules": []}
    assert merged_candidates([left, empty], START + 600) == []


def test_hours_are_those_of_the_clock_whoever_counted_them() -> None:
    left = snapshot(range(9))
    now = START + 30 * HOUR
    [one] = merged_candidates([left, snapshot(range(2), began=now)], now)
    assert (one["requests"], one["last_day"]["requests"]) == (11, 2)
    assert one["hours"]["would_deny"] == [0] * 17 + [9] + [0] * 29 + [2]
    assert one["hours"]["end"] == now


def test_nothing_makes_nothing() -> None:
    assert merged_candidates([], START) == []


def test_the_last_day_of_a_worker_that_is_gone_ends_as_time_goes_by() -> None:
    now = [float(START)]
    candidates = Candidates(lambda: int(now[0] * SECOND), monotonic=lambda: int(now[0] * SECOND))
    candidates.put_in_force([ShadowRule("trial", "live", "1")])
    for hour in range(20):
        now[0] = START + hour * HOUR
        said = [("trial", f"user={hour}", True, False, "store")]
        candidates.record(said, is_allowed=True)
    left, later = candidates.snapshot(), now[0] + 10 * HOUR
    [one] = merged_candidates([left, snapshot(range(0), began=later)], later)
    assert (one["would_deny"], one["keys"]) == (20, 20)
    assert (one["last_day"]["would_deny"], one["last_day"]["keys"]) == (15, 15)
    assert one["last_day"]["live_not_asked"] == 15


def test_a_wall_clock_that_is_put_back_hides_nothing() -> None:
    left = snapshot(range(9), version="0", ahead=90 * HOUR)
    here = snapshot(range(2), began=START + 600)
    [one] = merged_candidates([left, here], START + 600)
    assert (one["requests"], one["since"]) == (2, START + 600)
    same = snapshot(range(9), ahead=90 * HOUR)
    [one] = merged_candidates([same, here], START + 600)
    assert (one["requests"], one["last_day"]["requests"]) == (11, 11)
    assert one["hours"]["end"] == START
    assert one["hours"]["would_deny"][-1] == 11


def test_a_rule_that_is_back_as_it_was_before_begins_anew() -> None:
    left = snapshot(range(9))
    again = snapshot(range(2), began=START + 600, is_restart=True)
    other = snapshot(range(4), began=START + 601, is_restart=True)
    for order in itertools.permutations([left, again, other]):
        [one] = merged_candidates(order, START + 601)
        assert (one["requests"], one["since"]) == (6, START + 600)


def test_workers_that_are_gone_say_the_same_when_folded() -> None:
    gone = [
        snapshot(range(9)),
        snapshot(range(5, 12), began=START + 3 * HOUR),
        snapshot(range(3), began=START + 4 * HOUR, version="2"),
        snapshot(range(7), began=START + 50 * HOUR, version="2"),
    ]
    here = snapshot(range(6, 9), began=START + 60 * HOUR, version="2")
    for count in range(5):
        for some in (gone[:count], gone[::-1][:count]):
            folded = folded_candidates([folded_candidates(some[:2]), *some[2:]])
            now = START + 60 * HOUR
            assert merged_candidates([here, folded], now) == merged_candidates([here, *some], now)
            assert merged_candidates([folded], now) == merged_candidates(some, now)


def test_folding_keeps_no_more_than_one_worker_would() -> None:
    many = [snapshot(range(n * 1000, (n + 1) * 1000)) for n in range(5)]
    folded = folded_candidates(many)
    [one] = merged_candidates([folded], START)
    assert abs(one["keys"] - 5000) < 600
    assert len(pickle.dumps(folded)) < 1.1 * len(pickle.dumps(snapshot(range(3000))))
