"""Edits: each whole and good, or none; and none that overwrites what its author has not seen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headgate.control.editor import (
    TRIES,
    EditRequest,
    PolicyEditor,
    StaleVersionError,
    UnknownModeError,
)
from headgate.control.edits import (
    MOST_RULES,
    Edit,
    UnknownRuleError,
    delete_rule,
    put_rule,
    replace_policy,
    switch_rule,
)
from headgate.control.revision import Change, ConflictError, Revision, UnknownRevisionError
from headgate.control.source import MemorySource
from headgate.policy.problems import PolicyError
from tests.support.policy_editor import ADA, RULE, Trial, tried, wish


def test_a_rule_is_put_with_its_author_and_time() -> None:
    def body(trial: Trial) -> None:
        edited = trial.editor.apply(put_rule("new", RULE), ADA)
        assert (edited.revision.number, edited.revision.version_of("new"), edited.is_changed) == (
            3,
            3,
            True,
        )
        expected = Change("ada", trial.clock(), "put rule new", "ticket 7")
        assert edited.revision.change == expected
        assert trial.rule("new") == (3, {"id": "new", **RULE})
        assert trial.ids() == ["login", "api", "new"]

    tried(body)


def test_a_rule_that_is_put_again_keeps_its_place_and_the_others_their_versions() -> None:
    def body(trial: Trial) -> None:
        edited = trial.editor.apply(put_rule("login", {**RULE, "limit": "6/minute"}), ADA)
        assert edited.revision.versions == {"login": 3, "api": 2}
        assert trial.ids() == ["login", "api"]

    tried(body)


def test_putting_what_is_there_already_changes_nothing() -> None:
    def body(trial: Trial) -> None:
        edited = trial.editor.apply(put_rule("login", RULE), ADA)
        assert (edited.is_changed, edited.revision.version_of("login")) == (False, 1)
        assert trial.is_unchanged()

    tried(body)


def test_a_rule_may_repeat_its_id_and_have_no_other() -> None:
    def body(trial: Trial) -> None:
        trial.editor.apply(put_rule("new", {"id": "new", **RULE}), ADA)
        with pytest.raises(PolicyError, match="found 'old' in the rule 'new'"):
            trial.editor.apply(put_rule("new", {"id": "old", **RULE}), ADA)

    tried(body)


@pytest.mark.parametrize(
    ("rule_id", "data", "told"),
    [
        ("new", {"key_by": "ip", "limitt": "5/s"}, "did you mean 'limit'"),
        ("new", {}, "key_by"),
        ("no id", RULE, "is not an id"),
        ("new", {**RULE, "limit": float("nan")}, "JSON"),
        ("new", {**RULE, "limit": object()}, "JSON"),
        ("new", {**RULE, "description": "x" * 1_100_000}, "1 MiB"),
    ],
)
def test_what_is_no_rule_changes_nothing(rule_id: str, data: Any, told: str) -> None:
    def body(trial: Trial) -> None:
        with pytest.raises(PolicyError, match=told):
            trial.editor.apply(put_rule(rule_id, data), ADA)
        assert trial.is_unchanged()

    tried(body)


def test_all_that_is_wrong_with_a_policy_is_told_at_once() -> None:
    def body(trial: Trial) -> None:
        bad = {"version": 1, "rules": [{"id": "a"}, {"id": "b", "key_by": "ip", "limit": "x"}]}
        with pytest.raises(PolicyError) as caught:
            trial.editor.apply(replace_policy(bad), ADA)
        assert {problem.rule for problem in caught.value.errors} == {"a", "b"}
        assert trial.is_unchanged()

    tried(body)


def test_what_the_caller_does_to_its_data_afterwards_changes_nothing() -> None:
    def body(trial: Trial) -> None:
        data = {"key_by": ["ip"], "limit": "1/s"}
        trial.editor.apply(put_rule("new", data), ADA)
        data["key_by"].append("x")  # type: ignore[attr-defined]
        assert (trial.rule("new"))[1]["key_by"] == ["ip"]

    tried(body)


class TestVersions:
    def test_the_right_version_lets_an_edit_through(self) -> None:
        def body(trial: Trial) -> None:
            edited = trial.editor.apply(put_rule("login", {**RULE, "cost": 2}), wish(1, 99))
            assert edited.is_changed
            trial.editor.apply(delete_rule("login"), wish(3))

        tried(body)

    @pytest.mark.parametrize(
        "edit",
        [
            put_rule("login", {**RULE, "cost": 2}),
            delete_rule("login"),
            switch_rule("login", "off"),
        ],
    )
    def test_another_version_is_refused(self, edit: Edit) -> None:
        def body(trial: Trial) -> None:
            with pytest.raises(
                StaleVersionError, match="'login' has version 1; the request names 2"
            ):
                trial.editor.apply(edit, wish(2))
            assert trial.is_unchanged()

        tried(body)

    def test_a_change_of_another_rule_is_in_nobody_s_way(self) -> None:
        def body(trial: Trial) -> None:
            trial.editor.apply(put_rule("api", RULE), ADA)
            assert (trial.editor.apply(put_rule("login", {**RULE, "cost": 2}), wish(1))).is_changed

        tried(body)

    def test_a_rule_that_was_made_again_has_no_old_version(self) -> None:
        def body(trial: Trial) -> None:
            trial.editor.apply(delete_rule("login"), ADA)
            trial.editor.apply(put_rule("login", RULE), ADA)
            with pytest.raises(StaleVersionError, match="version 4"):
                trial.editor.apply(put_rule("login", {**RULE, "cost": 2}), wish(1))

        tried(body)

    def test_any_version_needs_a_rule_that_is_there(self) -> None:
        def body(trial: Trial) -> None:
            anything = EditRequest(author="ada", versions="any")
            with pytest.raises(StaleVersionError, match="does not exist"):
                trial.editor.apply(put_rule("new", RULE), anything)
            trial.editor.apply(put_rule("login", {**RULE, "cost": 2}), anything)

        tried(body)

    def test_a_new_rule_must_not_be_there(self) -> None:
        def body(trial: Trial) -> None:
            new = EditRequest(author="ada", is_new=True)
            with pytest.raises(StaleVersionError, match="exists already"):
                trial.editor.apply(put_rule("login", {**RULE, "cost": 2}), new)
            trial.editor.apply(put_rule("new", RULE), new)

        tried(body)

    def test_the_policy_as_a_whole_goes_by_its_revision(self) -> None:
        def body(trial: Trial) -> None:
            document = {"version": 1, "rules": [{"id": "only", **RULE}]}
            with pytest.raises(
                StaleVersionError, match="the policy has version 2; the request names 1"
            ):
                trial.editor.apply(replace_policy(document), wish(1))
            edited = trial.editor.apply(replace_policy(document), wish(2))
            assert edited.revision.versions == {"only": 3}
            assert edited.revision.change.what == (
                "replace the policy: added only; removed login, api"
            )

        tried(body)

    def test_an_empty_policy_is_revision_0(self) -> None:
        editor = Trial().editor
        editor.apply(replace_policy({"version": 1, "rules": [{"id": "a", **RULE}]}), wish(0))
        with pytest.raises(StaleVersionError):
            editor.apply(replace_policy({"version": 1}), EditRequest(author="ada", is_new=True))


class TestRollback:
    def test_an_old_document_becomes_the_newest(self) -> None:
        def body(trial: Trial) -> None:
            trial.editor.apply(delete_rule("login"), ADA)
            edited = trial.editor.apply(trial.editor.rollback(2), ADA)
            assert edited.revision.number == 4
            assert edited.revision.document == (trial.storage.at(2)).document
            assert edited.revision.versions == {"login": 4, "api": 2}
            assert edited.revision.change.what == "roll back to revision 2"

        tried(body)

    def test_a_revision_that_is_not_there_is_an_error(self) -> None:
        def body(trial: Trial) -> None:
            for number in (0, 3):
                with pytest.raises(UnknownRevisionError):
                    trial.editor.apply(trial.editor.rollback(number), ADA)

        tried(body)

    def test_going_back_to_where_one_is_changes_nothing(self) -> None:
        def body(trial: Trial) -> None:
            assert not (trial.editor.apply(trial.editor.rollback(2), ADA)).is_changed

        tried(body)


class TestSwitch:
    def test_a_rule_that_is_switched_on_again_is_in_the_mode_it_was_in(self) -> None:
        def body(trial: Trial) -> None:
            for rule in ("login", "api"):
                before = (trial.rule(rule))[1]
                trial.editor.apply(switch_rule(rule, "off"), ADA)
                assert (trial.rule(rule))[1]["mode"] == "off"
                trial.editor.apply(switch_rule(rule, trial.editor.mode_before(rule)), ADA)
                assert (trial.rule(rule))[1] == before

        tried(body)

    def test_the_mode_is_remembered_through_changes_while_it_is_off(self) -> None:
        def body(trial: Trial) -> None:
            trial.editor.apply(switch_rule("api", "off"), ADA)
            trial.editor.apply(put_rule("api", {**RULE, "mode": "off", "limit": "9/s"}), ADA)
            trial.editor.apply(put_rule("login", {**RULE, "cost": 2}), ADA)
            trial.editor.apply(switch_rule("api", trial.editor.mode_before("api")), ADA)
            expected = {"id": "api", **RULE, "limit": "9/s", "mode": "shadow"}
            assert (trial.rule("api"))[1] == expected

        tried(body)

    def test_switching_off_what_is_off_changes_nothing(self) -> None:
        def body(trial: Trial) -> None:
            trial.editor.apply(switch_rule("login", "off"), ADA)
            assert not (trial.editor.apply(switch_rule("login", "off"), ADA)).is_changed

        tried(body)

    def test_a_mode_that_nobody_remembers_must_be_said(self) -> None:
        def body(trial: Trial) -> None:
            trial.editor.apply(put_rule("new", {**RULE, "mode": "off"}), ADA)
            with pytest.raises(UnknownModeError, match="name it: enforce or shadow"):
                trial.editor.apply(switch_rule("new", trial.editor.mode_before("new")), ADA)
            trial.editor.apply(switch_rule("new", "shadow"), ADA)
            assert (trial.rule("new"))[1]["mode"] == "shadow"

        tried(body)

    @pytest.mark.parametrize("edit", [switch_rule("none", "off"), delete_rule("none")])
    def test_a_rule_that_is_not_there_is_an_error(self, edit: Edit) -> None:
        def body(trial: Trial) -> None:
            with pytest.raises(UnknownRuleError):
                trial.editor.apply(edit, ADA)
            with pytest.raises(UnknownRuleError):
                trial.editor.mode_before("none")

        tried(body)


class TestCompany:
    def test_an_edit_is_made_again_on_what_somebody_else_left(self) -> None:
        class Crowded(MemorySource):
            others = 3

            def commit(self, revision: Revision) -> None:
                if self.others:
                    self.others -= 1
                    other = PolicyEditor(MemorySource(self.head()))
                    edited = other.apply(put_rule(f"other{self.others}", RULE), ADA)
                    super().commit(edited.revision)
                super().commit(revision)

        editor = PolicyEditor(Crowded())
        edited = editor.apply(put_rule("mine", RULE), ADA)
        ids = [rule["id"] for rule in edited.revision.document["rules"]]
        assert ids == ["other2", "other1", "other0", "mine"]
        assert edited.revision.number == 4

    def test_it_gives_up_some_time(self) -> None:
        class Hopeless(MemorySource):
            tries = 0

            def commit(self, revision: Revision) -> None:
                self.tries += 1
                raise ConflictError("again")

        storage = Hopeless()
        with pytest.raises(ConflictError, match="try again"):
            PolicyEditor(storage).apply(put_rule("mine", RULE), ADA)
        assert storage.tries == TRIES

    def test_no_edit_of_many_at_once_is_lost(self) -> None:
        storage = MemorySource()
        editors = [PolicyEditor(storage) for _ in range(4)]

        def put(n: int, m: int) -> int:
            return editors[n].apply(put_rule(f"r{n}-{m}", RULE), ADA).revision.number

        names = [(n, m) for n in range(4) for m in range(5)]
        with ThreadPoolExecutor(4) as pool:
            versions = [one.result() for one in [pool.submit(put, n, m) for n, m in names]]
        assert sorted(versions) == list(range(1, 21))
        assert len(storage.head().document["rules"]) == 20


def test_too_many_rules_are_refused() -> None:
    def body(trial: Trial) -> None:
        many = [{"id": f"r{n}", "key_by": "ip", "limit": "1/s"} for n in range(MOST_RULES + 1)]
        with pytest.raises(PolicyError, match="at most 10000"):
            trial.editor.apply(replace_policy({"version": 1, "rules": many}), ADA)

    tried(body)
