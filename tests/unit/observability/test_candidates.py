"""What rules in shadow would have done, counted on a clock that stands where it is put."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headgate.observability.candidates import (
    COMPARED,
    FIGURES,
    MOST,
    Candidates,
    ShadowRule,
    merged_candidates,
)
from headgate.units import SECOND

HOUR = 3600
START = 1000 * HOUR
CANDIDATE = ShadowRule("trial", "live", "1")


class Bench:
    """Candidates that hear of requests, at a time of their own."""

    def __init__(self, *tried: ShadowRule, now: float = START) -> None:
        self.now = now
        self.candidates = Candidates(lambda: int(self.now * SECOND), monotonic=lambda: 0)
        self.candidates.put_in_force(tried or (CANDIDATE,))

    def hear(self, live: bool | None, trial: bool | None, **more: Any) -> None:
        """A request that the live rule, and the trial, allowed or not, or were not for."""
        key, source = more.pop("key", "ip=1"), more.pop("source", "store")
        heard = [] if live is None else [("live", key, False, live, source)]
        heard += [] if trial is None else [("trial", key, True, trial, source)]
        more.setdefault("is_allowed", live is not False)
        self.candidates.record(heard, **more)

    def told(self, name: str = "trial") -> dict[str, Any]:
        snapshot = pickle.loads(pickle.dumps(self.candidates.snapshot()))  # noqa: S301 (our own)
        [found] = [one for one in merged_candidates([snapshot], self.now) if one["rule_id"] == name]
        return found


def counts(told: dict[str, Any]) -> dict[str, int]:
    """The figures that are not 0."""
    return {name: told[name] for name in FIGURES if told[name]}


def test_what_both_rules_said_is_told_apart() -> None:
    bench = Bench()
    for _ in range(2):
        bench.hear(True, True)
    for _ in range(3):
        bench.hear(True, False)
    for _ in range(4):
        bench.hear(False, True)
    for _ in range(5):
        bench.hear(False, False)
    told = bench.told()
    assert counts(told) == {
        "requests": 14,
        "would_deny": 8,
        "denied_anyway": 5,
        "newly_denied": 3,
        "newly_allowed": 4,
        "denied_by_both": 5,
    }
    assert told["candidate_of"] == "live"
    assert told["since"] == START


def test_requests_that_only_one_of_both_is_for_are_told_apart() -> None:
    bench = Bench()
    bench.hear(None, True)
    bench.hear(None, False)
    bench.hear(False, None)  # it would pass: the candidate is not for it
    bench.hear(True, None)
    assert counts(bench.told()) == {
        "requests": 2,
        "would_deny": 1,
        "live_not_asked": 2,
        "newly_allowed": 1,
    }


def test_what_another_rule_refused_would_have_been_refused_anyway() -> None:
    bench = Bench()
    bench.hear(True, False, is_allowed=False)
    told = counts(bench.told())
    assert told == {"requests": 1, "would_deny": 1, "denied_anyway": 1, "newly_denied": 1}


def test_a_live_rule_that_was_not_asked_again_has_let_it_pass() -> None:
    bench = Bench()
    bench.hear(None, False, without=["live"])
    bench.hear(False, None, without=["trial"])
    assert counts(bench.told()) == {"requests": 1, "would_deny": 1, "newly_denied": 1}


def test_a_rule_in_shadow_that_is_no_candidate_is_compared_with_none() -> None:
    bench = Bench(ShadowRule("trial", None, "1"))
    bench.hear(False, False)
    told = bench.told()
    assert (told["requests"], told["would_deny"], told["denied_anyway"]) == (1, 1, 1)
    assert {told[name] for name in COMPARED} == {None}
    assert {told["last_day"][name] for name in COMPARED} == {None}


@pytest.mark.parametrize("source", ["fail_open", "fail_closed", "local", "fallback"])
def test_nothing_is_counted_while_the_store_is_gone(source: str) -> None:
    bench = Bench()
    bench.hear(True, False, source=source)
    bench.hear(False, None, source=source)
    assert counts(bench.told()) == {}


def test_different_keys_are_those_that_would_be_refused() -> None:
    bench = Bench()
    for n in range(40):
        bench.hear(True, n % 4 != 0, key=f"user={n // 2}")
    told = bench.told()
    assert (told["would_deny"], told["keys"], told["keys_exact"]) == (10, 10, True)


def test_the_last_day_are_this_hour_and_the_24_before_it() -> None:
    bench = Bench()
    for hour in range(30):
        bench.now = START + hour * HOUR + 7
        bench.hear(True, False, key=f"user={hour}")
    told = bench.told()
    assert (told["requests"], told["keys"]) == (30, 30)
    assert (told["last_day"]["requests"], told["last_day"]["keys"]) == (25, 25)
    assert told["hours"]["end"] == START + 29 * HOUR
    assert told["hours"]["would_deny"] == [0] * 18 + [1] * 30
    bench.now += 25 * HOUR
    assert counts(bench.told()["last_day"]) == {}
    assert bench.told()["hours"]["requests"] == [1] * 23 + [0] * 25
    bench.now += 100 * HOUR
    assert sum(bench.told()["hours"]["requests"]) == 0
    assert bench.told()["requests"] == 30


def test_a_clock_that_goes_back_counts_in_the_hour_that_there_is() -> None:
    bench = Bench()
    bench.now = START + 5 * HOUR
    bench.hear(True, False)
    bench.now = START
    bench.hear(True, False)
    assert bench.told()["hours"]["would_deny"][-1] == 2
    assert bench.told()["last_day"]["would_deny"] == 2


def test_a_clock_that_is_put_back_takes_what_is_ahead_of_its_time_along() -> None:
    bench = Bench()
    for hour in (0, 1, 2, 3):
        bench.now = START + hour * HOUR
        bench.hear(True, False, key=f"user={hour}")
    bench.now = START + HOUR  # what was counted in the hours 1 to 3 is of this one now
    assert bench.told()["hours"]["would_deny"][-2:] == [1, 3]
    bench.now = START + 2 * HOUR
    bench.hear(True, False, key="user=9")
    told = bench.told()
    assert told["hours"]["would_deny"][-3:] == [1, 3, 1]
    assert (told["would_deny"], told["keys"], told["last_day"]["keys"]) == (5, 5, 5)
    bench.now = START + 26 * HOUR  # and it is forgotten when it is time for that
    assert (bench.told()["last_day"]["would_deny"], bench.told()["last_day"]["keys"]) == (1, 1)


def test_a_clock_that_was_years_ahead_for_a_moment_counts_by_hours_again() -> None:
    bench = Bench()
    bench.hear(True, False)
    bench.now = START + 90_000 * HOUR
    bench.hear(True, False)
    bench.now = START + HOUR
    bench.hear(True, False)
    assert bench.told()["hours"]["end"] == START + HOUR
    assert bench.told()["would_deny"] == 3
    bench.now = START + 30 * HOUR
    assert counts(bench.told()["last_day"]) == {}


def test_a_rule_that_stays_as_it_is_goes_on_and_one_that_changes_begins_anew() -> None:
    bench = Bench()
    bench.hear(True, False)
    bench.now += 9
    bench.candidates.put_in_force([CANDIDATE], revision=2)
    assert (bench.told()["since"], bench.told()["requests"]) == (START, 1)
    bench.candidates.put_in_force([CANDIDATE._replace(version="2")], revision=3)
    assert (bench.told()["since"], bench.told()["requests"]) == (START + 9, 0)


def test_requests_from_before_a_change_do_not_count_for_it() -> None:
    bench = Bench()
    bench.candidates.put_in_force([CANDIDATE._replace(version="2")], revision=3)
    bench.hear(True, False, revision=2)
    bench.hear(False, None, revision=2)
    assert counts(bench.told()) == {}
    bench.hear(True, False, revision=3)
    assert bench.told()["requests"] == 1


def test_two_policies_of_a_process_that_have_the_same_rule_both_count() -> None:
    bench = Bench()
    bench.candidates.put_in_force([CANDIDATE], revision=9)
    bench.candidates.put_in_force([CANDIDATE], revision=1)
    for revision in (1, 9):
        bench.hear(True, False, revision=revision)
    assert bench.told()["requests"] == 2


def test_a_rule_that_is_gone_is_not_told() -> None:
    bench = Bench()
    bench.candidates.put_in_force([], gone=["trial"])
    assert bench.candidates.snapshot()["rules"] == []
    assert bench.candidates.beside == {}
    bench.hear(False, None)
    assert bench.candidates.snapshot()["rules"] == []


def test_a_rule_that_nobody_announced_counts_from_its_first_request_on() -> None:
    bench = Bench()
    bench.now += 5
    bench.candidates.record([("other", "k", True, False, "store")], is_allowed=True)
    told = bench.told("other")
    assert (told["since"], told["would_deny"], told["candidate_of"]) == (START + 5, 1, None)


def test_a_call_that_a_rule_speaks_to_twice_is_one_request_refused_if_it_is_once() -> None:
    bench = Bench()
    said = [("live", "a", False, False, "store"), ("live", "b", False, True, "store")]
    said += [("trial", key, True, key == "c", "store") for key in "abc"]
    bench.candidates.record(said, is_allowed=False)
    assert counts(bench.told()) == {
        "requests": 1,
        "would_deny": 1,
        "denied_anyway": 1,
        "denied_by_both": 1,
    }
    assert bench.told()["keys"] == 2


def test_no_more_rules_are_counted_than_is_said() -> None:
    bench = Bench(*(ShadowRule(f"r{n}", None, "1") for n in range(MOST + 5)))
    named = [one["rule_id"] for one in bench.candidates.snapshot()["rules"]]
    assert named == [f"r{n}" for n in range(MOST)]
    bench.candidates.record([("more", "k", True, False, "store")], is_allowed=True)
    assert len(bench.candidates.snapshot()["rules"]) == MOST
    bench.candidates.put_in_force([CANDIDATE])  # another policy: what came first goes first
    named = [one["rule_id"] for one in bench.candidates.snapshot()["rules"]]
    assert named == [*(f"r{n}" for n in range(1, MOST)), "trial"]


def test_candidates_are_counted_before_other_rules_in_shadow() -> None:
    others = [ShadowRule(f"r{n}", None, "1") for n in range(MOST)]
    bench = Bench(*others, CANDIDATE)
    named = [one["rule_id"] for one in bench.candidates.snapshot()["rules"]]
    assert named == [*(f"r{n}" for n in range(MOST - 1)), "trial"]


def test_a_snapshot_of_many_busy_rules_is_bounded_and_still_right() -> None:
    bench = Bench(*(ShadowRule(f"r{n}", None, "1") for n in range(40)))
    for n in range(40):
        for key in range(700):
            bench.candidates.record([(f"r{n}", f"{key}", True, False, "store")], is_allowed=True)
    assert len(pickle.dumps(bench.candidates.snapshot())) < 500_000
    told = bench.told("r7")
    assert not told["keys_exact"]
    assert told["keys"] == pytest.approx(700, rel=0.15)


def test_a_forked_process_begins_anew_with_the_same_rules() -> None:
    bench = Bench()
    bench.hear(True, False)
    bench.now += 60
    bench.candidates.after_fork()
    assert (bench.told()["since"], bench.told()["requests"]) == (START + 60, 0)
    bench.hear(True, False)
    assert bench.told()["newly_denied"] == 1
