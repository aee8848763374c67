"""Changing the policy that a source keeps: one edit at a time, each whole and good, or none.

An edit reads the newest revision, makes the document after it, has all of that read as a policy,
and commits it as the next revision. If somebody else was quicker, it is made again on what they
left, so that two people who change different rules do not get in each other's way; who gave a
version with the edit is refused instead if it was that rule.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.control.documents import rules_by_id, summary_of, versions_after
from headgate.control.edits import (
    RuleFilter,
    RulePage,
    UnknownRuleError,
    candidate_id,
    check_size,
    mode_of,
    plain_data,
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
from headgate.policy.loader import RuleMemory, examine_policy_data
from headgate.policy.loader.diagnostics import shown
from headgate.policy.loader.scalars import instant_text
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headgate.clock import Clock
    from headgate.control.documents import Data
    from headgate.control.source import PolicySource
    from headgate.policy.problems import Problem

__all__ = [
    "AnyVersion",
    "EditRequest",
    "Edited",
    "PolicyEditor",
    "StaleVersionError",
    "UnknownModeError",
]


# Who wants a change, and of which version; whether that is the one that there is.


AnyVersion = Literal["any"]
"""In place of versions: there must be something, whatever its version."""


class EmptySourceError(ControlError):
    """The source has lost the policy that is still enforced; nothing can be read or edited."""


class StaleVersionError(ControlError):
    """The thing is at another version than the one that was named; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRequest:
    """Who wants a change, why (*note*), and of which versions: None if it does not matter.

    The versions are those of the rule; of the policy (its revision) where that is all changed, or
    an override.
    """

    author: str
    note: str = ""
    versions: Collection[int] | AnyVersion | None = None
    is_new: bool = False
    """Whether there must be nothing yet."""


def check_rule_version(newest: Revision, rule_id: str, request: EditRequest) -> None:
    """Raise `StaleVersionError` unless a rule is at a version that *request* names."""
    is_there = rule_id in rules_by_id(newest.document)
    version = newest.versions.get(rule_id, newest.number) if is_there else None
    _check_version(f"the rule {shown(rule_id)}", version, request)


def check_revision(newest: Revision, request: EditRequest) -> None:
    """The same of the policy."""
    is_first = newest.number == 0 and request.is_new
    _check_version("the policy", None if is_first else newest.number, request)


def check_pair_version(
    newest: Revision, rule_id: str, candidate: str | None, request: EditRequest
) -> None:
    """The same of a rule and its *candidate*, if it has one: the greater version of the two. There
    is something if there is a candidate."""
    if request.is_new and candidate is not None:
        told = f"the rule {shown(rule_id)} has a candidate already, {shown(candidate)}"
        raise StaleVersionError(told)
    if request.versions in (None, "any"):
        return
    names = [rule_id, *([] if candidate is None else [candidate])]
    version = max(newest.versions.get(name, newest.number) for name in names)
    _check_version(f"the rule {shown(rule_id)} with its candidate", version, request)


def _check_version(what: str, version: int | None, request: EditRequest) -> None:
    if request.is_new and version is not None:
        raise StaleVersionError(f"{what} exists already, with version {version}")
    if request.versions is None:
        return
    if version is None:
        raise StaleVersionError(f"{what} does not exist, so it has no version")
    if request.versions != "any" and version not in request.versions:
        named = ", ".join(str(one) for one in sorted(request.versions)) or "none"
        raise StaleVersionError(f"{what} has version {version} now; found {named}")


TRIES: Final = 10
"""How often an edit is made again after somebody else's."""
_STEP_ASIDE: Final = 0.05
"""Seconds that are waited for others at the most, times the number of tries so far."""
_FAR_BACK: Final = 20
"""How many changes of a rule are looked at for the mode that it was in."""


class UnknownModeError(ControlError):
    """Nobody remembers which mode a rule was in before it was switched off."""


@dataclass(frozen=True, slots=True)
class Edited:
    """What came of an edit: the revision that is newest now; *is_changed* if it is a new one.

    *warnings* are about the policy as it is now.
    """

    revision: Revision
    is_changed: bool
    warnings: tuple[Problem, ...] = ()

    def version_of(self, rule_id: str) -> int:
        """The version of a rule now."""
        return self.revision.versions.get(rule_id, self.revision.number)


class PolicyEditor:
    """Edits what *source* keeps. Safe among threads; edits run one at a time.

    *memory* is that of the watcher, if there is one: what one has validated the other knows.
    *enforced* returns the revision that is in force.

    Raises `PolicyError` for what is no policy, `StaleVersionError`, `UnknownRuleError`,
    `ConflictError` if others keep changing it, and what the source raises.
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
        """Raise `StaleVersionError` unless the policy is at a version that *request* names."""
        check_revision(self.head(), request)

    def rule(self, rule_id: str) -> tuple[int, Data]:
        """The version and the data of a rule. Raises `UnknownRuleError`."""
        newest = self.head()
        return newest.versions.get(rule_id, newest.number), _rule_in(newest.document, rule_id)

    def rules(
        self, wanted: RuleFilter | None = None, *, offset: int = 0, limit: int = 100
    ) -> RulePage:
        """The rules that are *wanted*, *limit* of them after *offset*."""
        return rules_in(self.head(), wanted or RuleFilter(), offset=offset, limit=limit)

    def put_rule(self, rule_id: str, data: Mapping[str, Any], request: EditRequest) -> Edited:
        """Make *data* (without its id) the rule *rule_id*, a new one if there is none."""
        own = plain_data(data)

        def edit(newest: Revision) -> Data:
            check_rule_version(newest, rule_id, request)
            return with_rule(newest.document, rule_id, own)

        return self._change(edit, request, f"put rule {rule_id}")

    def delete_rule(self, rule_id: str, request: EditRequest) -> Edited:
        """Remove a rule, its candidate, and what overrides their counters."""

        def edit(newest: Revision) -> Data:
            _rule_in(newest.document, rule_id)
            check_rule_version(newest, rule_id, request)
            return without_rule(newest.document, rule_id)

        return self._change(edit, request, f"delete rule {rule_id}")

    def put_candidate(self, rule_id: str, data: Mapping[str, Any], request: EditRequest) -> Edited:
        """Try *data* in shadow beside the rule *rule_id*, in place of what is tried there now.

        The version is the greater one of the rule and of that.
        """
        own = plain_data(data)

        def edit(newest: Revision) -> Data:
            _check_pair(newest, rule_id, request)
            return with_candidate(newest.document, rule_id, own)

        return self._change(edit, request, f"try a candidate of {rule_id}")

    def adopt(self, rule_id: str, request: EditRequest) -> Edited:
        """Put what is tried beside a rule in its place. Raises `UnknownRuleError` if nothing is.

        The version is the greater one of the two.
        """

        def edit(newest: Revision) -> Data:
            _check_pair(newest, rule_id, request)
            return with_adopted(newest.document, rule_id)

        return self._change(edit, request, f"adopt the candidate of {rule_id}")

    def replace(self, document: Mapping[str, Any], request: EditRequest) -> Edited:
        """Put *document* in the place of all there is."""
        own = plain_data(document)

        def edit(newest: Revision) -> Data:
            check_revision(newest, request)
            return dict(own)

        return self._change(edit, request, "replace the policy", head=self.source.head)

    def rollback(self, number: int, request: EditRequest) -> Edited:
        """Make the document of revision *number* the newest again, but for overrides that have
        ended meanwhile. Raises `UnknownRevisionError`."""
        before = self.source.at(number)

        def edit(newest: Revision) -> Data:
            check_revision(newest, request)
            return plain_data(dict(before.document))  # type: ignore[no-any-return]  # a document

        return self._change(edit, request, f"roll back to revision {number}")

    def switch_off(self, rule_id: str, request: EditRequest) -> Edited:
        """Take a rule out of force, and leave all else as it is: the kill switch."""
        return self._change(_mode_edit(rule_id, "off", request), request, f"switch off {rule_id}")

    def switch_on(self, rule_id: str, request: EditRequest, *, mode: str | None = None) -> Edited:
        """Put a rule in force again in *mode*; if it is not said, in the one that it was in.

        That is looked up in the history; `UnknownModeError` if it does not go back so far.
        """
        if mode is None:
            mode = self._mode_before(rule_id)
        what = f"switch {rule_id} to {mode}"
        return self._change(_mode_edit(rule_id, mode, request), request, what)

    def block(self, rule_id: str, key: str, *, until_ns: int, request: EditRequest) -> Edited:
        """Refuse everything that counts against *key* under a rule, until then."""
        until = instant_text(until_ns)
        override = {"rule": rule_id, "key": key, "block": True, "until": until}
        return self._override(override, request, f"block {key} under {rule_id} until {until}")

    def grant(
        self, rule_id: str, key: str, *, extra: int, until_ns: int, request: EditRequest
    ) -> Edited:
        """Make every limit of a rule larger by *extra* for *key*, until then."""
        until = instant_text(until_ns)
        override = {"rule": rule_id, "key": key, "extra": extra, "until": until}
        what = f"grant {extra} more to {key} under {rule_id} until {until}"
        return self._override(override, request, what)

    def remove_override(self, rule_id: str, key: str, request: EditRequest) -> Edited:
        """End what is otherwise for *key* under a rule. Raises `UnknownOverrideError`."""

        def edit(newest: Revision) -> Data:
            check_revision(newest, request)
            return without_override(newest.document, rule_id, key)

        return self._change(edit, request, f"end the override of {key} under {rule_id}")

    def preview(self, document: Mapping[str, Any]) -> Preview:
        """What `replace` would change."""
        return self._previewed(self.head(), plain_data(document))

    def preview_rules(self, rules: Mapping[str, Mapping[str, Any] | None]) -> Preview:
        """What it would change to put *rules*, by their ids; None deletes."""
        newest = self.head()
        document = dict(newest.document)
        for rule_id, data in rules.items():
            if data is not None:
                document = with_rule(document, rule_id, plain_data(data))
            elif rule_id in rules_by_id(document) or rule_id not in rules_by_id(newest.document):
                document = without_rule(document, rule_id)  # or its rule has taken it along
        return self._previewed(newest, document)

    def preview_candidate(self, rule_id: str, data: Mapping[str, Any]) -> Preview:
        """What `put_candidate` would change."""
        newest = self.head()
        return self._previewed(newest, with_candidate(newest.document, rule_id, plain_data(data)))

    def preview_adoption(self, rule_id: str) -> Preview:
        """What `adopt` would change."""
        newest = self.head()
        return self._previewed(newest, with_adopted(newest.document, rule_id))

    def _previewed(self, newest: Revision, document: Data) -> Preview:
        check_size(document)
        document = without_expired(document, self._clock())
        return preview_of(newest, document, self._memory)

    def _override(self, override: Data, request: EditRequest, what: str) -> Edited:
        def edit(newest: Revision) -> Data:
            check_revision(newest, request)
            return with_override(newest.document, override)

        return self._change(edit, request, what)

    def _change(
        self,
        edit: Callable[[Revision], Data],
        request: EditRequest,
        what: str,
        *,
        head: Callable[[], Revision] | None = None,
    ) -> Edited:
        """Make *edit*, and again if somebody else was quicker."""
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
                    # Whoever was quicker may have more to do: not all again at once.
                    time.sleep(random.uniform(0, tries * _STEP_ASIDE))  # noqa: S311
                else:
                    return Edited(revision, is_changed=True, warnings=warnings)
        raise ConflictError(f"somebody else changed the policy {TRIES} times meanwhile; try again")

    def _next(
        self, newest: Revision, document: Data, request: EditRequest, what: str
    ) -> tuple[Revision, tuple[Problem, ...]]:
        """The revision after *newest*, checked, with the warnings about it."""
        now_ns = self._clock()
        document = without_expired(document, now_ns)
        check_size(document)
        examined = examine_policy_data(document, memory=self._memory)
        if examined.policy is None:
            raise PolicyError(examined.problems)
        number = newest.number + 1
        if what in _WHOLE:
            what = f"{what}: {summary_of(newest.document, document)}"
        change = Change(request.author, now_ns, what, request.note)
        versions = versions_after(newest, document, number)
        parsed = Parsed(examined.policy, examined.problems)
        return Revision(number, document, versions, change, parsed), examined.problems

    def _mode_before(self, rule_id: str) -> str:
        """The mode of a rule before it was switched off; "enforce" or "shadow"."""
        revision = self.head()
        for _ in range(_FAR_BACK):
            rule = rules_by_id(revision.document).get(rule_id)
            if rule is None:
                break
            if mode_of(rule) != "off":
                return mode_of(rule)
            changed_at = revision.versions.get(rule_id, revision.number)
            try:
                revision = self.source.at(changed_at - 1)
            except UnknownRevisionError:
                break
        if rule_id not in rules_by_id((self.head()).document):
            raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
        told = f"the history does not say which mode the rule {shown(rule_id)} was in before"
        raise UnknownModeError(f"{told}; say enforce or shadow")


_WHOLE: Final = ("replace the policy",)
_USUAL: Final = "enforce"
"""The mode of a rule that does not say one."""


def _mode_edit(rule_id: str, mode: str, request: EditRequest) -> Callable[[Revision], Data]:
    def edit(newest: Revision) -> Data:
        rule = _rule_in(newest.document, rule_id)
        check_rule_version(newest, rule_id, request)
        if mode_of(rule) == mode:
            return dict(newest.document)
        bare = {name: value for name, value in rule.items() if name != "mode"}
        return with_rule(
            newest.document, rule_id, bare if mode == _USUAL else {**bare, "mode": mode}
        )

    return edit


def _rule_in(document: Mapping[str, Any], rule_id: str) -> Data:
    rule = rules_by_id(document).get(rule_id)
    if rule is None:
        raise UnknownRuleError(f"there is no rule {shown(rule_id)}")
    return rule


def _check_pair(newest: Revision, rule_id: str, request: EditRequest) -> None:
    _rule_in(newest.document, rule_id)
    check_pair_version(newest, rule_id, candidate_id(newest.document, rule_id), request)
