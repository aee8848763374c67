"""Who wants a change, and of which version; whether that is the one that there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headgate.control.documents import rules_by_id
from headgate.control.revision import ControlError
from headgate.rules.reading.tree import shown

if TYPE_CHECKING:
    from collections.abc import Collection

    from headgate.control.revision import Revision

AnyVersion = Literal["any"]
"""In place of versions: there must be something, whatever its version."""


class StaleVersionError(ControlError):
    """The thing is at another version than the one that was named; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Who wants a change, why (*note*), and of which versions: None if it does not matter.

    The versions are those of the rule; of the policy (its revision) where that is all changed, or
    an override.
    """

    author: str
    note: str = ""
    versions: Collection[int] | AnyVersion | None = None
    is_new: bool = False
    """Whether there must be nothing yet."""


def check_rule_version(newest: Revision, rule_id: str, wish: Wish) -> None:
    """Raise `StaleVersionError` unless a rule is at a version that *wish* names."""
    is_there = rule_id in rules_by_id(newest.document)
    version = newest.versions.get(rule_id, newest.number) if is_there else None
    _check_version(f"the rule {shown(rule_id)}", version, wish)


def check_revision(newest: Revision, wish: Wish) -> None:
    """The same of the policy."""
    is_first = newest.number == 0 and wish.is_new
    _check_version("the policy", None if is_first else newest.number, wish)


def check_pair_version(newest: Revision, rule_id: str, candidate: str | None, wish: Wish) -> None:
    """The same of a rule and its *candidate*, if it has one: the greater version of the two. There
    is something if there is a candidate."""
    if wish.is_new and candidate is not None:
        told = f"the rule {shown(rule_id)} has a candidate already, {shown(candidate)}"
        raise StaleVersionError(told)
    if wish.versions in (None, "any"):
        return
    names = [rule_id, *([] if candidate is None else [candidate])]
    version = max(newest.versions.get(name, newest.number) for name in names)
    _check_version(f"the rule {shown(rule_id)} with its candidate", version, wish)


def _check_version(what: str, version: int | None, wish: Wish) -> None:
    if wish.is_new and version is not None:
        raise StaleVersionError(f"{what} exists already, with version {version}")
    if wish.versions is None:
        return
    if version is None:
        raise StaleVersionError(f"{what} does not exist, so it has no version")
    if wish.versions != "any" and version not in wish.versions:
        named = ", ".join(str(one) for one in sorted(wish.versions)) or "none"
        raise StaleVersionError(f"{what} has version {version} now; found {named}")
