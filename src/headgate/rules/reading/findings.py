"""What was found wrong so far, and the place in the document that one is looking at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NoReturn

from headgate.rules.problems import PolicyError, Problem
from headgate.rules.reading.tree import (
    LONGEST_SHOWN,
    Listing,
    Node,
    Place,
    Scalar,
    Table,
    described,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.rules.problems import Severity

MOST_PROBLEMS: Final = 200
"""How many errors are told before the reading ends, and how many warnings at all."""

MOST_NAMED: Final = 24
"""How many words a hint lists."""

_A_HINT: Final = 500
_EFFORT: Final = 200_000
"""What may be spent on hints and comparisons: nobody reads more, and they take long."""


class Findings:
    """All problems of one document, up to `MOST_PROBLEMS` errors and as many warnings."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.errors = 0
        self._errors: list[Problem] = []
        self._warnings: list[Problem] = []
        self._effort = _EFFORT

    def add(self, problem: Problem) -> None:
        """Keep *problem*. Raises `PolicyError` when there are too many errors to go on."""
        if problem.severity == "warning":
            self._warnings += [problem][: MOST_PROBLEMS - len(self._warnings)]
            return
        self.errors += 1
        self._errors.append(problem)
        if self.errors >= MOST_PROBLEMS:
            told = f"{MOST_PROBLEMS} errors are enough; the rest was not looked at"
            self._errors.append(Problem("error", self.where, told, problem.line, problem.column))
            raise PolicyError(self.problems())

    def wrong(self, place: Place, message: str, *, hint: str = "") -> None:
        """Note an error that is not in any field."""
        self.add(Problem("error", self.where, message, place.line, place.column, hint=hint))

    def stop(self, place: Place, message: str, *, hint: str = "") -> NoReturn:
        """Note an error after which nothing more can be read: raises `PolicyError`."""
        self.wrong(place, message, hint=hint)
        raise PolicyError(self.problems())

    def problems(self) -> tuple[Problem, ...]:
        """What is known so far, in the order of the document."""
        known = [*self._errors, *self._warnings]
        if all(problem.line is not None for problem in known):
            known.sort(key=lambda problem: (problem.line, problem.column))
        return tuple(known)

    def can_afford(self, effort: int) -> bool:
        """Whether there is time for something that is not strictly needed."""
        self._effort -= effort
        return self._effort >= 0

    def closest(self, word: str, known: Sequence[str]) -> str | None:
        """The one of the *known* words that is meant by *word*, if one is near."""
        return closest(word, known) if self.can_afford(_A_HINT) else None


@dataclass(slots=True, eq=False)
class Spot:
    """A node and the way to it: under which key or at which number of its *parent*.

    *rule* is the id of the rule that it is in. *is_rule*: the fields below it count from here.
    """

    node: Node
    findings: Findings
    parent: Spot | None = None
    key: Scalar | None = None
    number: int | None = None
    rule: str | None = None
    is_rule: bool = False

    @property
    def name(self) -> str:
        """The key under which it stands, "" if it has none."""
        return "" if self.key is None else self.key.text

    def wrong(self, message: str, *, hint: str = "", at: Place | None = None) -> None:
        """Note an error here."""
        self._note("error", message, hint, at)

    def warn(self, message: str, *, hint: str = "", at: Place | None = None) -> None:
        """Note a warning here."""
        self._note("warning", message, hint, at)

    def expected(self, what: str, *, hint: str = "") -> None:
        """Note that something else than *what* is here."""
        self.wrong(f"found {described(self.node)}, expected {what}", hint=hint)

    def not_among(self, word: str, words: Iterable[str], message: str) -> str | None:
        """Note that *word* is none of the *words*; the one that is meant, if one is near."""
        known = tuple(words)
        near = self.findings.closest(word, known)
        self.wrong(message, hint=choosing(known) if near is None else meaning(near))
        return near

    def missing(self, name: str, message: str, *, hint: str = "") -> None:
        """Note an error about a field that is not there."""
        key = Scalar(name, is_plain=True)
        Spot(self.node, self.findings, self, key, rule=self.rule).wrong(message, hint=hint)

    def child(self, name: str) -> Spot:
        """What stands under *name* in a mapping that has it."""
        assert isinstance(self.node, Table)  # noqa: S101 - for the type checker
        key = self.node.keys[name]
        return Spot(self.node.entries[name], self.findings, self, key, rule=self.rule)

    def children(self) -> Iterator[Spot]:
        """What is in a list, or in a mapping under its keys."""
        if isinstance(self.node, Table):
            yield from map(self.child, self.node.entries)
        elif isinstance(self.node, Listing):
            for number, item in enumerate(self.node.items):
                yield Spot(item, self.findings, self, None, number, self.rule)

    def of_key(self) -> Spot:
        """The key under which it stands, as a value."""
        return self if self.key is None else replace(self, node=self.key)

    def of_text(self, text: str) -> Spot:
        """A part of it, as a value of its own."""
        return replace(self, node=Scalar(text, is_plain=False, place=self.node.place))

    def in_rule(self, rule: str | None) -> Spot:
        """The same as the top of a rule."""
        return replace(self, rule=rule, is_rule=True)

    def path(self, *, within_rule: bool = False) -> str:
        """The way to it from the top, or from the rule that it is in."""
        steps: list[str] = []
        spot = self
        while spot.parent is not None and not (within_rule and spot.is_rule):
            steps.append(f"[{spot.number}]" if spot.key is None else _step(spot.key.text))
            spot = spot.parent
        return "".join(reversed(steps)).removeprefix(".")

    def _note(self, severity: Severity, message: str, hint: str, at: Place | None) -> None:
        line, column = self.node.place if at is None else at
        told = Problem(
            severity,
            self.findings.where,
            message,
            line,
            column,
            rule=self.rule,
            field=self.path(within_rule=line is not None),
            hint=hint,
        )
        self.findings.add(told)


def closest(word: str, known: Sequence[str]) -> str | None:
    """The one of the *known* words that is meant by *word*, if one is near."""
    folded = {name.lower(): name for name in known[: 2 * MOST_NAMED]}
    near = get_close_matches(word[:LONGEST_SHOWN].lower(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def meaning(word: str) -> str:
    """A hint that *word* is meant."""
    return f"did you mean {shown(word)}?"


def choosing(words: Sequence[str]) -> str:
    """A hint that one of *words* is right."""
    more = ", ..." if len(words) > MOST_NAMED else ""
    return f"expected one of {', '.join(words[:MOST_NAMED])}{more}"


def _step(name: str) -> str:
    is_word = name.replace("_", "").replace("-", "").isalnum() and len(name) <= LONGEST_SHOWN
    return f".{name}" if is_word else f"[{shown(name)}]"
