"""Policies to write into files, and something that they are applied to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.policy.loader import read_policy_data
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.errors import HeadgateError
    from headgate.policy.model import Policy, Rule
    from headgate.policy.problems import Problem

BAD = "version: 1\nrules:\n  - id: login\n    limitt: 5/minute\n"
WARNED = "version: 1\nrules: []\n"


def policy_text(limit: str = "5/minute", *, rule: str = "login") -> str:
    return f"version: 1\nrules:\n  - id: {rule}\n    key_by: ip\n    limit: {limit}\n"


def read_rule(data: dict[str, Any]) -> Rule:
    """The rule of *data*, whose id is `a`."""
    return read_policy_data({"version": 1, "rules": [{"id": "a", **data}]}).rules[0]


def only_error(data: dict[str, Any]) -> Problem:
    """The one error of the rule of *data*, with the field within the rule."""
    with pytest.raises(PolicyError) as caught:
        read_rule(data)
    (problem,) = caught.value.errors
    return replace(problem, field=problem.field.removeprefix("rules[0]").removeprefix("."))


def save(file: Path, text: str) -> None:
    """Put *text* in the place of *file* at once."""
    fresh = file.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(file)


class Applied:
    """Stands in for an engine: keeps what it was given, and numbers it from 1."""

    def __init__(self) -> None:
        self.policies: list[Policy] = []
        self.refusal: HeadgateError | None = None

    def __call__(self, policy: Policy) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.policies.append(policy)
        return len(self.policies)

    @property
    def rules(self) -> list[str]:
        """The ids of the rules in force."""
        return [rule.id for rule in self.policies[-1].rules]
