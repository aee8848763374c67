"""From flags, variables and a file to values, or to everything that is wrong with them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.config import readers
from headgate.config.declaration import PREFIX
from headgate.config.readers import secret_in, too_short
from headgate.errors import HeadgateError
from headgate.policy.loader.diagnostics import (
    LARGEST_TEXT,
    Findings,
    Listing,
    Scalar,
    Spot,
    closest,
    meaning,
)
from headgate.policy.loader.documents import grow_text
from headgate.policy.loader.scalars import Fields
from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.config.declaration import Setting

CONFIG: Final = f"{PREFIX}CONFIG"
"""The variable that names the file, if no flag does."""

_OTHERS: Final = frozenset((CONFIG, f"{PREFIX}KEYS_LIMIT", f"{PREFIX}ETCD_PASSWORD"))
"""Variables of ours that are settings of nothing that is gathered here."""

_ANY_LENGTH: Final = frozenset(("salt",))
"""Secrets that may be short."""

Told = tuple[str, str]
"""The name of a setting, and what is wrong with it beside the others."""

_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_\w+)?)")
"""What Kubernetes tells every pod of a Service whose name begins with ours."""


class SettingsError(HeadgateError, ValueError):
    """A configuration that cannot be used. `problems` has everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Values:
    """A value for every setting, by name, and what their author may regret."""

    values: dict[str, Any]
    warnings: tuple[Problem, ...]


def gather_values(
    settings: Sequence[Setting],
    *,
    flags: Mapping[str, str | Sequence[str] | None],
    variables: Mapping[str, str],
    config: str | None = None,
    contradictions: Callable[[Mapping[str, Any]], Iterable[Told]] = lambda _: (),
    others: Sequence[Setting] = (),
) -> Values:
    """The values of *settings* by *flags* (under their names), *variables* and the file *config*.

    A variable that is empty is one that is not set. A secret with a setting `NAME_file` beside it
    may come from a file. *contradictions* tells what is wrong with all values as a whole. *others*
    are settings of another part, which may stand in the same file and mean nothing here. Raises
    `SettingsError` with all that is wrong.
    """
    said = _Said(tuple(settings), tuple(others), {one.name: one.default for one in settings})
    path = config or variables.get(CONFIG)
    if path:
        said.take_file(path)
    said.take_variables(variables)
    said.take_flags(flags)
    return said.settled(contradictions)


@dataclass(slots=True)
class _Said:
    """What has been said so far; what is taken later wins."""

    settings: tuple[Setting, ...]
    others: tuple[Setting, ...]
    values: dict[str, Any]
    spots: dict[str, Spot] = field(default_factory=dict)
    findings: list[Findings] = field(default_factory=list)
    stopped: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def take_file(self, path: str) -> None:
        findings = self._found_in(path)
        try:
            with Path(path).open("rb") as file:
                content = file.read(LARGEST_TEXT + 1)
        except OSError as error:
            told = f"cannot be read: {error.strerror or error}"
            self.stopped.append(Problem("error", path, told))
            return
        try:
            root = Spot(grow_text(content, findings), findings)
            known = [one.name for one in (*self.settings, *self.others)]
            fields = Fields.of(root, known, "a configuration")
        except PolicyError as error:
            self.findings.remove(findings)
            self.stopped += error.problems
            return
        for one in self.settings if fields is not None else ():
            if fields is not None and one.name in fields:
                self._take(one, fields[one.name])

    def take_variables(self, variables: Mapping[str, str]) -> None:
        known = {one.variable: one for one in self.settings if one.variable}
        strange = _OTHERS.union(one.variable for one in self.others if one.variable)
        for name, text in variables.items():
            if text and name in known:
                self._take_text(known[name], text, name)
            elif name.startswith(PREFIX) and name not in strange and name not in known:
                self._warn_of_variable(name, tuple(known))

    def take_flags(self, flags: Mapping[str, str | Sequence[str] | None]) -> None:
        for one in self.settings:
            text = flags.get(one.name)
            if text is not None and one.flag:
                self._take_text(one, text, one.flag)

    def settled(self, contradictions: Callable[[Mapping[str, Any]], Iterable[Told]]) -> Values:
        for one in self.settings:
            if one.is_secret and f"{one.name}_file" in self.values:
                self._take_secret(one.name, f"{one.name}_file")
        self._check_secrets()
        if not self._errors():
            for name, told in contradictions(self.values):
                self._wrong(name, told)
        errors = self._errors()
        if errors:
            raise SettingsError(errors)
        return Values(self.values, tuple(self.warnings))

    def _take(self, one: Setting, spot: Spot) -> None:
        try:
            value = one.reader(spot)
        except PolicyError as error:  # too much is wrong to go on
            self.stopped += error.problems
            return
        self.spots[one.name] = spot
        if value is not None:
            self.values[one.name] = value

    def _take_text(self, one: Setting, text: str | Sequence[str], where: str) -> None:
        pieces = [text] if isinstance(text, str) else list(text)
        if one.is_listed:
            pieces = [part.strip() for piece in pieces for part in piece.split(",")]
        scalars = [_scalar(one, piece) for piece in pieces]
        node = scalars[-1] if len(scalars) == 1 or not one.is_listed else Listing(items=[*scalars])
        self._take(one, Spot(node, self._found_in(where)))

    def _take_secret(self, name: str, file: str) -> None:
        spot, other = self.spots.get(file), self.spots.get(name)
        if spot is None or self.values[file] is None:
            return
        if other is not None and self._rank(other) > self._rank(spot):
            return
        if other is not None and self._rank(other) == self._rank(spot):
            spot.wrong(f"{name} is given as well; expected one of the two")
            return
        found = secret_in(self.values[file], spot)
        if found is not None:
            self.values[name] = found
            self.spots[name] = spot

    def _check_secrets(self) -> None:
        for one in self.settings:
            name, value = one.name, self.values[one.name]
            if not one.is_secret or name in _ANY_LENGTH:
                continue
            flaw = too_short(value) if value else None
            if flaw is not None:
                self._wrong(name, flaw)

    @staticmethod
    def _rank(spot: Spot) -> int:
        where = spot.findings.where
        return 2 if where.startswith("--") else 1 if where.startswith(PREFIX) else 0

    def _wrong(self, name: str, told: str) -> None:
        spot = self.spots.get(name)
        if spot is None:
            self.stopped.append(Problem("error", name, told))
        else:
            spot.wrong(told)

    def _found_in(self, where: str) -> Findings:
        findings = Findings(where)
        self.findings.append(findings)
        return findings

    def _errors(self) -> list[Problem]:
        found = [problem for findings in self.findings for problem in findings.problems()]
        return [problem for problem in [*self.stopped, *found] if problem.severity == "error"]

    def _warn_of_variable(self, name: str, known: Sequence[str]) -> None:
        if _SERVICE_LINK.fullmatch(name):
            return
        near = closest(name, known)
        hint = "" if near is None else meaning(near)
        told = "no setting has this name, and it has no effect"
        self.warnings.append(Problem("warning", name, told, hint=hint))


def _scalar(one: Setting, text: str) -> Scalar:
    """*text* as it would stand in a file: words that mean something there only where it counts."""
    plain = Scalar(text, is_plain=True)
    is_word = plain.is_null or plain.boolean is not None
    return Scalar(text, is_plain=one.reader is readers.boolean or not is_word)
