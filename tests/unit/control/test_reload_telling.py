"""What the log and the observers are told, and how often."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.support.policy_files import BAD, WARNED, policy_text
from tests.support.policy_reload import Trial

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="headgate.control")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_bad_file_is_told_once_with_all_its_problems(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    trial.save(BAD)
    for _ in range(3):
        trial.reload.check()
        trial.rest()
    ((level, message),) = told(caplog)
    assert level == "WARNING"
    assert trial.state.problems is not None
    assert all(str(problem) in message for problem in trial.state.problems)
    assert "in force stays revision 1" in message
    assert len(trial.states) == trial.state.failures == 1


def test_another_bad_content_is_told_again(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    for text in (BAD, BAD + "# still\n", BAD):
        trial.save(text)
        trial.reload.check()
    assert len(told(caplog)) == trial.state.failures == 3


def test_that_it_is_good_again_is_told(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    good = trial.file.read_text()
    for text in (good, policy_text(rule="new")):
        trial.save(BAD)
        trial.reload.check()
        caplog.clear()
        trial.save(text)
        trial.reload.check()
        ((level, message),) = told(caplog)
        assert level == "INFO"
        assert "good again" in message


def test_a_new_policy_is_told_with_its_revision(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    trial.save(policy_text(rule="new"))
    trial.reload.check()
    message = f"{trial.file}: the policy is in force as revision 2; rules: 1"
    assert told(caplog) == [("INFO", message)]


def test_warnings_are_told_and_kept(trial: Trial, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    trial.save(WARNED)
    state = trial.reload.check()
    assert state.is_current
    assert state.warnings
    assert [level for level, _ in told(caplog)] == ["INFO", "WARNING"]


def test_warnings_about_what_was_loaded_before_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rules.yaml").write_text(WARNED)
    trial = Trial(tmp_path / "rules.yaml", begun=True)
    assert trial.state.warnings
    assert [level for level, _ in told(caplog)] == ["WARNING"]


def test_observers_are_told_of_every_change(trial: Trial) -> None:
    for text in (BAD, policy_text(), policy_text(rule="new")):
        trial.save(text)
        trial.reload.check()
    assert [(one.revision, one.problems is None) for one in trial.states] == [
        (1, False),
        (1, True),
        (2, True),
    ]
