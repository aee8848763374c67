"""Problems of a policy: what is wrong, where, and what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity = Literal["error", "warning"]
"""An error keeps a policy out of force; a warning is something that its author will regret."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `str` of it reads like a compiler's message.

    *where* is the file or what stands for it; *line* and *column* count from 1 and are None for
    data that has no text. *rule* is the id of the rule, if it is in one that has an id. *field* is
    a dotted path: within the rule if there are lines, else from the top (`rules[3].cost.max`), ""
    for the whole. *hint* says what would be right, "" if that is not known.
    """

    severity: Severity
    where: str
    message: str
    line: int | None = None
    column: int | None = None
    rule: str | None = None
    field: str = ""
    hint: str = ""

    @property
    def place(self) -> str:
        """The file, the line and the column, as far as they are known."""
        known = [self.where, *(str(n) for n in (self.line, self.column) if n is not None)]
        return ":".join(known)

    def __str__(self) -> str:
        rule = f"rule {self.rule!r}" if self.rule is not None else ""
        field = f"field {self.field!r}" if self.field else ""
        subject = ", ".join(part for part in (rule, field) if part)
        message = f"{subject}: {self.message}" if subject else self.message
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.place}: {self.severity}: {message}{hint}"


class PolicyError(HeadgateError, ValueError):
    """A policy that cannot be put in force. `problems` has all that is wrong, warnings included."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that must be put right."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
