"""Traffic that is made up: for the rules of a policy, the same for a seed, as it is called."""

from collections import Counter
from typing import Any

import pytest

from headgate.errors import OptionError
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.loader import read_policy_data
from headgate.policy.model import Policy
from headgate.simulator import RETRIES, WORKLOADS, Arrival, Options, replay, workload
from headgate.simulator.workloads import address_of
from headgate.units import MINUTE, SECOND


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    return read_policy_data({"version": 1, "rules": list(rules), **more})


PER_KEY = {"id": "per-key", "key_by": "api_key", "limit": "10/minute fixed_window"}
ODD = policy(
    {
        "id": "odd",
        "match": {
            "endpoint": "/api/*/x/**",
            "method": "PUT",
            "host": "*.example.com",
            "tier": "paid",
            "headers": {"x-kind": ["a", "b"]},
            "cookies": {"session": "*"},
        },
        "key_by": ["tenant", "user_id"],
        "limit": "5/s",
    },
    identity={"user_id": {"header": "x-me"}, "tier": {"header": "x-plan"}},
)


def arrivals(name: str, rules: Policy, **options: Any) -> list[Arrival]:
    return list(workload(name, rules, Options(**options)))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_for_the_rules_of_the_policy_and_in_order(name: str) -> None:
    engine = CompiledPolicy(ODD)
    found = arrivals(name, ODD, duration=20)
    assert found == sorted(found, key=lambda one: one.at_ns)
    made = workload(name, ODD, Options(duration=20))
    for batch in made.batches():
        assert all(engine.matching(asked.request()) for _, asked, _ in batch)
    assert made.share == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_the_same_for_a_seed(name: str) -> None:
    outcomes = [
        replay(ODD, workload(name, ODD, Options(duration=20, rate=50, seed=seed)))
        for seed in (7, 7, 8)
    ]
    figures = [(one.requests, one.denied, one.retries, one.denied_series) for one in outcomes]
    assert figures[0] == figures[1]
    assert name == "boundary_attack" or figures[0] != figures[2]


def test_each_caller_has_an_address_and_names_of_its_own() -> None:
    found = arrivals("steady", policy(PER_KEY), callers=5)
    assert len({one.ip for one in found}) == len({one.headers for one in found}) == 5
    assert len({address_of(caller) for caller in (0, 1, 200_000, 200_001)}) == 4


def test_steady_traffic_has_its_rate() -> None:
    assert len(arrivals("steady", policy(PER_KEY), rate=200, duration=30)) == pytest.approx(
        6000, rel=0.05
    )


def test_bursts_come_every_so_often() -> None:
    options = {"rate": 10, "duration": 30, "every": 10, "factor": 20}
    seconds = Counter(
        (one.at_ns // SECOND) % 10 for one in arrivals("bursts", policy(PER_KEY), **options)
    )
    assert seconds[9] > 400
    assert max(seconds[second] for second in range(9)) < 80


def test_of_many_tenants_few_ask_most() -> None:
    found = Counter(one.ip for one in arrivals("many_tenants", policy(PER_KEY), duration=100))
    assert found[address_of(0)] > 5 * found[address_of(20)] > 0
    assert len(found) > 300


def test_a_boundary_attack_that_ends_before_its_window_is_told_how_long_that_is() -> None:
    with pytest.raises(OptionError, match="10/m fixed_window ends after 60 s; expected at least"):
        workload("boundary_attack", policy(PER_KEY), Options(duration=59))
    assert len(arrivals("boundary_attack", policy(PER_KEY), duration=60)) == 20


@pytest.mark.parametrize(
    ("algorithm", "admitted"), [("fixed_window", 20), ("sliding_window_log", 10)]
)
def test_a_boundary_attack_gets_twice_the_quota_past_fixed_windows_only(
    algorithm: str, admitted: int
) -> None:
    rules = policy({**PER_KEY, "limit": f"10/minute {algorithm}"})
    attack = workload("boundary_attack", rules)
    found = list(attack)
    first = [one for one in found if one.at_ns < found[0].at_ns + MINUTE // 2]
    assert len(first) == 20
    assert replay(rules, first).allowed == admitted


def test_refused_clients_come_back_as_often_as_they_may() -> None:
    never = policy({**PER_KEY, "limit": "1/d fixed_window", "key_by": "global"})
    storm = workload("retry_storm", never, Options(duration=2, retry="at_once", attempts=3))
    outcome = replay(never, storm)
    first = len(arrivals("steady", never, duration=2))
    assert outcome.requests == first + outcome.retries
    assert outcome.retries == 3 * (first - 1)


@pytest.mark.parametrize("retry", RETRIES)
def test_who_waits_as_told_is_admitted_in_the_end(retry: str) -> None:
    rules = policy({**PER_KEY, "limit": "100/m sliding_window_log", "key_by": "global"})
    options = Options(rate=10, duration=20, retry=retry, attempts=1)  # type: ignore[arg-type]
    outcome = replay(rules, workload("retry_storm", rules, options))
    admitted = outcome.allowed > 100
    assert admitted is (retry == "retry_after")


def test_what_is_asked_may_be_said() -> None:
    found = arrivals(
        "steady", policy(PER_KEY), path="/x", method="POST", headers=(("x-api-key", "ann"),)
    )
    assert {(one.method, one.path, one.headers[0]) for one in found} == {
        ("POST", "/x", ("x-api-key", "ann"))
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 0}, "rate is 0"),
        ({"duration": -1}, "duration is -1"),
        ({"callers": 0}, "callers is 0"),
        ({"retry": "never"}, "expected one of at_once"),
        ({"path": "x"}, "begins with /"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Options(**options)


def test_requests_that_no_rule_is_for_are_refused() -> None:
    with pytest.raises(OptionError, match="no rule"):
        workload("steady", ODD, Options(path="/elsewhere"))
    with pytest.raises(OptionError, match="expected one of steady"):
        workload("calm", ODD)
