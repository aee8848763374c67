"""What a replay counts, and that it is the engine that decides."""

from pathlib import Path
from typing import Any

import pytest

from headgate.engine.plan import Plan
from headgate.engine.use_cases import Engine
from headgate.errors import OptionError
from headgate.observability import RECORDER
from headgate.policy.loader import read_policy_data
from headgate.policy.model import Override, Policy
from headgate.simulator import Arrival, ModelUse, Outcome, open_trace, replay
from headgate.units import MILLISECOND, MINUTE, SECOND

BEGAN_NS = 1_767_225_600 * SECOND


def policy(*rules: dict[str, Any]) -> Policy:
    return read_policy_data({"version": 1, "rules": list(rules)})


def at(seconds: float, key: str = "ann", **fields: Any) -> Arrival:
    at_ns = BEGAN_NS + round(seconds * SECOND)
    return Arrival(at_ns, headers=(("x-api-key", key),), ip="192.0.2.1", **fields)


PER_KEY = {"id": "per-key", "key_by": "api_key", "limit": "2/minute fixed_window"}


def test_what_was_allowed_and_denied_is_told_by_rule_and_by_key() -> None:
    arrivals = [at(1), at(2), at(3), at(4), at(5, "bob")]
    outcome = replay(policy(PER_KEY), arrivals, name="rules.yaml", keys="clear")
    assert (outcome.policy_name, outcome.requests) == ("rules.yaml", 5)
    assert (outcome.allowed, outcome.denied) == (3, 2)
    assert (outcome.callers, outcome.callers_denied) == (2, 1)
    (rule,) = outcome.rules
    assert (rule.rule_id, rule.mode, rule.limit) == ("per-key", "enforce", "2/m fixed_window")
    assert (rule.requests, rule.allowed, rule.denied) == (5, 3, 2)
    assert (rule.keys, rule.keys_denied) == (2, 1)
    assert rule.first_denied_ns == BEGAN_NS + 3 * SECOND
    (top,) = rule.top_denied
    assert (top.key, top.requests, top.denied) == ("api_key=ann", 4, 2)


def test_secrets_are_told_hashed_unless_asked_for() -> None:
    (rule,) = replay(policy(PER_KEY), [at(1), at(2), at(3)]).rules
    assert rule.top_denied[0].key.startswith("api_key=~")


def test_series_go_from_the_first_request_to_the_last() -> None:
    arrivals = [at(0), at(0.5), at(0.9), at(2.5)]
    outcome = replay(policy(PER_KEY), arrivals, step_ns=SECOND)
    assert (outcome.began_ns, outcome.step_ns) == (BEGAN_NS, SECOND)
    assert outcome.allowed_series == (2, 0, 0)
    assert outcome.denied_series == (1, 0, 1)
    assert outcome.rules[0].denied_series == (1, 0, 1)


def test_a_rule_in_shadow_denies_nothing_and_tells_what_it_would() -> None:
    shadow = {**PER_KEY, "id": "shadow", "limit": "1/minute", "mode": "shadow"}
    outcome = replay(policy(PER_KEY, shadow), [at(1), at(2), at(3)])
    assert outcome.denied == 1
    assert [(one.rule_id, one.denied) for one in outcome.rules] == [("per-key", 1), ("shadow", 2)]


def test_rules_that_are_off_or_for_other_requests_have_no_figures() -> None:
    off = {**PER_KEY, "id": "off", "mode": "off"}
    other = {**PER_KEY, "id": "other", "match": {"endpoint": "/other"}}
    outcome = replay(policy(off, other), [at(1), at(2), at(3)])
    assert (outcome.denied, [one.requests for one in outcome.rules]) == (0, [0, 0])


def test_a_request_earlier_than_those_before_it_is_taken_at_their_time() -> None:
    outcome = replay(policy(PER_KEY), [at(61), at(59), at(59)])
    assert outcome.denied == 1  # it is in the second minute too


def test_places_are_held_while_requests_are_served() -> None:
    conc = {"id": "conc", "key_by": "api_key", "concurrency": 1}
    served = [at(0, took_ns=2 * SECOND), at(1, took_ns=SECOND), at(2, took_ns=SECOND)]
    assert replay(policy(conc), served).denied_series[-1:] == (0,)
    assert replay(policy(conc), served).denied == 1


def test_how_long_requests_are_served_may_be_said_for_all() -> None:
    conc = {"id": "conc", "key_by": "api_key", "concurrency": 1}
    arrivals = [at(0), at(0.2), at(0.4)]
    assert replay(policy(conc), arrivals, latency_ns=100 * MILLISECOND).denied == 0
    outcome = replay(policy(conc), arrivals, latency_ns=300 * MILLISECOND)
    assert outcome.denied == 1
    assert any("300 ms" in note for note in outcome.notes)


def test_places_are_renewed_for_as_long_as_a_request_lasts() -> None:
    conc = {"id": "conc", "key_by": "api_key", "concurrency": {"limit": 1, "ttl": "1s"}}
    arrivals = [at(0, took_ns=10 * SECOND), at(5), at(11)]
    assert replay(policy(conc), arrivals).denied == 1


def test_requests_that_wait_in_a_queue_are_counted_as_delayed() -> None:
    shaped = {"id": "shaped", "key_by": "api_key", "shape": {"rate": "1/s", "max_wait": "1s"}}
    outcome = replay(policy(shaped), [at(0), at(0), at(0), at(0)])
    assert (outcome.allowed, outcome.denied, outcome.delayed) == (2, 2, 1)
    assert any("delayed" in note for note in outcome.notes)


def test_fair_queues_are_not_simulated_and_it_is_said() -> None:
    fair = {"id": "turns", "key_by": "api_key", "fair": {"slots": 1}}
    outcome = replay(policy(fair), [at(0), at(0)])
    assert outcome.denied == 0
    assert any("fair" in note and "turns" in note for note in outcome.notes)


def test_an_override_ends_when_its_time_has_come() -> None:
    rules = policy({**PER_KEY, "key_by": "ip"})
    block = Override("per-key", "ip=192.0.2.1", BEGAN_NS + 10 * SECOND, block=True)
    blocked = Policy(rules=rules.rules, identity=rules.identity, overrides=(block,))
    outcome = replay(blocked, [at(1), at(9), at(10)])
    assert (outcome.denied, outcome.rules[0].denied) == (2, 2)


def test_a_limit_is_larger_only_as_long_as_an_override_says() -> None:
    rules = policy({**PER_KEY, "key_by": "ip"})
    more = Override("per-key", "ip=192.0.2.1", BEGAN_NS + 10 * SECOND, extra=5)
    larger = Policy(rules=rules.rules, identity=rules.identity, overrides=(more,))
    assert replay(larger, [at(1), at(2), at(3)]).denied == 0
    assert replay(larger, [at(1), at(61), at(62), at(63)]).denied == 1


def test_a_cost_that_arrives_takes_the_place_of_what_the_rules_say() -> None:
    outcome = replay(policy(PER_KEY), [at(1, cost=3), at(2, cost=2), at(3, cost=1)])
    assert (outcome.allowed, outcome.denied) == (1, 2)


def test_rules_and_requests_by_host_find_it_among_the_headers() -> None:
    rule = {**PER_KEY, "match": {"host": "api.example.com"}, "key_by": "global"}
    arrivals = [
        Arrival(BEGAN_NS, headers=(("Host", host),))
        for host in ("api.example.com", "www.example.com", "api.example.com")
    ]
    assert replay(policy(rule), arrivals).rules[0].requests == 2


def test_a_replay_is_not_recorded_in_the_journal() -> None:
    before = [count[0] for count in RECORDER.requests]
    shadow = {**PER_KEY, "id": "shadow", "mode": "shadow", "limit": "1/s; 2/minute"}
    replay(policy(PER_KEY, shadow), [at(1), at(2), at(3)])
    assert [count[0] for count in RECORDER.requests] == before


def test_progress_is_told() -> None:
    told: list[tuple[int, float | None]] = []
    replay(
        policy(PER_KEY), [at(1), at(2)], progress=lambda count, share: told.append((count, share))
    )
    assert told == [(2, None)]


def test_progress_is_told_within_what_comes_at_once(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"  # a trace is put in order in large pieces
    trace.write_text("time,x-api-key\n" + "".join(f"{n},ann\n" for n in range(25_000)))
    told: list[tuple[int, float | None]] = []
    outcome = replay(
        policy(PER_KEY),
        open_trace(str(trace)),
        progress=lambda count, share: told.append((count, share)),
    )
    assert told == [(10_000, 0.4), (20_000, 0.8), (25_000, 1.0)]
    assert outcome.requests == 25_000
    assert outcome.allowed == 2 * len({n // 60 for n in range(25_000)})


def test_no_requests_are_an_error() -> None:
    with pytest.raises(OptionError, match="nothing to replay"):
        replay(policy(PER_KEY), [])


def around(boundary_s: float, quota: int) -> list[Arrival]:
    """Twice the quota, half of it right before the boundary."""
    before = [at(boundary_s - 0.5) for _ in range(quota)]
    return before + [at(boundary_s) for _ in range(quota)]


@pytest.mark.parametrize(
    ("algorithm", "admitted"), [("fixed_window", 20), ("sliding_window_log", 10)]
)
def test_twice_the_quota_passes_a_boundary_of_fixed_windows_only(
    algorithm: str, admitted: int
) -> None:
    rule = {**PER_KEY, "limit": f"10/minute {algorithm}"}
    outcome: Outcome = replay(policy(rule), around(MINUTE / SECOND, 10))
    assert outcome.allowed == admitted


def test_several_rules_beside_shadows_are_decided_by_prepared_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Plan] = []
    decide = Engine.decide

    def noted(self: Engine, plan: Plan, *, is_recorded: bool = True) -> Any:
        asked.append(plan)
        return decide(self, plan, is_recorded=is_recorded)

    monkeypatch.setattr(Engine, "decide", noted)
    rules = (
        {**PER_KEY, "limit": "6/minute fixed_window"},
        {"id": "per-ip", "key_by": "ip", "limit": "4/minute; 5/hour"},
        {**PER_KEY, "id": "one", "mode": "shadow", "limit": "3/minute"},
        {**PER_KEY, "id": "two", "mode": "shadow", "limit": "2/minute"},
    )
    outcome = replay(policy(*rules), [at(n / 10) for n in range(50)])
    assert not asked
    assert outcome.denied == 46
    told = [(one.rule_id, one.allowed, one.denied) for one in outcome.rules]
    assert told == [("per-key", 50, 0), ("per-ip", 4, 46), ("one", 3, 47), ("two", 2, 48)]


TOKENS = {
    "id": "tokens",
    "match": {"model": "m-*"},
    "key_by": "api_key",
    "limit": "1000/day strict",
    "cost": {"llm": {"count": "tokens", "default_output": 700}},
}


def calls(*uses: tuple[float, ModelUse]) -> list[Arrival]:
    return [
        at(second, method="POST", path="/v1/messages", call=use, took_ns=10 * SECOND)
        for second, use in uses
    ]


def test_calls_of_language_models_reserve_their_estimate_and_are_charged_what_they_used() -> None:
    use = ModelUse("m-1", 100, 50, max_tokens=500)
    outcome = replay(policy(TOKENS), calls((0, use), (5, use), (11, use)))
    assert (outcome.allowed, outcome.denied) == (2, 1)  # 600 are reserved until second 10
    assert outcome.rules[0].first_denied_ns == BEGAN_NS + 5 * SECOND


def test_a_call_of_unknown_output_is_charged_its_estimate() -> None:
    use = ModelUse("m-1", 100)
    outcome = replay(policy(TOKENS), calls((0, use), (60, use)))
    assert (outcome.allowed, outcome.denied) == (1, 1)


def test_a_call_of_another_model_is_not_limited() -> None:
    use = ModelUse("other", 100, 50, max_tokens=5000)
    assert replay(policy(TOKENS), calls((0, use), (1, use))).denied == 0
