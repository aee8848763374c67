"""A policy that is in force when the test begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.policy_files import policy_text
from tests.support.policy_reload import Trial

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """One with revision 1 in force, of a file with the rule `login`."""
    file = tmp_path / "rules.yaml"
    file.write_text(policy_text())
    trial = Trial(file)
    trial.reload.check()
    trial.rest()
    trial.states.clear()
    return trial
