"""`PolicyEditor`: edits of the policy of a source, each valid and whole, or none.

An edit reads the newest revision, makes the document after it, validates all of it, and commits it
as the next revision. After a conflict it is made again on the new head, so that two people can
change different rules at the same time. An edit that names a version fails if another edit has
changed the rule meanwhile.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from headgate.chance import chance
from headgate.control import edits
from headgate.control.documents import mode_of, rules_by_id, summary_of, validated, versions_after
from headgate.control.preview import Preview, preview_of
from headgate.control.revision import (
    Change,
    ConflictError,
    ControlError,
    Revision,
    UnknownRevisionError,
    collector_paused,
)
from headgate.policy.problems import quoted
from headgate.policy.rule_cache import RuleCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from headgate.clock import Clock
    from headgate.control.documents import Data
    from headgate.control.edits import Edit
    from headgate.control.source import PolicySource
    from headgate.policy.problems import Problem

AnyVersion = Literal["any"]
"""In place of versions: the rule must exist, in any version."""
TRIES: Final = 10
"""The number of attempts of an edit."""
_BACK_OFF: Final = 0.05
"""Seconds, at the most, before the second attempt; twice as many before the third, and so on."""
_FAR_BACK: Final = 20
"""The changes of a rule that are searched for the mode that it had."""


class EmptySourceError(ControlError):
    """The source has lost the policy that is still enforced; nothing can be read or edited."""


class StaleVersionError(ControlError):
    """The rule or the policy has another version than the request names; nothing was changed."""


class UnknownModeError(ControlError):
    """The history does not say which mode a rule had before it was switched off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRequest:
    """The author and the reason (*note*) of an edit, and its preconditions.

    *versions* are the versions that the edited rule may have (of the policy, for an edit of the
    policy or of an override); None for any. *is_new*: the rule must not exist yet.
    """

    author: str
    note: str = ""
    versions: Collection[int] | AnyVersion | None = None
    is_new: bool = False

    def check(self, what: str, version: int | None) -> None:
        """Raise `StaleVersionError` unless *version* (None: there is nothing) is as expected."""
        if self.is_new and version is not None:
            raise StaleVersionError(f"{what} exists already, with version {version}")
        if self.versions is None:
            return
        if version is None:
            raise StaleVersionError(f"{what} does not exist, so it has no version")
        if self.versions != "any" and version not in self.versions:
            named = ", ".join(str(one) for one in sorted(self.versions)) or "none"
            raise StaleVersionError(f"{what} has version {version}; the request names {named}")


@dataclass(frozen=True, slots=True)
class Edited:
    """The revision after an edit; *is_changed* if it is a new one."""

    revision: Revision
    is_changed: bool

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The warnings about a new revision."""
        parsed = self.revision.parsed if self.is_changed else None
        return () if parsed is None else parsed.warnings


class PolicyEditor:
    """Edits the policy of *source*. Safe among threads; edits run one at a time.

    *memory* is that of the watcher, if there is one: neither validates again what the other has.
    *enforced* returns the revision that is in force.

    Raises `PolicyError` for an invalid policy, `StaleVersionError`, `UnknownRuleError`,
    `ConflictError` if others keep changing it, and errors of the source.
    """

    def __init__(
        self,
        source: PolicySource,
        *,
        clock: Clock = time.time_ns,
        memory: RuleCache | None = None,
        enforced: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.source = source
        self._clock = clock
        self._memory = memory or RuleCache()
        self._enforced = enforced
        self._lock = threading.Lock()

    def head(self) -> Revision:
        """Return the newest revision. Raises `EmptySourceError`."""
        newest = self.source.head()
        kept = self._enforced()
        if newest.number == 0 and kept:
            raise EmptySourceError(
                f"{self.source.place}: the policy was deleted there, and revision {kept} is still "
                "enforced. Replace the whole policy to write it again."
            )
        return newest

    def check_revision(self, request: EditRequest) -> None:
        """Raise `StaleVersionError` unless the policy has a version that *request* names."""
        _check_policy(self.head(), request)

    @collector_paused()
    def apply(self, edit: Edit, request: EditRequest) -> Edited:
        """Make *edit* on the newest revision, and again after a conflict."""
        with self._lock:
            for tries in range(1, TRIES + 1):
                newest = self.source.head() if edit.is_whole else self.head()
                document = edit.make(newest.document)
                _check(edit, newest, request)
                if document == dict(newest.document):
                    return Edited(newest, is_changed=False)
                revision = self._next(newest, document, request, edit)
                try:
                    self.source.commit(revision)
                except ConflictError:
                    time.sleep(tries * _BACK_OFF * chance())
                else:
                    return Edited(revision, is_changed=True)
        raise ConflictError(f"others changed the policy {TRIES} times in the meantime; try again")

    @collector_paused()
    def preview(self, edit: Edit) -> Preview:
        """Preview *edit* of the newest revision."""
        newest = self.head()
        document = edit.make(newest.document)
        edits.check_size(document)
        return preview_of(newest, edits.without_expired(document, self._clock()), self._memory)

    def rollback(self, number: int) -> Edit:
        """Return the edit that makes the document of revision *number* the newest again.

        To apply it raises `UnknownRevisionError` if that is not kept.
        """
        what = f"roll back to revision {number}"
        return edits.Edit(what, lambda _: dict(self.source.at(number).document))

    def mode_before(self, rule_id: str) -> str:
        """Return the mode of a rule before it was switched off: "enforce" or "shadow".

        It is looked up in the history; `UnknownModeError` if that does not go back so far.
        """
        revision = self.head()
        rule: Data | None = edits.rule_in(revision.document, rule_id)
        for _ in range(_FAR_BACK):
            if rule is not None and mode_of(rule) != "off":
                return mode_of(rule)
            try:
                revision = self.source.at(revision.version_of(rule_id) - 1)
            except UnknownRevisionError:
                break
            rule = rules_by_id(revision.document).get(rule_id)
            if rule is None:
                break
        message = f"the history does not say which mode the rule {quoted(rule_id)} had before"
        raise UnknownModeError(f"{message}; name it: enforce or shadow")

    def changes_of(self, rule_id: str, *, before: int, most: int) -> list[tuple[int, Change]]:
        """Return at most *most* revisions below *before* that changed a rule, newest first.

        The list ends where the rule was created, or where the history does.
        """
        found: list[tuple[int, Change]] = []
        revision = self.head()
        while len(found) < most and rule_id in rules_by_id(revision.document):
            number = revision.version_of(rule_id)
            try:
                if number < before:
                    found.append((number, self.source.at(number).change))
                revision = self.source.at(number - 1)
            except UnknownRevisionError:
                break
        return found

    def _next(self, newest: Revision, document: Data, request: EditRequest, edit: Edit) -> Revision:
        """Return the revision after *newest*, validated."""
        now_ns = self._clock()
        document = edits.without_expired(document, now_ns)
        edits.check_size(document)
        parsed = validated(document, self._memory)
        number = newest.number + 1
        what = edit.what
        if edit.is_whole:
            what = f"{what}: {summary_of(newest.document, document)}"
        change = Change(request.author, now_ns, what, request.note)
        return Revision(number, document, versions_after(newest, document, number), change, parsed)


def _check(edit: Edit, newest: Revision, request: EditRequest) -> None:
    """Raise `StaleVersionError` unless what *edit* changes has a version that *request* names."""
    if edit.rule is None:
        _check_policy(newest, request)
        return
    name, candidate = f"the rule {quoted(edit.rule)}", None
    if edit.is_pair:
        candidate = edits.candidate_in(newest.document, edit.rule)
        if request.is_new and candidate is not None:
            raise StaleVersionError(f"{name} has a candidate already, {quoted(candidate)}")
        request = replace(request, is_new=False)
        name = f"{name} with its candidate"
    existing = rules_by_id(newest.document).keys() & {edit.rule, candidate}
    request.check(name, max((newest.version_of(one) for one in existing), default=None))


def _check_policy(newest: Revision, request: EditRequest) -> None:
    is_first = newest.number == 0 and request.is_new
    request.check("the policy", None if is_first else newest.number)
