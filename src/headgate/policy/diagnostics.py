"""Collect the problems of one document, and word them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.policy.problems import Severity

LONGEST_SHOWN: Final = 60
MOST_PROBLEMS: Final = 200
"""Errors that are reported before loading stops, and warnings that are reported at all."""

MOST_NAMED: Final = 24
"""Words that a hint lists."""

_A_HINT: Final = 500
_EFFORT: Final = 200_000
"""Bound on the work for hints and comparisons, which are not needed to load a document."""

_WORD: Final = re.compile("[a-z_]{1,30}")


class Place(NamedTuple):
    """A line and a column, counted from 1; None in data without text."""

    line: int | None = None
    column: int | None = None


NOWHERE: Final = Place()


class Diagnostics:
    """The problems of one document, up to `MOST_PROBLEMS` errors and as many warnings."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.errors = 0
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []
        self._effort = _EFFORT

    def add(self, problem: Problem) -> None:
        """Record *problem*. Raises `PolicyError` after too many errors."""
        if problem.severity == "warning":
            self._warnings += [problem][: MOST_PROBLEMS - len(self._warnings)]
            return
        self.errors += 1
        self._errors.append(problem)
        if self.errors >= MOST_PROBLEMS:
            message = f"{MOST_PROBLEMS} errors are enough; the rest was not looked at"
            self._errors.append(Problem("error", self.where, message, problem.line, problem.column))
            raise PolicyError(self.problems())

    def error(self, place: Place, message: str, *, hint: str = "") -> None:
        """Record an error outside of any field."""
        self.record("error", place, message, hint=hint)

    def stop(self, place: Place, message: str, *, hint: str = "") -> NoReturn:
        """Record an error that ends the reading: raises `PolicyError`."""
        self.error(place, message, hint=hint)
        raise PolicyError(self.problems())

    def record(
        self,
        severity: Severity,
        place: Place,
        message: str,
        *,
        hint: str = "",
        rule: str | None = None,
        field: str = "",
    ) -> None:
        """Record a problem at *place*."""
        self.add(Problem(severity, self.where, message, *place, rule=rule, field=field, hint=hint))

    def problems(self) -> tuple[Problem, ...]:
        """Every problem so far, in the order of the document."""
        known = [*self._errors, *self._warnings]
        if all(problem.line is not None for problem in known):
            known.sort(key=lambda problem: (problem.line, problem.column))
        return tuple(known)

    def can_afford(self, effort: int) -> bool:
        """True while there is room for work that loading does not need."""
        self._effort -= effort
        return self._effort >= 0

    def closest(self, word: str, known: Sequence[str]) -> str | None:
        """The one of the *known* words that *word* resembles, if the budget allows to look."""
        return closest(word, known) if self.can_afford(_A_HINT) else None


def closest(word: str, known: Sequence[str]) -> str | None:
    """The one of the *known* words that *word* resembles."""
    folded = {name.lower(): name for name in known[: 2 * MOST_NAMED]}
    near = get_close_matches(word[:LONGEST_SHOWN].lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def meaning(word: str) -> str:
    """A hint at *word*."""
    return f"did you mean {shown(word)}?"


def choosing(words: Sequence[str]) -> str:
    """A hint that lists *words*."""
    more = ", ..." if len(words) > MOST_NAMED else ""
    return f"expected one of {', '.join(words[:MOST_NAMED])}{more}"


def shown(text: str) -> str:
    """*text* in quotes, cut short and printable."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


def shown_key(key: str) -> str:
    """A key for a message, if it is a plain word: another may be a secret."""
    return shown(key) if _WORD.fullmatch(key) else "this key"


def field_path(steps: Sequence[str | int]) -> str:
    """*steps* as a dotted path."""
    return "".join(map(_step, steps)).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    is_word = step.replace("_", "").replace("-", "").isalnum() and len(step) <= LONGEST_SHOWN
    return f".{step}" if is_word else f"[{shown(step)}]"
