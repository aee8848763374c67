"""Where settings come from: flags, variables and a file, or every problem with them."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.config.declaration import PREFIX
from headgate.config.values import checked_length, secret_in
from headgate.errors import nearest
from headgate.policy.document import MAX_BYTES, Listing, Scalar, Table, parse_text, record
from headgate.policy.fields import BOOLEAN, FieldError, InvalidValueError, expected, not_among
from headgate.policy.problems import (
    NOWHERE,
    Diagnostics,
    PolicyError,
    Problem,
    ProblemsError,
    did_you_mean,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from headgate.config.declaration import Setting
    from headgate.policy.document import Node

CONFIG: Final = f"{PREFIX}CONFIG"
"""The variable that names the file, if no flag does."""

_OTHERS: Final = frozenset((CONFIG, f"{PREFIX}KEYS_LIMIT", f"{PREFIX}ETCD_PASSWORD"))
"""Variables that are no settings."""

_ANY_LENGTH: Final = frozenset(("salt",))
"""Secrets that may be short."""

Contradiction = tuple[str, str]
"""The name of a setting, and its problem in combination with others."""

_SERVICE_LINK: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_\w+)?)")
"""Variables that Kubernetes sets in every pod for a Service whose name begins with ours."""


class SettingsError(ProblemsError):
    """Settings that cannot be used."""


@dataclass(frozen=True, slots=True)
class Values:
    """A value for every setting, by name, and warnings about them."""

    values: dict[str, Any]
    warnings: tuple[Problem, ...]


def gather_values(
    settings: Sequence[Setting],
    *,
    flags: Mapping[str, str | Sequence[str] | None],
    variables: Mapping[str, str],
    config: str | None = None,
    contradictions: Callable[[Mapping[str, Any]], Iterable[Contradiction]] = lambda _: (),
    others: Sequence[Setting] = (),
) -> Values:
    """The values of *settings* by *flags* (under their names), *variables* and the file *config*.

    A variable that is empty is one that is not set. A secret with a setting `NAME_file` beside it
    may come from a file. *contradictions* yields the problems of all values as a whole. *others*
    are settings of another part, which may stand in the same file and mean nothing here. Raises
    `SettingsError` with every problem.
    """
    gathering = _Gathering(
        tuple(settings), tuple(others), {one.name: one.default for one in settings}
    )
    path = config or variables.get(CONFIG)
    if path:
        gathering.take_file(path)
    gathering.take_variables(variables)
    gathering.take_flags(flags)
    return gathering.settled(contradictions)


def tls_contradictions(values: Mapping[str, Any], listener: str) -> Iterator[Contradiction]:
    """The problems of the TLS files of *listener*, the prefix of their settings."""
    cert, key, ca = (f"{listener}_tls_{name}" for name in ("cert", "key", "client_ca"))
    if (values[cert] is None) != (values[key] is None):
        given, missing = (cert, key) if values[key] is None else (key, cert)
        yield given, f"{missing} is missing; a certificate and its key go together"
    elif values[ca] is not None and values[cert] is None:
        yield ca, f"{cert} and {key} are missing; without TLS no client shows a certificate"


@dataclass(frozen=True, slots=True)
class _Given:
    """A value where it was given: at *path* below *root*, of a *rank* that the highest wins."""

    diagnostics: Diagnostics
    root: Node
    path: tuple[str, ...]
    rank: int

    def report(self, *flaws: FieldError) -> None:
        for flaw in flaws:
            record(self.diagnostics, self.root, flaw, (*self.path, *flaw.path))


@dataclass(slots=True)
class _Gathering:
    """The values so far; a later source wins."""

    settings: tuple[Setting, ...]
    others: tuple[Setting, ...]
    values: dict[str, Any]
    given: dict[str, _Given] = field(default_factory=dict)
    diagnostics: list[Diagnostics] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def take_file(self, path: str) -> None:
        diagnostics = self._diagnostics(path)
        with suppress(PolicyError):  # the diagnostics have it
            try:
                with Path(path).open("rb") as file:
                    content = file.read(MAX_BYTES + 1)
            except OSError as error:
                diagnostics.stop(NOWHERE, f"cannot be read: {error.strerror or error}")
            self._take_root(_Given(diagnostics, parse_text(content, diagnostics), (), 0))

    def _diagnostics(self, where: str) -> Diagnostics:
        self.diagnostics.append(Diagnostics(where))
        return self.diagnostics[-1]

    def _take_root(self, given: _Given) -> None:
        known = [one.name for one in (*self.settings, *self.others)]
        if not isinstance(given.root, Table):
            what = f"a configuration: a mapping with {', '.join(known)}"
            given.report(expected(given.root, what))
            return
        for name in given.root.entries:
            if name not in known:
                flaw = not_among(name, known, "unknown field").under(name)
                flaw.at_key = True
                given.report(flaw)
        for one in self.settings:
            node = given.root.entries.get(one.name)
            if node is not None:
                self._take(one, node, _Given(given.diagnostics, given.root, (one.name,), 0))

    def take_variables(self, variables: Mapping[str, str]) -> None:
        known = {one.variable: one for one in self.settings if one.variable}
        strange = _OTHERS.union(one.variable for one in self.others if one.variable)
        for name, text in variables.items():
            if text and name in known:
                self._take_text(known[name], text, name, 1)
            elif name.startswith(PREFIX) and name not in strange and name not in known:
                self._warn_of_variable(name, tuple(known))

    def take_flags(self, flags: Mapping[str, str | Sequence[str] | None]) -> None:
        for one in self.settings:
            text = flags.get(one.name)
            if text is not None and one.flag:
                self._take_text(one, text, one.flag, 2)

    def settled(
        self, contradictions: Callable[[Mapping[str, Any]], Iterable[Contradiction]]
    ) -> Values:
        for one in self.settings:
            if one.is_secret:
                self._settle_secret(one.name, f"{one.name}_file")
        if not self._errors():
            for name, message in contradictions(self.values):
                self._report(name, FieldError(message))
        if errors := self._errors():
            raise SettingsError(errors)
        return Values(self.values, tuple(self.warnings))

    def _take(self, one: Setting, node: Node, given: _Given) -> None:
        self.given[one.name] = given
        try:
            self.values[one.name] = one.kind.read(node)
        except FieldError as flaw:
            given.report(flaw)
        except InvalidValueError as several:
            given.report(*several.errors)

    def _take_text(self, one: Setting, text: str | Sequence[str], where: str, rank: int) -> None:
        pieces = [text] if isinstance(text, str) else list(text)
        is_listed = one.is_listed
        if is_listed:
            pieces = [part.strip() for piece in pieces for part in piece.split(",")]
        scalars = [_scalar(one, piece) for piece in pieces]
        is_one = len(scalars) == 1 or not is_listed
        node: Node = scalars[-1] if is_one else Listing(items=[*scalars])
        self._take(one, node, _Given(self._diagnostics(where), node, (), rank))

    def _settle_secret(self, name: str, file: str) -> None:
        """Read the secret *name* from *file* if that wins, and check its length."""
        given, other = self.given.get(file), self.given.get(name)
        rank = -1 if other is None else other.rank
        try:
            if given is not None and self.values[file] is not None:
                if given.rank == rank:
                    given.report(FieldError(f"{name} is given as well; expected one of the two"))
                elif given.rank > rank:
                    self.given[name] = given
                    self.values[name] = secret_in(self.values[file])
            if self.values[name] and name not in _ANY_LENGTH:
                checked_length(self.values[name])
        except FieldError as flaw:
            self._report(name, flaw)

    def _report(self, name: str, flaw: FieldError) -> None:
        given = self.given.get(name)
        if given is None:
            self._diagnostics(name).error(NOWHERE, flaw.message)
        else:
            given.report(flaw)

    def _errors(self) -> list[Problem]:
        found = [problem for one in self.diagnostics for problem in one.problems()]
        return [problem for problem in found if problem.severity == "error"]

    def _warn_of_variable(self, name: str, known: Sequence[str]) -> None:
        if _SERVICE_LINK.fullmatch(name):
            return
        near = nearest(name, known)
        hint = "" if near is None else did_you_mean(near)
        message = "no setting has this name, and it has no effect"
        self.warnings.append(Problem("warning", name, message, hint=hint))


def _scalar(one: Setting, text: str) -> Scalar:
    """*text* as it would stand in a file: words with a meaning there only where it counts."""
    plain = Scalar(text, is_plain=True)
    is_word = plain.is_null or plain.boolean is not None
    return Scalar(text, is_plain=one.kind is BOOLEAN or not is_word)
