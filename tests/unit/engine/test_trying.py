"""Rules in shadow beside those in force: what is counted, and that nothing else comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import rule_engine
from headgate.engine import recorder
from headgate.engine.request import Request
from headgate.observability.candidates import FIGURES, Candidates, merged_candidates
from headgate.policy.loader import read_policy_data
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.runtime.drivers import drive
from headgate.testing import ManualClock
from tests.examples import example_count

RuleAnswer = Callable[..., dict[str, int]]

LIVE: dict[str, Any] = {"id": "live", "key_by": "user_id", "limit": "5/m"}
TRIAL = {**LIVE, "id": "trial", "limit": "3/m", "mode": "shadow", "candidate_of": "live"}


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Candidates:
    fresh = Candidates(ManualClock())
    for module in (recorder, rule_engine):
        monkeypatch.setattr(module, "CANDIDATES", fresh)
    return fresh


@pytest.fixture
def told(candidates: Candidates) -> RuleAnswer:
    """The figures of a rule that are not 0."""

    def figures(name: str = "trial") -> dict[str, int]:
        found = merged_candidates([candidates.snapshot()], 0)
        [one] = [each for each in found if each["rule_id"] == name]
        return {figure: one[figure] for figure in (*FIGURES, "keys") if one[figure]}

    return figures


def policy(*rules: dict[str, Any], **more: Any) -> Any:
    return read_policy_data({"version": 1, "rules": list(rules), **more})


def engine(*rules: dict[str, Any], **more: Any) -> RuleEngine:
    return RuleEngine(policy(*rules, **more), clock=ManualClock(), store="memory://")


def request(user: str = "u", path: str = "/", **headers: str) -> Request:
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request("GET", path, headers=(("x-user-id", user), *lines), peer="192.0.2.1")


def ask(asked: RuleEngine, times: int, user: str = "u", path: str = "/", **headers: str) -> None:
    for _ in range(times):
        asked.check(request(user, path, **headers))


def test_what_the_candidate_would_refuse_is_compared_with_its_rule(told: RuleAnswer) -> None:
    asked = engine(LIVE, TRIAL)
    for user in "abcd":
        ask(asked, 7, user)
    assert told() == {
        "requests": 28,
        "would_deny": 16,
        "newly_denied": 8,
        "denied_by_both": 8,
        "denied_anyway": 8,
        "keys": 4,
    }


def test_what_a_larger_candidate_would_admit_is_counted(told: RuleAnswer) -> None:
    asked = engine(LIVE, {**TRIAL, "limit": "6/m"})
    ask(asked, 9)
    assert told() == {
        "requests": 9,
        "would_deny": 3,
        "newly_allowed": 1,
        "denied_by_both": 3,
        "denied_anyway": 3,
        "keys": 1,
    }


def test_requests_that_one_of_both_is_not_for_are_told_apart(told: RuleAnswer) -> None:
    asked = engine({**LIVE, "match": {"endpoint": "/a/**"}}, {**TRIAL, "match": {"method": "GET"}})
    ask(asked, 2, path="/b")
    assert told() == {"requests": 2, "live_not_asked": 2}
    narrow = engine(LIVE, {**TRIAL, "match": {"endpoint": "/a/**"}})
    ask(narrow, 8, path="/b")
    assert told() == {"newly_allowed": 3}


def test_a_rule_in_shadow_that_is_no_candidate_is_counted_too(told: RuleAnswer) -> None:
    plain = {name: value for name, value in TRIAL.items() if name != "candidate_of"}
    asked = engine(plain)
    ask(asked, 5)
    assert told() == {"requests": 5, "would_deny": 2, "keys": 1}


def test_rules_that_decide_alone_are_not_counted(candidates: Candidates) -> None:
    ask(engine(LIVE), 9)
    assert candidates.snapshot()["rules"] == []


def test_looking_counts_nothing(told: RuleAnswer) -> None:
    asked = engine(LIVE, TRIAL)
    asked.peek(request())
    assert told() == {}


def test_a_caller_who_is_blocked_tells_nothing_of_either(told: RuleAnswer) -> None:
    block = {"rule": "live", "key": "user_id=u", "block": True, "until": "2999-01-01T00:00:00Z"}
    asked = engine(LIVE, TRIAL, overrides=[block])
    ask(asked, 3)
    assert told() == {}
    ask(asked, 4, user="other")
    assert told()["newly_denied"] == 1
    elsewhere = {**TRIAL, "match": {"endpoint": "/a"}}
    ask(engine(LIVE, elsewhere, overrides=[block]), 3)  # who is blocked stays so
    assert told() == {}


def test_a_repeated_request_that_the_live_rule_lets_pass_counts_as_passed(told: RuleAnswer) -> None:
    asked = engine({**LIVE, "idempotency": True}, {**TRIAL, "limit": "1/m"})
    ask(asked, 3, idempotency_key="same")
    assert told() == {"requests": 3, "would_deny": 2, "newly_denied": 2, "keys": 1}


def test_slots_are_tried_and_given_back(told: RuleAnswer) -> None:
    slots = {"limits": [{"algorithm": "concurrency", "limit": 2, "ttl": 60}]}
    trial = {name: value for name, value in TRIAL.items() if name != "limit"} | slots
    asked = engine(LIVE, trial)
    held = [asked.check(request()) for _ in range(3)]
    assert told()["newly_denied"] == 1
    for verdict in held:
        asked.release(verdict)
    assert asked.check(request())
    assert told() == {"requests": 4, "would_deny": 1, "newly_denied": 1, "keys": 1}


def test_a_queue_in_shadow_delays_nobody(told: RuleAnswer) -> None:
    trial = {name: value for name, value in TRIAL.items() if name != "limit"}
    asked = engine(LIVE, {**trial, "shape": {"rate": "1/s", "queue": 2}})
    verdicts = [asked.check(request()) for _ in range(5)]
    assert [verdict.delay_ns for verdict in verdicts] == [0] * 5
    assert told()["newly_denied"] == 2


def test_the_async_shell_counts_the_same(told: RuleAnswer) -> None:
    async def main() -> None:
        asked = AsyncRuleEngine(policy(LIVE, TRIAL), clock=ManualClock())
        for _ in range(4):
            await asked.check(request())
        await asked.reserve(request(), cost=1)
        await asked.aclose()

    asyncio.run(main())
    assert told() == {"requests": 5, "would_deny": 2, "newly_denied": 2, "keys": 1}


def test_a_policy_that_changes_another_rule_goes_on_counting(told: RuleAnswer) -> None:
    asked = engine(LIVE, TRIAL)
    ask(asked, 4)
    other = {**LIVE, "id": "other", "limit": "9/m"}
    asked.replace(policy(other, {**LIVE, "description": "more words"}, TRIAL))
    ask(asked, 1)
    assert told()["requests"] == 5
    asked.replace(policy({**LIVE, "mode": "off"}, TRIAL))  # the switch, for a while
    asked.replace(policy(LIVE, TRIAL))
    assert told()["requests"] == 5


@pytest.mark.parametrize(
    ("live", "trial"),
    [
        ({}, {"limit": "4/m"}),
        ({"limit": "50/m"}, {}),
        ({}, {"cost": 2}),
        ({"match": {"tier": "x"}}, {}),
    ],
)
def test_a_candidate_begins_anew_when_it_or_its_rule_changes(
    told: RuleAnswer, live: dict[str, Any], trial: dict[str, Any]
) -> None:
    asked = engine(LIVE, TRIAL)
    ask(asked, 4)
    asked.replace(policy(LIVE | live, TRIAL | trial))
    assert told() == {}


def test_requests_that_began_under_the_old_rule_do_not_count_for_the_new(told: RuleAnswer) -> None:
    asked = engine(LIVE, TRIAL)
    plan = asked.in_force.compiled.plan(request())
    asked.replace(policy(LIVE, TRIAL | {"limit": "1/m"}))
    drive(asked.engine.decide(plan))
    assert told() == {}
    ask(asked, 1)
    assert told()["requests"] == 1


def test_a_rule_that_is_out_of_shadow_is_counted_no_longer(candidates: Candidates) -> None:
    asked = engine(LIVE, TRIAL)
    ask(asked, 4)
    asked.replace(policy({**LIVE, "limit": "3/m"}))
    ask(asked, 4)
    assert candidates.snapshot()["rules"] == []
    assert candidates.beside == {}


LIMITS = st.sampled_from(
    ("1/s", "3/m", "2/s burst 4; 9/m", "5/m sliding_window_log", "4/10s fixed_window", "3/s gcra")
)
RULES = st.fixed_dictionaries(
    {"limit": LIMITS, "key_by": st.sampled_from(("user_id", "ip", ["user_id", "endpoint"]))},
    optional={
        "match": st.sampled_from(({"endpoint": "/a"}, {"method": "GET"})),
        "cost": st.sampled_from((0, 1, {"endpoints": {"/a": 1}, "default": 1})),
        "idempotency": st.just(value=True),
    },
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from("uv"), st.sampled_from(("/a", "/b")), st.integers(0, 3), st.booleans()
    ),
    max_size=30,
)


@settings(max_examples=example_count(50), deadline=None)
@given(RULES, RULES, RULES, STEPS)
def test_a_candidate_changes_nothing_for_anybody(
    live: dict[str, Any], other: dict[str, Any], trial: dict[str, Any], steps: list[Any]
) -> None:
    rules = [{**live, "id": "live"}, {**other, "id": "other"}]
    tried = {**trial, "id": "trial", "mode": "shadow", "candidate_of": "live"}
    clock = ManualClock()
    without = RuleEngine(policy(*rules), clock=clock)
    beside = RuleEngine(policy(*rules, tried), clock=clock)
    for number, (user, path, seconds, is_repeated) in enumerate(steps):
        key = "same" if is_repeated else str(number)
        asked = request(user, path, idempotency_key=key)
        one, two = without.check(asked), beside.check(asked)
        said = [(each.rule.id, each.key, each.decision) for each in one.rules]
        assert [
            (each.rule.id, each.key, each.decision) for each in two.rules if not each.is_shadow
        ] == said
        assert (one.allowed, one.retry_after_ns, one.is_replay) == (
            two.allowed,
            two.retry_after_ns,
            two.is_replay,
        )
        clock.advance(seconds / 2)
