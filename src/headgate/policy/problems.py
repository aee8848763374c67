"""Problems of a policy: what is wrong, where, and what would be right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn

from headgate.errors import HeadgateError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Severity = Literal["error", "warning"]
"""An error makes a policy invalid; a warning is about something that has no effect or surprises."""

MAX_QUOTED: Final = 60
MAX_PROBLEMS: Final = 200
"""Errors that are reported before loading stops, and warnings that are reported at all."""

MAX_LISTED: Final = 24
"""Words that a hint lists."""

_COST_OF_HINT: Final = 500
_BUDGET: Final = 200_000
"""Bound on the work for hints and comparisons, which are not needed to load a document."""

_WORD: Final = re.compile("[a-z_]{1,30}")


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


class ProblemsError(HeadgateError, ValueError):
    """Input that cannot be used. `problems` has everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class PolicyError(ProblemsError):
    """An invalid policy; its problems include warnings."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that make it invalid."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


class Place(NamedTuple):
    """A line and a column, counted from 1; None in data without text."""

    line: int | None = None
    column: int | None = None


NOWHERE: Final = Place()


class Diagnostics:
    """The problems of one document, up to `MAX_PROBLEMS` errors and as many warnings."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.errors = 0
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []
        self._budget = _BUDGET

    def add(self, problem: Problem) -> None:
        """Record *problem*. Raises `PolicyError` after too many errors."""
        if problem.severity == "warning":
            self._warnings += [problem][: MAX_PROBLEMS - len(self._warnings)]
            return
        self.errors += 1
        self._errors.append(problem)
        if self.errors >= MAX_PROBLEMS:
            message = f"stopped after {MAX_PROBLEMS} errors; the rest was not checked"
            self._errors.append(Problem("error", self.where, message, problem.line, problem.column))
            raise PolicyError(self.problems())

    def error(self, place: Place, message: str, *, hint: str = "") -> None:
        """Record an error outside of any field."""
        self.add(Problem("error", self.where, message, *place, hint=hint))

    def stop(self, place: Place, message: str, *, hint: str = "") -> NoReturn:
        """Record an error that ends the reading: raises `PolicyError`."""
        self.error(place, message, hint=hint)
        raise PolicyError(self.problems())

    def problems(self) -> tuple[Problem, ...]:
        """Every problem so far, in the order of the document."""
        known = [*self._errors, *self._warnings]
        if all(problem.line is not None for problem in known):
            known.sort(key=lambda problem: (problem.line, problem.column))
        return tuple(known)

    def can_afford(self, effort: int) -> bool:
        """True while the budget allows work that loading does not need."""
        self._budget -= effort
        return self._budget >= 0

    def nearest(self, word: str, known: Sequence[str]) -> str | None:
        """The one of the *known* words that *word* resembles, while the budget allows it."""
        return nearest(word, known) if self.can_afford(_COST_OF_HINT) else None


def did_you_mean(word: str) -> str:
    """A hint at *word*."""
    return f"did you mean {quoted(word)}?"


def expected_one_of(words: Sequence[str]) -> str:
    """A hint that lists *words*; "" if there are none."""
    more = ", ..." if len(words) > MAX_LISTED else ""
    return f"expected one of {', '.join(words[:MAX_LISTED])}{more}" if words else ""


def quoted(text: str) -> str:
    """*text* in quotes, cut short and printable."""
    return repr(text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 3] + "...")


def quoted_key(key: str) -> str:
    """A key for a message, if it is a plain word: another may be a secret."""
    return quoted(key) if _WORD.fullmatch(key) else "this key"


def field_path(steps: Sequence[str | int]) -> str:
    """*steps* as a dotted path."""
    return "".join(map(_step, steps)).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    is_word = step.replace("_", "").replace("-", "").isalnum() and len(step) <= MAX_QUOTED
    return f".{step}" if is_word else f"[{quoted(step)}]"
