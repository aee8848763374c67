"""`candidate_of`: what is read, and which rules can be tried beside which."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.policy.loader import (
    examine_policies,
    examine_policy,
    examine_policy_data,
    policy_to_data,
    read_policy,
    read_policy_data,
)
from headgate.policy.policy_document import rule_to_data
from headgate.policy.rule_cache import RuleCache

LIVE = "{id: live, key_by: ip, limit: 5/s}"
TRIED = "id: trial, key_by: ip, limit: 3/s, mode: shadow"
CANDIDATE = f"{{{TRIED}, candidate_of: live}}"


def problems(*rules: str) -> list[tuple[str, str | None, str, str, str]]:
    text = "version: 1\nrules:\n" + "".join(f"  - {rule}\n" for rule in rules)
    found = examine_policy(text).problems
    return [(one.severity, one.rule, one.field, one.message, one.hint) for one in found]


def refusal(*rules: str) -> tuple[str, str]:
    """The message and the hint of the only problem, an error in `candidate_of` of `trial`."""
    [(severity, rule, field, message, hint)] = problems(*rules)
    assert (severity, rule, field) == ("error", "trial", "candidate_of")
    return message, hint


def warning(*rules: str) -> str:
    [(severity, rule, field, message, _)] = problems(*rules)
    assert (severity, rule, field) == ("warning", "trial", "candidate_of")
    return message


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_a_candidate_is_read_and_comes_back_from_its_data(mode: str) -> None:
    policy = read_policy(f"version: 1\nrules: [{LIVE}, {CANDIDATE.replace('shadow', mode)}]")
    assert [rule.candidate_of for rule in policy.rules] == [None, "live"]
    assert rule_to_data(policy.rules[1])["candidate_of"] == "live"
    assert "candidate_of" not in rule_to_data(policy.rules[0])
    assert read_policy_data(policy_to_data(policy)) == policy


@pytest.mark.parametrize(
    "trial",
    [
        "{id: trial, key_by: [tenant, ip], limits: {paid: 9/s}, mode: shadow, candidate_of: live}",
        "{id: trial, match: {tier: x}, key_by: ip, limit: 9/s, mode: shadow, candidate_of: live}",
        "{id: trial, key_by: ip, limit: 9/s, cost: 2, mode: shadow, candidate_of: live}",
        "{id: trial, key_by: ip, concurrency: 5, mode: shadow, candidate_of: live}",
        "{id: trial, key_by: ip, shape: {rate: 5/s, queue: 9}, mode: shadow, candidate_of: live}",
    ],
)
def test_a_candidate_may_be_quite_another_rule(trial: str) -> None:
    assert all(severity != "error" for severity, *_ in problems(LIVE, trial))


def test_a_candidate_may_stand_before_its_rule_and_in_another_file() -> None:
    assert problems(CANDIDATE, LIVE) == []
    files = [("a", f"version: 1\nrules: [{CANDIDATE}]"), ("b", f"version: 1\nrules: [{LIVE}]")]
    assert examine_policies(files).problems == ()


@pytest.mark.parametrize("mode", ["mode: enforce, ", ""])
def test_a_candidate_that_would_decide_is_refused(mode: str) -> None:
    trial = f"{{id: trial, key_by: ip, limit: 3/s, {mode}candidate_of: live}}"
    [(severity, rule, field, message, hint)] = problems(LIVE, trial)
    assert (severity, rule, field) == ("error", "trial", "mode" if mode else "")
    assert message == "a candidate decides nothing, and this rule is in mode enforce"
    assert hint == "expected mode: shadow with candidate_of; adopt it to have it decide"


def test_a_rule_that_is_not_there_is_refused_with_the_one_that_is_meant() -> None:
    message, hint = refusal(LIVE, CANDIDATE.replace("of: live", "of: lief"))
    assert message == "there is no rule 'lief' that it could be a candidate of"
    assert hint == "did you mean 'live'?"
    assert refusal(CANDIDATE)[1] == ""


def test_a_rule_that_names_itself_is_refused() -> None:
    message, _ = refusal(LIVE, f"{{{TRIED}, candidate_of: trial}}")
    assert message == "the rule names itself"


def test_a_candidate_of_a_candidate_is_refused() -> None:
    first = "{id: first, key_by: ip, limit: 2/s, mode: shadow, candidate_of: live}"
    message, _ = refusal(LIVE, first, f"{{{TRIED}, candidate_of: first}}")
    assert message == "the rule 'first' is a candidate itself, of 'live'"


def test_a_second_candidate_is_refused() -> None:
    first = "{id: first, key_by: ip, limit: 2/s, mode: shadow, candidate_of: live}"
    message, hint = refusal(LIVE, first, CANDIDATE)
    assert message == "the rule 'live' has a candidate already, 'first'"
    assert hint == "expected one for each rule; compare others one after the other"


def test_turns_cannot_be_tried() -> None:
    trial = "{id: trial, key_by: ip, fair: {slots: 5}, mode: shadow, candidate_of: live}"
    errors = [one for one in problems(LIVE, trial) if one[0] == "error"]
    assert [(rule, field) for _, rule, field, *_ in errors] == [("trial", "fair")]
    fair = "{id: live, key_by: ip, fair: {slots: 5}}"
    assert "wait in a queue: there is nothing to compare with" in warning(fair, CANDIDATE)


def test_the_switch_of_the_live_rule_works_whatever_is_tried_beside_it() -> None:
    off = LIVE.replace("5/s", "5/s, mode: off")
    found = [one for one in problems(off, CANDIDATE) if one[1] == "trial"]
    assert [(severity, message) for severity, _, _, message, _ in found] == [
        ("warning", "the rule 'live' is off: there is nothing to compare with")
    ]


def test_a_candidate_that_is_as_its_rule_is_warned_of() -> None:
    same = CANDIDATE.replace("3/s", "5/s")
    assert warning(LIVE, same) == "it is equal to the rule 'live': there is nothing to compare"


def test_nothing_more_is_said_of_a_rule_that_is_wrong_itself() -> None:
    [(severity, rule, *_)] = problems(LIVE.replace("5/s", "5/x"), CANDIDATE)
    assert (severity, rule) == ("error", "live")


def test_what_is_known_by_heart_is_still_held_against_the_others() -> None:
    memory = RuleCache()
    live: dict[str, Any] = {"id": "live", "key_by": "ip", "limit": "5/s"}
    trial = {**live, "id": "trial", "limit": "3/s", "mode": "shadow", "candidate_of": "live"}
    whole = {"version": 1, "rules": [live, trial]}
    assert examine_policy_data(whole, cache=memory).problems == ()
    alone = examine_policy_data({"version": 1, "rules": [trial]}, cache=memory)
    assert alone.policy is None
    assert [problem.rule for problem in alone.problems] == ["trial"]
