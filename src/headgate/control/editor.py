"""`PolicyEditor`: edits of the policy of a source, each valid and whole, or none.

An edit reads the newest revision, makes the document after it, validates all of it, and commits it
as the next revision. After a conflict it is made again on the new head, so that two people who
change different rules do not get in each other's way; an edit that names a version fails instead if
that rule was changed.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.control.documents import rules_by_id, summary_of, versions_after
from headgate.control.edits import (
    RuleFilter,
    RulePage,
    candidate_id,
    check_size,
    mode_of,
    plain_data,
    rule_in,
    rules_in,
    with_adopted,
    with_candidate,
    with_override,
    with_rule,
    without_expired,
    without_override,
    without_rule,
)
from headgate.control.preview import Preview, preview_of
from headgate.control.revision import (
    Change,
    ConflictError,
    ControlError,
    Parsed,
    Revision,
    UnknownRevisionError,
)
from headgate.policy.diagnostics import shown
from headgate.policy.fields import instant_text
from headgate.policy.loader import RuleMemory, examine_policy_data
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headgate.clock import Clock
    from headgate.control.documents import Data
    from headgate.control.source import PolicySource
    from headgate.policy.problems import Problem

AnyVersion = Literal["any"]
"""In place of versions: there must be something, whatever its version."""
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

    *versions* are those that the rule may have (the policy, where that or an override is changed);
    None if it does not matter. *is_new*: there must be nothing yet.
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
            raise StaleVersionError(f"{what} has version {version} now; found {named}")


@dataclass(frozen=True, slots=True)
class Edited:
    """The revision after an edit; *is_changed* if it is a new one. *warnings* are about it."""

    revision: Revision
    is_changed: bool
    warnings: tuple[Problem, ...] = ()

    def version_of(self, rule_id: str) -> int:
        """Return the version of a rule."""
        return _version(self.revision, rule_id)


class PolicyEditor:
    """Edits the policy of *source*. Safe among threads; edits run one at a time.

    *memory* is that of the watcher, if there is one: what one has validated the other knows.
    *enforced* returns the revision that is in force.

    Raises `PolicyError` for an invalid policy, `StaleVersionError`, `UnknownRuleError`,
    `ConflictError` if others keep changing it, and errors of the source.
    """

    def __init__(
        self,
        source: PolicySource,
        *,
        clock: Clock = time.time_ns,
        memory: RuleMemory | None = None,
        enforced: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.source = source
        self._clock = clock
        self._memory = memory or RuleMemory()
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

    def rule(self, rule_id: str) -> tuple[int, Data]:
        """Return the version and the data of a rule. Raises `UnknownRuleError`."""
        newest = self.head()
        return _version(newest, rule_id), rule_in(newest.document, rule_id)

    def rules(
        self, wanted: RuleFilter | None = None, *, offset: int = 0, limit: int = 100
    ) -> RulePage:
        """Return the rules that are *wanted*, *limit* of them after *offset*."""
        return rules_in(self.head(), wanted or RuleFilter(), offset=offset, limit=limit)

    def put_rule(self, rule_id: str, data: Mapping[str, Any], request: EditRequest) -> Edited:
        """Make *data* (without its id) the rule *rule_id*, a new one if there is none."""
        own = plain_data(data)

        def edit(newest: Revision) -> Data:
            _check_rule(newest, rule_id, request)
            return with_rule(newest.document, rule_id, own)

        return self._change(edit, request, f"put rule {rule_id}")

    def delete_rule(self, rule_id: str, request: EditRequest) -> Edited:
        """Remove a rule, its candidate, and the overrides of their counters."""

        def edit(newest: Revision) -> Data:
            rule_in(newest.document, rule_id)
            _check_rule(newest, rule_id, request)
            return without_rule(newest.document, rule_id)

        return self._change(edit, request, f"delete rule {rule_id}")

    def put_candidate(self, rule_id: str, data: Mapping[str, Any], request: EditRequest) -> Edited:
        """Try *data* in shadow beside the rule *rule_id*, in place of its present candidate.

        The version is the greater one of the rule and of that.
        """
        own = plain_data(data)

        def edit(newest: Revision) -> Data:
            _check_pair(newest, rule_id, request)
            return with_candidate(newest.document, rule_id, own)

        return self._change(edit, request, f"try a candidate of {rule_id}")

    def adopt(self, rule_id: str, request: EditRequest) -> Edited:
        """Replace a rule by its candidate. Raises `UnknownRuleError` if it has none.

        The version is the greater one of the two.
        """

        def edit(newest: Revision) -> Data:
            _check_pair(newest, rule_id, request)
            return with_adopted(newest.document, rule_id)

        return self._change(edit, request, f"adopt the candidate of {rule_id}")

    def replace(self, document: Mapping[str, Any], request: EditRequest) -> Edited:
        """Replace the whole policy by *document*."""
        return self._replace(plain_data(document), request, _REPLACE, self.source.head)

    def rollback(self, number: int, request: EditRequest) -> Edited:
        """Make the document of revision *number* the newest again, without overrides that have
        ended. Raises `UnknownRevisionError`."""
        document = plain_data(dict(self.source.at(number).document))
        return self._replace(document, request, f"roll back to revision {number}", self.head)

    def _replace(
        self, document: Data, request: EditRequest, what: str, head: Callable[[], Revision]
    ) -> Edited:
        def edit(newest: Revision) -> Data:
            _check_policy(newest, request)
            return dict(document)

        return self._change(edit, request, what, head=head)

    def switch_off(self, rule_id: str, request: EditRequest) -> Edited:
        """Take a rule out of force, and leave all else as it is: the kill switch."""
        return self._switch(rule_id, "off", request, f"switch off {rule_id}")

    def switch_on(self, rule_id: str, request: EditRequest, *, mode: str | None = None) -> Edited:
        """Put a rule in force again in *mode*, by default the one that it had.

        That is looked up in the history; `UnknownModeError` if it does not go back so far.
        """
        if mode is None:
            mode = self._mode_before(rule_id)
        return self._switch(rule_id, mode, request, f"switch {rule_id} to {mode}")

    def _switch(self, rule_id: str, mode: str, request: EditRequest, what: str) -> Edited:
        def edit(newest: Revision) -> Data:
            rule = rule_in(newest.document, rule_id)
            _check_rule(newest, rule_id, request)
            if mode_of(rule) == mode:
                return dict(newest.document)
            bare = {name: value for name, value in rule.items() if name != "mode"}
            own = bare if mode == "enforce" else {**bare, "mode": mode}
            return with_rule(newest.document, rule_id, own)

        return self._change(edit, request, what)

    def override(
        self,
        rule_id: str,
        key: str,
        *,
        until_ns: int,
        request: EditRequest,
        extra: int = 0,
        block: bool = False,
    ) -> Edited:
        """*block* a key under a rule, or make its limits larger by *extra*, until then."""
        until = instant_text(until_ns)
        given: Data = {"block": True} if block else {"extra": extra}
        override = {"rule": rule_id, "key": key, **given, "until": until}
        what = f"block {key}" if block else f"grant {extra} more to {key}"

        def edit(newest: Revision) -> Data:
            _check_policy(newest, request)
            return with_override(newest.document, override)

        return self._change(edit, request, f"{what} under {rule_id} until {until}")

    def remove_override(self, rule_id: str, key: str, request: EditRequest) -> Edited:
        """End the override of *key* under a rule. Raises `UnknownOverrideError`."""

        def edit(newest: Revision) -> Data:
            _check_policy(newest, request)
            return without_override(newest.document, rule_id, key)

        return self._change(edit, request, f"end the override of {key} under {rule_id}")

    def preview(self, document: Mapping[str, Any]) -> Preview:
        """Preview `replace`."""
        return self._previewed(self.head(), plain_data(document))

    def preview_rules(self, rules: Mapping[str, Mapping[str, Any] | None]) -> Preview:
        """Preview *rules* by their ids; None deletes one."""
        newest = self.head()
        document = dict(newest.document)
        for rule_id, data in rules.items():
            if data is not None:
                document = with_rule(document, rule_id, plain_data(data))
            elif rule_id in rules_by_id(document) or rule_id not in rules_by_id(newest.document):
                document = without_rule(document, rule_id)  # or its rule has taken it along
        return self._previewed(newest, document)

    def preview_candidate(self, rule_id: str, data: Mapping[str, Any]) -> Preview:
        """Preview `put_candidate`."""
        newest = self.head()
        document = with_candidate(newest.document, rule_id, plain_data(data))
        return self._previewed(newest, document)

    def preview_adoption(self, rule_id: str) -> Preview:
        """Preview `adopt`."""
        newest = self.head()
        return self._previewed(newest, with_adopted(newest.document, rule_id))

    def _previewed(self, newest: Revision, document: Data) -> Preview:
        check_size(document)
        return preview_of(newest, without_expired(document, self._clock()), self._memory)

    def _change(
        self,
        edit: Callable[[Revision], Data],
        request: EditRequest,
        what: str,
        *,
        head: Callable[[], Revision] | None = None,
    ) -> Edited:
        """Make *edit*, and again after a conflict."""
        with self._lock:
            for tries in range(1, TRIES + 1):
                newest = (head or self.head)()
                document = edit(newest)
                if document == dict(newest.document):
                    return Edited(newest, is_changed=False)
                revision, warnings = self._next(newest, document, request, what)
                try:
                    self.source.commit(revision)
                except ConflictError:
                    time.sleep(random.uniform(0, tries * _BACK_OFF))  # noqa: S311
                else:
                    return Edited(revision, is_changed=True, warnings=warnings)
        raise ConflictError(f"others changed the policy {TRIES} times in the meantime; try again")

    def _next(
        self, newest: Revision, document: Data, request: EditRequest, what: str
    ) -> tuple[Revision, tuple[Problem, ...]]:
        """Return the revision after *newest*, validated, with the warnings about it."""
        now_ns = self._clock()
        document = without_expired(document, now_ns)
        check_size(document)
        examined = examine_policy_data(document, memory=self._memory)
        if examined.policy is None:
            raise PolicyError(examined.problems)
        number = newest.number + 1
        if what == _REPLACE:
            what = f"{what}: {summary_of(newest.document, document)}"
        change = Change(request.author, now_ns, what, request.note)
        versions = versions_after(newest, document, number)
        parsed = Parsed(examined.policy, examined.problems)
        return Revision(number, document, versions, change, parsed), examined.problems

    def _mode_before(self, rule_id: str) -> str:
        """Return the mode of a rule before it was switched off: "enforce" or "shadow"."""
        revision = self.head()
        rule: Data | None = rule_in(revision.document, rule_id)
        for _ in range(_FAR_BACK):
            if rule is not None and mode_of(rule) != "off":
                return mode_of(rule)
            try:
                revision = self.source.at(_version(revision, rule_id) - 1)
            except UnknownRevisionError:
                break
            rule = rules_by_id(revision.document).get(rule_id)
            if rule is None:
                break
        message = f"the history does not say which mode the rule {shown(rule_id)} had before"
        raise UnknownModeError(f"{message}; say enforce or shadow")


_REPLACE: Final = "replace the policy"


def _version(revision: Revision, rule_id: str) -> int:
    return revision.versions.get(rule_id, revision.number)


def _check_rule(newest: Revision, rule_id: str, request: EditRequest) -> None:
    is_there = rule_id in rules_by_id(newest.document)
    request.check(f"the rule {shown(rule_id)}", _version(newest, rule_id) if is_there else None)


def _check_policy(newest: Revision, request: EditRequest) -> None:
    is_first = newest.number == 0 and request.is_new
    request.check("the policy", None if is_first else newest.number)


def _check_pair(newest: Revision, rule_id: str, request: EditRequest) -> None:
    """Check the greater version of a rule and its candidate; the pair exists with a candidate."""
    rule_in(newest.document, rule_id)
    candidate = candidate_id(newest.document, rule_id)
    if request.is_new and candidate is not None:
        message = f"the rule {shown(rule_id)} has a candidate already, {shown(candidate)}"
        raise StaleVersionError(message)
    if request.versions not in (None, "any"):
        names = [rule_id, *([] if candidate is None else [candidate])]
        version = max(_version(newest, name) for name in names)
        what = f"the rule {shown(rule_id)} with its candidate"
        replace(request, is_new=False).check(what, version)
