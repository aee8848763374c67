"""The policies that pages on rules show are read without a word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.policy.loader import examine_policy

DOCS = Path(__file__).parents[3] / "docs"
SHOWN = [
    pytest.param(policy, id=f"{name} {number}")
    for name in ("rules.md", "limits.md")
    for number, policy in enumerate(
        re.findall(r"```yaml\n(version: 1\n.*?)```", (DOCS / name).read_text("utf-8"), re.DOTALL)
    )
]


def test_there_are_some() -> None:
    assert len(SHOWN) > 4


@pytest.mark.parametrize("policy", SHOWN)
def test_a_policy_that_is_shown_has_no_problems(policy: str) -> None:
    examined = examine_policy(policy)
    assert examined.problems == ()
    assert examined.policy is not None
