"""What several processes have counted of rules in shadow, as one."""

from __future__ import annotations

import itertools
from typing import Any

from headgate.observability.candidates import Candidates, Heard, Tried, merged_candidates
from headgate.units import SECOND

HOUR = 3600
START = 1000 * HOUR


def snapshot(
    keys: range, *, began: float = START, at: float | None = None, version: str = "1"
) -> dict[str, Any]:
    """What a worker says that refused something to each of *keys* when it began."""
    now = [began]
    candidates = Candidates(lambda: int(now[0] * SECOND))
    candidates.put_in_force([Tried("trial", "live", version)])
    for key in keys:
        said = [
            Heard("live", f"user={key}", False, True, "store"),
            Heard("trial", f"user={key}", True, False, "store"),
        ]
        candidates.hear(said, admitted=True)
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
    empty = {"at": START + 600.0, "rules": []}
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
