"""The test that all targets share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.security.corpus import groups
from tests.support.security.exceptions import known_escapes
from tests.support.security.trial import tried

if TYPE_CHECKING:
    from tests.support.security.trial import Target

GROUPS = groups()


def check(target: Target, group: str) -> None:
    """No identity reaches the app more often than its limit, nor is another one denied for it."""
    outcome = tried(target, GROUPS[group])
    known = known_escapes().get((target.name, group), {})
    found = outcome.escapes | dict.fromkeys(outcome.denied, "denied for the sake of another")
    new = {name: why for name, why in found.items() if name not in known}
    gone = [name for name in known if name not in found]
    assert (new, gone) == ({}, []), f"{target.name}, {group}: new escapes, known ones that are gone"
