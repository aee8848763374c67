"""What was found wrong so far, and the place in the document that one is looking at."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.policy.problems import Severity


# The shape of a document, before anybody asks what it means.
#
# A `Scalar` keeps its text as it was written: whether `off` is a word or a boolean, and `010` a
# number or a name, is for the field to say that it stands in, not for YAML. `Grower` builds the
# tree from what a parser meets, one thing after the other and without recursion, and keeps the
# bounds.


LARGEST_TEXT: Final = 1024 * 1024
"""The most bytes in a document."""

DEEPEST: Final = 32
"""How many lists and mappings may stand in each other."""

MOST_NODES: Final = 100_000
"""How many things may be in a document, what aliases stand for counted each time."""

TRUE: Final = frozenset(("true", "True", "TRUE"))
FALSE: Final = frozenset(("false", "False", "FALSE"))
NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))


class Place(NamedTuple):
    """A line and a column, counted from 1; None in data that has no text."""

    line: int | None = None
    column: int | None = None


NOWHERE: Final = Place()


@dataclass(slots=True)
class Scalar:
    """A text. *is_plain*: without quotes, so that it may mean a number, a boolean or nothing.

    *inset* is how many columns after *place* the text begins; None if it is not in the document
    letter by letter.
    """

    text: str
    is_plain: bool
    place: Place = NOWHERE
    inset: int | None = None

    @property
    def is_null(self) -> bool:
        return self.is_plain and self.text in NULL

    @property
    def boolean(self) -> bool | None:
        """What it says if it is a boolean, else None."""
        if not self.is_plain:
            return None
        return True if self.text in TRUE else False if self.text in FALSE else None


@dataclass(slots=True)
class Listing:
    """Things in their order."""

    place: Place = NOWHERE
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """Things under names; `keys` are the names where they were written."""

    place: Place = NOWHERE
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Scalar] = field(default_factory=dict)


Node: TypeAlias = Scalar | Listing | Table


@dataclass(slots=True)
class _Open:
    """A list or mapping that is not complete: its size and height so far, and the key at hand."""

    node: Listing | Table
    anchor: str | None
    key: Scalar | None = None
    is_after_key: bool = False
    size: int = 1
    height: int = 1


class Grower:
    """Builds one document. What breaks a bound stops the reading; the rest is noted."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._count = 0
        self.root: Node | None = None

    def scalar(self, scalar: Scalar, anchor: str | None = None) -> None:
        self._put(scalar, scalar.place, 1, 0)
        if anchor is not None:
            self._anchors[anchor] = (scalar, 1, 0)

    def begin(self, node: Listing | Table, anchor: str | None = None) -> None:
        if len(self._open) >= DEEPEST:
            self._findings.stop(node.place, f"nested too deeply; at most {DEEPEST} levels are read")
        self._open.append(_Open(node, anchor))

    def end(self) -> None:
        done = self._open.pop()
        self._put(done.node, done.node.place, done.size, done.height, new=1)
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.node, done.size, done.height)

    def alias(self, anchor: str, place: Place) -> None:
        found = self._anchors.get(anchor)
        if found is None:
            self._findings.wrong(place, f"the alias {shown(anchor)} stands for nothing before it")
            found = (Scalar("", is_plain=False, place=place), 1, 0)
        self._put(found[0], place, found[1], found[2], new=found[1])

    def graft(self, node: Node, size: int, height: int) -> None:
        """Put a *node* that has been grown before, and counts as if it were grown now."""
        self._put(node, node.place, size, height, new=size)

    def _put(self, node: Node, place: Place, size: int, height: int, new: int = 1) -> None:
        """Hang *node* where the next one belongs; *new* of its *size* was not counted yet."""
        self._count += new
        if self._count > MOST_NODES:
            told = f"too large; at most {MOST_NODES} values are read, aliases counted in full"
            self._findings.stop(place, told)
        if len(self._open) + height > DEEPEST:
            self._findings.stop(place, f"nested too deeply; at most {DEEPEST} levels are read")
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += size
        parent.height = max(parent.height, height + 1)
        if isinstance(parent.node, Listing):
            parent.node.items.append(node)
        elif parent.is_after_key:
            self._enter(parent, parent.node, node)
        else:
            parent.key, parent.is_after_key = self._checked_key(node, place), True

    def _checked_key(self, node: Node, place: Place) -> Scalar | None:
        if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
            told = f"{described(node)} cannot be a key; expected text"
            hint = "put it in quotes" if isinstance(node, Scalar) else ""
            self._findings.wrong(place, told, hint=hint)
            return None
        if node.is_plain and node.text == "<<":
            hint = "write the fields out, or give a whole value with an alias"
            self._findings.wrong(place, "merge keys ('<<') are not read", hint=hint)
            return None
        return node

    def _enter(self, parent: _Open, table: Table, node: Node) -> None:
        key, parent.key, parent.is_after_key = parent.key, None, False
        if key is None:
            return
        first = table.keys.get(key.text)
        if first is not None:
            at = "" if first.place.line is None else f"; the first is in line {first.place.line}"
            self._findings.wrong(key.place, f"{_told(key.text)} is given twice{at}")
            return
        table.keys[key.text] = key
        table.entries[key.text] = node


LONGEST_SHOWN: Final = 60


def shown(text: str) -> str:
    """*text* in quotes, short enough for a message and without anything that cannot be printed."""
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


def described(node: Node) -> str:
    """What *node* is, for "found ..."."""
    match node:
        case Table():
            return "a mapping"
        case Listing():
            return "a list"
        case Scalar() if node.is_null:
            return "nothing"
        case Scalar() if node.boolean is not None:
            return node.text.lower()
        case Scalar(text=text, is_plain=True) if text[:1].isdigit() and text.isprintable():
            return text if len(text) <= LONGEST_SHOWN else "a very long number"
    return shown(node.text)


def _told(key: str) -> str:
    """A key in a message, if it is a word: another may be somebody's secret."""
    return shown(key) if _WORD.fullmatch(key) else "this key"


_WORD = re.compile("[a-z_]{1,30}")


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
