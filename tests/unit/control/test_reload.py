"""What is put in force, when, and what is not: look by look, without waiting."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headgate.control import PolicyFiles, State
from headgate.control.watcher import MOMENT, PATIENCE
from headgate.errors import HeadgateError, LimitError
from headgate.policy.problems import PolicyError, Problem
from tests.support.policy_files import BAD, policy_text
from tests.support.policy_reload import INTERVAL, Trial

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control.files import Stamp, Texts


class TestCheck:
    def test_the_first_puts_the_file_in_force(self, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(policy_text())
        trial = Trial(tmp_path / "rules.yaml")
        assert trial.state == State()
        assert not trial.state.is_current
        state = trial.reload.check()
        assert trial.applied.rules == ["login"]
        assert (state.revision, state.problems, state.failures) == (1, None, 0)
        assert state.loaded_at_ns == trial.clock()
        assert state.is_current
        assert trial.states == [state]

    def test_what_was_loaded_before_is_not_applied_again(self, tmp_path: Path) -> None:
        (tmp_path / "rules.yaml").write_text(policy_text())
        trial = Trial(tmp_path / "rules.yaml", begun=True)
        assert trial.state.revision == 0
        trial.reload.check()
        trial.rest()
        assert trial.applied.policies == []
        trial.save(policy_text(rule="other"))
        trial.reload.check()
        assert trial.applied.rules == ["other"]

    def test_a_touch_changes_nothing(self, trial: Trial) -> None:
        before = trial.state
        os.utime(trial.file, ns=(1, 1))
        trial.reload.check()
        trial.save(trial.file.read_text())
        trial.reload.check()
        assert trial.state is before
        assert trial.states == []

    def test_a_bad_file_keeps_the_last_good_policy(self, trial: Trial) -> None:
        before = trial.state
        trial.save(BAD)
        state = trial.reload.check()
        assert len(trial.applied.policies) == 1
        assert state.problems is not None
        assert any("limitt" in str(problem) for problem in state.problems)
        assert state.failures == 1
        assert not state.is_current
        kept = ("revision", "loaded_at_ns", "fingerprint")
        assert all(getattr(state, name) == getattr(before, name) for name in kept)

    def test_a_missing_file_keeps_the_last_good_policy(self, trial: Trial) -> None:
        trial.file.unlink()
        state = trial.reload.check()
        assert state.revision == 1
        assert "no such file" in str(state.problems)

    def test_a_file_that_is_bad_from_the_first_leaves_nothing_in_force(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "rules.yaml").write_text(BAD)
        state = Trial(tmp_path / "rules.yaml").reload.check()
        assert (state.revision, state.loaded_at, state.failures) == (None, None, 1)

    def test_a_good_file_after_a_bad_one_is_put_in_force(self, trial: Trial) -> None:
        trial.save(BAD)
        trial.reload.check()
        trial.clock.advance(10)
        trial.save(policy_text(rule="new"))
        state = trial.reload.check()
        assert (state.revision, state.problems, state.failures) == (2, None, 1)
        assert state.loaded_at == trial.clock() / 1e9
        assert trial.applied.rules == ["new"]

    def test_the_old_file_after_a_bad_one_is_still_in_force(self, trial: Trial) -> None:
        before = trial.state
        good = trial.file.read_text()
        trial.save(BAD)
        trial.reload.check()
        trial.save(good)
        state = trial.reload.check()
        assert len(trial.applied.policies) == 1
        assert (state.revision, state.problems) == (before.revision, None)

    def test_files_that_change_while_they_are_read_are_read_again(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / f"{name}.yaml").write_text(policy_text(rule=f"old-{name}"))

        class Swapping(PolicyFiles):
            reads = 0

            def read(self) -> Texts:
                texts = super().read()
                self.reads += 1
                if self.reads == 1:
                    for name in ("a", "b"):
                        text = policy_text(rule=f"new-{name}")
                        (tmp_path / f"{name}.yaml").write_text(text)
                return texts

        trial = Trial(tmp_path)
        trial.reload._files = Swapping(tmp_path)
        trial.reload.check()
        assert trial.applied.rules == ["new-a", "new-b"]
        assert len(trial.applied.policies) == 1


class TestApplying:
    def test_a_refusal_keeps_the_old_policy_and_is_told(self, trial: Trial) -> None:
        trial.applied.refusal = LimitError("not that one")
        trial.save(policy_text(rule="new"))
        state = trial.reload.check()
        assert state.revision == 1
        assert "not that one" in str(state.problems)
        assert state.failures == 1

    def test_the_problems_of_a_refusal_are_kept_as_they_are(self, trial: Trial) -> None:
        problem = Problem("error", "elsewhere", "no")
        trial.applied.refusal = PolicyError([problem])
        trial.save(policy_text(rule="new"))
        assert trial.reload.check().problems == (problem,)

    def test_a_refusal_without_words_is_told_by_its_name(self, trial: Trial) -> None:
        trial.applied.refusal = HeadgateError()
        trial.save(policy_text(rule="new"))
        assert "HeadgateError" in str(trial.reload.check().problems)

    def test_what_was_refused_is_tried_again_on_demand(self, trial: Trial) -> None:
        trial.applied.refusal = LimitError("not now")
        trial.save(policy_text(rule="new"))
        trial.reload.check()
        trial.applied.refusal = None
        assert trial.reload.check().revision == 2

    def test_a_mistake_in_what_applies_it_is_not_hidden(self, trial: Trial) -> None:
        def mistake(_: object) -> int:
            raise TypeError("a mistake")

        trial.reload._apply = mistake
        trial.save(policy_text(rule="new"))
        with pytest.raises(TypeError, match="a mistake"):
            trial.reload.check()
        assert trial.state.revision == 1


class TestLook:
    def test_files_that_did_not_change_are_not_read(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(PolicyFiles, "read")
        assert trial.looks(3) == [INTERVAL] * 3

    def test_a_new_file_is_put_in_force_when_it_has_rested_for_a_moment(self, trial: Trial) -> None:
        trial.save(policy_text(rule="new"))
        assert trial.reload.look() == MOMENT
        assert trial.applied.rules == ["login"]
        assert trial.reload.look() == INTERVAL
        assert trial.applied.rules == ["new"]

    def test_a_moment_is_no_longer_than_the_interval(self, trial: Trial) -> None:
        trial.reload.interval = 0.01
        trial.save(policy_text(rule="new"))
        assert trial.reload.look() == 0.01

    def test_half_a_file_is_not_put_in_force_even_if_it_is_a_policy(self, trial: Trial) -> None:
        half = policy_text(rule="first")
        trial.file.write_text(half)
        assert trial.reload.look() == MOMENT
        trial.file.write_text(half + half[half.index("  - id") :].replace("first", "second"))
        assert trial.reload.look() == MOMENT
        trial.reload.look()
        assert trial.applied.rules == ["first", "second"]
        assert len(trial.applied.policies) == 2

    def test_half_a_file_is_not_told_as_bad(self, trial: Trial) -> None:
        trial.file.write_text("")
        assert trial.looks(2) == [MOMENT, INTERVAL]
        trial.file.write_text(policy_text(rule="whole"))
        assert trial.looks(2) == [MOMENT, INTERVAL]
        assert trial.applied.rules == ["whole"]
        assert [state.problems for state in trial.states] == [None]

    def test_a_bad_file_is_told_when_it_stays_for_an_interval(self, trial: Trial) -> None:
        trial.save(BAD)
        assert trial.looks(2) == [MOMENT, INTERVAL]
        assert trial.state.problems is None
        assert trial.reload.look() == INTERVAL
        assert trial.state.problems is not None

    def test_each_bad_content_has_an_interval_of_its_own(self, trial: Trial) -> None:
        for text in (BAD, BAD + "# more\n"):
            trial.file.write_text(text)
            assert trial.looks(2) == [MOMENT, INTERVAL]
        assert trial.state.problems is None

    def test_a_file_that_is_away_while_an_editor_renames_is_not_told(self, trial: Trial) -> None:
        backup = trial.file.with_name("rules.yaml~")
        trial.file.rename(backup)
        trial.reload.look()
        trial.file.write_text(policy_text(rule="edited"))
        trial.reload.look()
        backup.unlink()
        trial.rest()
        assert trial.applied.rules == ["edited"]
        assert trial.state.failures == 0

    def test_a_change_during_the_reading_is_waited_out(self, trial: Trial) -> None:
        class Moving(PolicyFiles):
            looks = 0

            def stamp(self) -> Stamp:
                self.looks += 1
                return ((min(self.looks, 3),),) if self.looks != 2 else ((1,),)

        trial.save(policy_text(rule="new"))
        trial.reload._files = Moving(trial.file)
        assert trial.looks(2) == [MOMENT, MOMENT]
        assert trial.applied.rules == ["login"]
        trial.rest()
        assert trial.applied.rules == ["new"]

    def test_files_that_never_rest_are_read_in_the_end(self, trial: Trial) -> None:
        trial.save(policy_text(rule="new"))
        waits = []
        for count in range(PATIENCE):
            os.utime(trial.file, ns=(count, count))
            waits.append(trial.reload.look())
        assert waits == [MOMENT] * (PATIENCE - 1) + [INTERVAL]
        assert trial.applied.rules == ["new"]

    def test_what_could_not_be_read_is_tried_at_each_look(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        trial.save(policy_text(rule="new"))
        with monkeypatch.context() as broken:
            broken.setattr("os.open", fail)
            trial.looks(6)
            assert trial.state.failures == 1
        trial.reload.look()
        assert trial.applied.rules == ["new"]

    def test_a_change_within_a_step_of_the_file_systems_clock_is_noticed(
        self, trial: Trial, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trial.save(policy_text(rule="one"))
        trial.reload.check()
        same = trial.reload._files.stamp()
        monkeypatch.setattr(PolicyFiles, "stamp", lambda _: same)
        trial.save(policy_text(rule="two"))
        trial.rest()
        assert trial.applied.rules == ["two"]

    def test_what_was_refused_is_not_tried_at_each_look(self, trial: Trial) -> None:
        trial.applied.refusal = LimitError("not that one")
        trial.save(policy_text(rule="new"))
        trial.rest()
        trial.applied.refusal = None
        trial.rest()
        assert trial.applied.rules == ["login"]
