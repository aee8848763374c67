"""What would change if a document became the policy. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.control.consequences import consequences
from headgate.control.differences import differences
from headgate.rules.model import Policy
from headgate.rules.reading import RuleMemory, examine_policy_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.control.consequences import Consequence
    from headgate.control.differences import Differences
    from headgate.control.revision import Revision
    from headgate.rules.problems import Problem


@dataclass(frozen=True, slots=True)
class Preview:
    """What *after* would change of revision *number*.

    *problems* has the warnings about it, and the errors that would keep it out of force; *policy*
    is None then. *before* is the policy of the revision, without rules if it cannot be read.
    """

    number: int
    differences: Differences
    problems: tuple[Problem, ...]
    before: Policy
    policy: Policy | None
    consequences: tuple[Consequence, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether it could be put in force."""
        return self.policy is not None

    @property
    def rules_changed(self) -> tuple[str, ...]:
        """The ids of the rules that are there before and after, and are otherwise."""
        return tuple(one.rule for one in self.differences.rules if one.kind == "changed")


def preview_of(
    newest: Revision, document: Mapping[str, Any], memory: RuleMemory | None = None
) -> Preview:
    """What *document* would change of *newest*. What is in *memory* is not read again."""
    before = examine_policy_data(newest.document, memory=memory).policy or Policy()
    examined = examine_policy_data(document, memory=memory)
    policy = examined.policy
    found = differences(newest.document, document)
    told = () if policy is None else consequences(before, policy)
    return Preview(newest.number, found, examined.problems, before, policy, told)
