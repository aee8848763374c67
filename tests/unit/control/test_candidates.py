"""Trying a rule beside another, and adopting it: each one revision, in any storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.editor import EditRequest, PolicyEditor, StaleVersionError
from headgate.control.edits import (
    UnknownRuleError,
    adopt_candidate,
    change_rules,
    delete_rule,
    put_candidate,
    put_override,
    put_rule,
    switch_rule,
)
from headgate.control.file_source import FileSource
from headgate.policy.loader import read_policy
from headgate.policy.problems import PolicyError
from tests.support.policy_editor import ADA, RULE, Trial, tried, wish

if TYPE_CHECKING:
    from pathlib import Path

TRIED: dict[str, Any] = {"key_by": "ip", "limit": "3/minute"}
CANDIDATE = {"id": "login-candidate", **TRIED, "mode": "shadow", "candidate_of": "login"}


def rules(trial: Trial) -> dict[str, Any]:
    return {rule["id"]: rule for rule in (trial.editor.head()).document["rules"]}


def test_a_candidate_is_put_in_shadow_after_its_rule() -> None:
    def body(trial: Trial) -> None:
        edited = trial.editor.apply(put_candidate("login", TRIED), ADA)
        assert trial.ids() == ["login", "login-candidate", "api"]
        assert (rules(trial))["login-candidate"] == CANDIDATE
        assert (rules(trial))["login"] == {"id": "login", **RULE}
        assert edited.revision.number == 3
        assert edited.revision.change.what == "try a candidate of login"
        again = trial.editor.apply(put_candidate("login", TRIED), ADA)
        assert not again.is_changed

    tried(body)


def test_another_candidate_takes_the_place_of_the_first() -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        trial.editor.apply(put_candidate("login", {**TRIED, "limit": "9/minute"}), ADA)
        assert trial.ids() == ["login", "login-candidate", "api"]
        assert (rules(trial))["login-candidate"]["limit"] == "9/minute"

    tried(body)


def test_a_candidate_of_another_name_is_replaced_too() -> None:
    def body(trial: Trial) -> None:
        own = {**TRIED, "mode": "shadow", "candidate_of": "login"}
        trial.editor.apply(put_rule("mine", own), ADA)
        trial.editor.apply(put_candidate("login", {**TRIED, "limit": "9/minute"}), ADA)
        assert trial.ids() == ["login", "login-candidate", "api"]

    tried(body)


@pytest.mark.parametrize(
    "field", [{"id": "login-candidate"}, {"mode": "shadow"}, {"candidate_of": "login"}]
)
def test_what_goes_without_saying_may_be_said(field: dict[str, str]) -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_candidate("login", {**TRIED, **field}), ADA)
        assert (rules(trial))["login-candidate"] == CANDIDATE

    tried(body)


@pytest.mark.parametrize("field", [{"id": "x"}, {"mode": "enforce"}, {"candidate_of": "api"}])
def test_what_only_the_rule_itself_says_is_refused(field: dict[str, str]) -> None:
    def body(trial: Trial) -> None:
        with pytest.raises(PolicyError) as caught:
            trial.editor.apply(put_candidate("login", {**TRIED, **field}), ADA)
        [problem] = caught.value.problems
        assert (problem.rule, problem.field) == ("login-candidate", next(iter(field)))
        assert problem.hint == "expected none"
        assert trial.is_unchanged()

    tried(body)


def test_a_candidate_needs_its_rule_and_an_id_that_is_free() -> None:
    def body(trial: Trial) -> None:
        with pytest.raises(UnknownRuleError, match="there is no rule 'nobody'"):
            trial.editor.apply(put_candidate("nobody", TRIED), ADA)
        trial.editor.apply(put_rule("login-candidate", TRIED), ADA)
        with pytest.raises(PolicyError, match="not a candidate of 'login'"):
            trial.editor.apply(put_candidate("login", TRIED), ADA)

    tried(body)


def test_a_candidate_that_is_no_good_changes_nothing() -> None:
    def body(trial: Trial) -> None:
        for wrong in ({}, {**TRIED, "limit": "x"}, {"key_by": "ip", "fair": {"slots": 3}}):
            with pytest.raises(PolicyError):
                trial.editor.apply(put_candidate("login", wrong), ADA)
        assert trial.is_unchanged()

    tried(body)


def test_a_candidate_has_no_candidate() -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        with pytest.raises(PolicyError, match="is a candidate itself, of 'login'"):
            trial.editor.apply(put_candidate("login-candidate", TRIED), ADA)
        with pytest.raises(UnknownRuleError, match="it is itself the candidate of 'login'"):
            trial.editor.apply(adopt_candidate("login-candidate"), ADA)

    tried(body)


def test_adopting_puts_the_content_in_the_place_of_the_rule() -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_candidate("login", {**TRIED, "cost": 2}), ADA)
        edited = trial.editor.apply(adopt_candidate("login"), ADA)
        assert trial.ids() == ["login", "api"]
        assert (rules(trial))["login"] == {"id": "login", **TRIED, "cost": 2}
        assert edited.revision.number == 4
        assert edited.revision.version_of("login") == 4
        assert edited.revision.change.what == "adopt the candidate of login"

    tried(body)


def test_the_rule_keeps_its_mode_and_its_description() -> None:
    def body(trial: Trial) -> None:
        own = {**RULE, "mode": "shadow", "description": "for people"}
        trial.editor.apply(put_rule("api", own), ADA)
        trial.editor.apply(put_candidate("api", TRIED), ADA)
        trial.editor.apply(adopt_candidate("api"), ADA)
        assert (rules(trial))["api"] == {
            "id": "api",
            "description": "for people",
            "mode": "shadow",
            **TRIED,
        }
        trial.editor.apply(put_candidate("api", {**RULE, "description": "otherwise"}), ADA)
        trial.editor.apply(adopt_candidate("api"), ADA)
        assert (rules(trial))["api"]["description"] == "otherwise"

    tried(body)


def test_nothing_is_adopted_where_nothing_is_tried() -> None:
    def body(trial: Trial) -> None:
        with pytest.raises(UnknownRuleError, match="the rule 'login' has no candidate"):
            trial.editor.apply(adopt_candidate("login"), ADA)
        with pytest.raises(UnknownRuleError, match="there is no rule 'nobody'"):
            trial.editor.apply(adopt_candidate("nobody"), ADA)

    tried(body)


def test_overrides_of_the_rule_stay_and_those_of_the_candidate_go() -> None:
    def body(trial: Trial) -> None:
        until_ns = trial.clock() + 10**12
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        for name in ("login", "login-candidate"):
            trial.editor.apply(put_override(name, "ip=1", extra=5, until_ns=until_ns), ADA)
        edited = trial.editor.apply(adopt_candidate("login"), ADA)
        assert [one["rule"] for one in edited.revision.document["overrides"]] == ["login"]

    tried(body)


def test_versions_are_those_of_both() -> None:
    def body(trial: Trial) -> None:
        editor = trial.editor
        with pytest.raises(StaleVersionError, match="has version 1; the request names 7"):
            editor.apply(put_candidate("login", TRIED), wish(7))
        editor.apply(put_candidate("login", TRIED), wish(1))
        with pytest.raises(StaleVersionError, match="has version 3; the request names 1"):
            editor.apply(adopt_candidate("login"), wish(1))
        editor.apply(put_rule("login", {**RULE, "cost": 2}), ADA)  # what was compared is otherwise
        with pytest.raises(StaleVersionError, match="has version 4; the request names 3"):
            editor.apply(adopt_candidate("login"), wish(3))
        assert (editor.apply(adopt_candidate("login"), wish(4))).is_changed

    tried(body)


def test_who_wants_to_be_the_first_is_told_of_another() -> None:
    def body(trial: Trial) -> None:
        first = EditRequest(author="ada", is_new=True)
        trial.editor.apply(put_candidate("login", TRIED), first)
        with pytest.raises(StaleVersionError, match="has a candidate already, 'login-candidate'"):
            trial.editor.apply(put_candidate("login", RULE), first)

    tried(body)


def test_discarding_leaves_the_rule_and_deleting_that_takes_the_candidate_along() -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        trial.editor.apply(delete_rule("login-candidate"), ADA)
        assert trial.ids() == ["login", "api"]
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        edited = trial.editor.apply(delete_rule("login"), ADA)
        assert trial.ids() == ["api"]
        assert edited.revision.number == 6

    tried(body)


def test_the_switches_of_both_work() -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        trial.editor.apply(switch_rule("login", "off"), ADA)
        trial.editor.apply(switch_rule("login-candidate", "off"), ADA)
        trial.editor.apply(
            switch_rule("login-candidate", trial.editor.mode_before("login-candidate")), ADA
        )
        assert (rules(trial))["login-candidate"]["mode"] == "shadow"
        with pytest.raises(PolicyError, match="a candidate decides nothing"):
            trial.editor.apply(switch_rule("login-candidate", "enforce"), ADA)

    tried(body)


def test_previews_say_what_would_change_and_change_nothing() -> None:
    def body(trial: Trial) -> None:
        preview = trial.editor.preview(put_candidate("login", TRIED))
        assert [(one["rule_id"], one["change"]) for one in preview.differences["rules"]] == [
            ("login-candidate", "added")
        ]
        assert preview.consequences == ()
        assert trial.is_unchanged()
        trial.editor.apply(put_candidate("login", TRIED), ADA)
        preview = trial.editor.preview(adopt_candidate("login"))
        assert [(one["rule_id"], one["change"]) for one in preview.differences["rules"]] == [
            ("login", "changed"),
            ("login-candidate", "removed"),
        ]
        assert [(one.rule, one.effect) for one in preview.consequences] == [("login", "tighter")]
        gone = trial.editor.preview(change_rules({"login": None, "login-candidate": None}))
        assert gone.policy is not None
        assert [one["rule_id"] for one in gone.differences["rules"]] == ["login", "login-candidate"]
        with pytest.raises(UnknownRuleError):
            trial.editor.preview(change_rules({"nobody": None}))

    tried(body)


def test_it_is_the_same_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("version: 1\nrules:\n  - {id: login, key_by: ip, limit: 5/minute}\n")

    storage = FileSource(file)
    editor = PolicyEditor(storage)
    editor.apply(put_candidate("login", TRIED), ADA)
    assert [rule.candidate_of for rule in read_policy(file.read_bytes()).rules] == [
        None,
        "login",
    ]
    editor.apply(adopt_candidate("login"), ADA)
    storage.close()
    [rule] = read_policy(file.read_bytes()).rules
    assert [str(limit) for limit in rule.limits[None]] == ["3/m"]
