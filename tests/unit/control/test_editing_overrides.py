"""Blocks and grants: what is otherwise for single counters, for a while."""

from __future__ import annotations

import pytest

from headgate.control.edits import (
    UnknownOverrideError,
    UnknownRuleError,
    delete_rule,
    put_override,
    put_rule,
    remove_override,
)
from headgate.policy.fields import instant_text
from headgate.units import SECOND
from tests.support.policy_editor import ADA, RULE, Trial, tried


class TestOverrides:
    def test_a_block_and_a_grant_are_in_the_document(self) -> None:
        def body(trial: Trial) -> None:
            ends = trial.clock() + 60 * SECOND
            trial.editor.apply(put_override("login", "ip=1.2.3.4", block=True, until_ns=ends), ADA)
            edited = trial.editor.apply(put_override("api", "ip=x", extra=5, until_ns=ends), ADA)
            until = instant_text(ends)
            assert edited.revision.document["overrides"] == [
                {"rule": "login", "key": "ip=1.2.3.4", "block": True, "until": until},
                {"rule": "api", "key": "ip=x", "extra": 5, "until": until},
            ]
            assert edited.revision.versions == {"login": 1, "api": 2}

        tried(body)

    def test_one_takes_the_place_of_another_for_the_same_counter(self) -> None:
        def body(trial: Trial) -> None:
            ends = trial.clock() + 60 * SECOND
            trial.editor.apply(put_override("login", "ip=1", block=True, until_ns=ends), ADA)
            edited = trial.editor.apply(put_override("login", "ip=1", extra=5, until_ns=ends), ADA)
            assert [one.get("extra") for one in edited.revision.document["overrides"]] == [5]

        tried(body)

    def test_one_that_is_taken_away_leaves_no_trace(self) -> None:
        def body(trial: Trial) -> None:
            ends = trial.clock() + 60 * SECOND
            before = (trial.editor.head()).document
            trial.editor.apply(put_override("login", "ip=1", block=True, until_ns=ends), ADA)
            edited = trial.editor.apply(remove_override("login", "ip=1"), ADA)
            assert edited.revision.document == before
            with pytest.raises(UnknownOverrideError):
                trial.editor.apply(remove_override("login", "ip=1"), ADA)

        tried(body)

    def test_those_that_have_ended_are_dropped_at_the_next_edit(self) -> None:
        def body(trial: Trial) -> None:
            soon, later = (trial.clock() + n * SECOND for n in (10, 100))
            trial.editor.apply(put_override("login", "ip=1", block=True, until_ns=soon), ADA)
            trial.editor.apply(put_override("login", "ip=2", block=True, until_ns=later), ADA)
            trial.clock.advance(10)
            edited = trial.editor.apply(put_rule("new", RULE), ADA)
            assert [one["key"] for one in edited.revision.document["overrides"]] == ["ip=2"]

        tried(body)

    def test_those_of_a_rule_go_with_it(self) -> None:
        def body(trial: Trial) -> None:
            ends = trial.clock() + 60 * SECOND
            trial.editor.apply(put_override("login", "ip=1", block=True, until_ns=ends), ADA)
            edited = trial.editor.apply(delete_rule("login"), ADA)
            assert "overrides" not in edited.revision.document

        tried(body)

    def test_there_is_none_for_a_rule_that_is_not_there(self) -> None:
        def body(trial: Trial) -> None:
            with pytest.raises(UnknownRuleError):
                trial.editor.apply(
                    put_override("none", "ip=1", block=True, until_ns=trial.clock() + 1), ADA
                )

        tried(body)
