"""The recorder: what was decided, by rule, outcome and source."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headgate.engine.request import Request
from headgate.observability import METRICS, RECORDER, DecisionRecord, DecisionRecorder
from headgate.observability.decision_recorder import BOUNDS_NS, MOST_CELLS, OTHER, Outcome
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock
from headgate.units import MICROSECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = """
version: 1
rules:
  - {id: journal-live, key_by: ip, limit: 2/minute}
  - {id: recorder-shadow, key_by: ip, limit: 1/minute, mode: shadow}
"""


@pytest.fixture
def engine() -> Iterator[RuleEngine]:
    engine = RuleEngine(read_policy(POLICY), clock=ManualClock())
    yield engine
    engine.close()


def count(rule: str, outcome: Outcome, source: str = "store") -> int:
    return RECORDER.cell(rule, outcome, source)[0]


def test_each_rule_counts_what_it_said(engine: RuleEngine) -> None:
    before = [cell[0] for cell in RECORDER.requests]
    for _ in range(3):
        engine.check(Request(peer="203.0.113.7"))
    assert count("journal-live", "allowed") == 2
    assert count("journal-live", "denied") == 1
    assert count("recorder-shadow", "shadow_allowed") == 1
    assert count("recorder-shadow", "shadow_denied") == 2
    assert [cell[0] for cell in RECORDER.requests] == [before[0] + 1, before[1] + 2]
    told = METRICS.text()
    assert 'headgate_decisions_total{outcome="denied",rule="journal-live",source="store"} 1' in told


def test_a_look_is_no_decision(engine: RuleEngine) -> None:
    before = dict(RECORDER.counts())
    engine.peek(Request(peer="203.0.113.8"))
    assert dict(RECORDER.counts()) == before


def test_a_listener_hears_of_each_request_until_it_ends(engine: RuleEngine) -> None:
    heard: list[DecisionRecord] = []
    end = RECORDER.listen(heard.append)
    try:
        for _ in range(3):
            engine.check(Request(peer="203.0.113.9"))
    finally:
        end()
    engine.check(Request(peer="203.0.113.9"))
    assert [one.allowed for one in heard] == [True, True, False]
    assert [(said.rule, said.outcome) for said in heard[-1].rules] == [
        ("journal-live", "denied"),
        ("recorder-shadow", "shadow_denied"),
    ]
    assert heard[-1].rules[0].retry_after_ns == 30 * SECOND


def test_times_are_a_cumulative_histogram() -> None:
    recorder = DecisionRecorder()
    for took_ns in (1, MICROSECOND, MICROSECOND + 1, 5 * SECOND):
        recorder.time(took_ns)
    samples = {
        dict(labels).get("le", end): value for end, labels, value in recorder.latency_samples()
    }
    assert samples["1e-06"] == 2
    assert samples["2e-06"] == 3
    assert samples["1.0"] == 3
    assert samples["+Inf"] == samples["_count"] == 4
    assert len(samples) == len(BOUNDS_NS) + 3


def test_labels_are_bounded() -> None:
    recorder = DecisionRecorder()
    for number in range(MOST_CELLS + 100):
        recorder.record(f"rule-{number}", "allowed", "store", "key")
    assert len(recorder.cells) <= MOST_CELLS + 2
    assert recorder.cells[OTHER, "allowed", "store"][0] == MOST_CELLS // 2 + 100


def test_the_busiest_and_the_refused_are_known() -> None:
    recorder = DecisionRecorder()
    for number in range(4000):
        recorder.record("r", "allowed", "store", "often" if number % 4 else f"seldom-{number}")
    recorder.record("r", "denied", "store", "refused")
    assert [one.key for one in recorder.most_denied.top(5, 0)] == ["refused"]
    assert recorder.busiest.top(1, 0)[0].key == "often"


def test_of_rules_that_all_apply_each_has_its_turn_among_the_busiest() -> None:
    recorder = DecisionRecorder()
    for _ in range(2_000):
        for rule in ("a", "b"):
            recorder.record(rule, "allowed", "store", "key")
    assert {one.group for one in recorder.busiest.top(5, 0)} == {"a", "b"}


def test_threads_lose_no_count() -> None:
    recorder = DecisionRecorder()

    def work() -> None:
        for _ in range(20_000):
            recorder.record("r", "allowed", "store", "key")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.cells["r", "allowed", "store"][0] == 80_000


def test_what_a_rule_has_not_said_yet_is_told_as_none() -> None:
    recorder = DecisionRecorder()
    recorder.record("r", "allowed", "store", "key")
    recorder.record("s", "shadow_denied", "lease", "key")
    assert dict(recorder.counts()) == {
        ("r", "allowed", "store"): 1,
        ("r", "denied", "store"): 0,
        ("s", "shadow_denied", "lease"): 1,
        ("s", "shadow_allowed", "lease"): 0,
    }


def test_who_wants_to_hear_of_refusals_only_is_told_of_those_of_shadows_too(
    engine: RuleEngine,
) -> None:
    heard: list[DecisionRecord] = []
    end = RECORDER.listen(heard.append, only_denials=True)
    try:
        for _ in range(3):
            engine.check(Request(peer="203.0.113.10"))
    finally:
        end()
    engine.check(Request(peer="203.0.113.10"))
    assert [(one.allowed, one.rules[1].outcome) for one in heard] == [
        (True, "shadow_denied"),
        (False, "shadow_denied"),
    ]
