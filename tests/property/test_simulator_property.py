"""A replay says what the engine says to the same requests one by one, however alike they look."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine import RuleEngine
from headgate.rules.reading import read_policy_data
from headgate.rules.request import Request
from headgate.simulator import Arrival, replay
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from headgate.units import SECOND

BEGAN = 1_800_000_000

PATTERNS = ("/**", "/a", "/a/*", "/a/**", "/*/b", "/**/b", "/a/*/c", "/a/b")
PATHS = (
    *("/a", "/A/", "/b", "/a/b", "/a/1", "/a/2", "/a/1/c", "/a/2/c", "/1/b", "/2/b", "/1", "/2"),
    *("/v*", "/v1", "//a", "/a/../b", "/%61/1", "/a%2F1", "/a;x/1", "/a./1", "/", "/1/2/3/b"),
)
LIMITS = ("3/minute", "2/s; 5/minute", "4/minute gcra", "3/minute fixed_window", "2/hour")


@st.composite
def rules(draw: st.DrawFn, name: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": name, "limit": draw(st.sampled_from(LIMITS))}
    rule["key_by"] = draw(
        st.sampled_from(["ip", "ip", "global", "endpoint", ["ip", "endpoint"], ["ip", "method"]])
    )
    rule["mode"] = draw(st.sampled_from(["enforce", "enforce", "shadow", "off"]))
    rule["match"] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "endpoint": st.lists(
                    st.sampled_from(PATTERNS), min_size=1, max_size=2, unique=True
                ),
                "method": st.just("POST"),
            },
        )
    )
    endpoints = draw(st.dictionaries(st.sampled_from(PATTERNS), st.integers(0, 2), max_size=2))
    if endpoints:
        rule["cost"] = {"default": 1, "endpoints": endpoints}
    return rule


policies = st.integers(0, 4).flatmap(
    lambda count: st.tuples(*[rules(f"rule-{number}") for number in range(count)])
)
requests = st.tuples(
    st.sampled_from(PATHS),
    st.sampled_from(["GET", "POST", "HEAD"]),
    st.sampled_from(["192.0.2.1", "192.0.2.2"]),
    st.integers(0, 3),
)


@settings(max_examples=150, deadline=None)
@given(policies, st.lists(requests, max_size=40))
def test_a_replay_says_what_the_engine_says(
    made: tuple[dict[str, Any], ...], asked: list[tuple[str, str, str, int]]
) -> None:
    policy = read_policy_data({"version": 1, "rules": list(made)})
    clock = ManualClock(BEGAN)
    engine = RuleEngine(policy, store=MemoryStore(clock=clock))
    arrivals, denied = [], {rule.id: 0 for rule in policy.rules}
    refused = at = 0
    for path, method, ip, pause in asked:
        clock.advance(pause)
        at += pause
        verdict = engine.check(Request(method, path, peer=ip))
        refused += not verdict.allowed
        for one in verdict.rules:
            denied[one.rule.id] += not one.decision.allowed
        arrivals.append(Arrival((BEGAN + at) * SECOND, method, path, ip=ip))
    if arrivals:
        outcome = replay(policy, arrivals)
        assert (outcome.denied, outcome.allowed) == (refused, len(asked) - refused)
        assert {one.rule_id: one.denied for one in outcome.rules} == denied
