"""Which class a request is of, at a cost that does not grow with the classes it is not of.

Where servers read a path in several ways, a rule is for a request if it is for any of them. To
matter more is a privilege, though: of several readings the one that matters least counts, so that
nobody gets ahead by how a path is spelt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.matching.matcher import LONGEST_REMEMBERED, REMEMBERED, Matcher
from headgate.rules.matching.path import readings
from headgate.rules.model import GLOBAL, Policy, Rule
from headgate.rules.soft import PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headgate.rules.request import Request
    from headgate.rules.soft import Priority, PriorityClass

USUAL: Final[Priority] = "default"
"""The class of requests of which nothing is said."""


class Classifier:
    """The priorities of a policy, compiled. Any number of threads may use it."""

    __slots__ = ("_classes", "_matcher", "_plain")

    def __init__(self, priorities: Sequence[PriorityClass]) -> None:
        self._classes: dict[str, Priority] = {}
        rules = []
        for position, one in enumerate(priorities):
            self._classes[str(position)] = one.priority
            rules.append(Rule(str(position), one.match, (GLOBAL,), {}))
        self._matcher = Matcher(Policy(tuple(rules))) if rules else None
        self._plain: set[str] = set()
        """Paths that are read in one way only."""

    def of(self, request: Request, found: Mapping[str, str | None]) -> Priority:
        """The class of *request*: the first that fits; *found* as in `Matcher.matching`."""
        if self._matcher is None:
            return USUAL
        if request.path in self._plain or self._is_plain(request.path):
            return self._first(self._matcher.matching(request, found))
        ways = self._matcher.matching_each(request, found)
        return max(map(self._first, ways), key=PRIORITIES.index)

    def _first(self, fitting: tuple[Rule, ...]) -> Priority:
        return self._classes[fitting[0].id] if fitting else USUAL

    def _is_plain(self, path: str) -> bool:
        if len(readings(path)) > 1:
            return False
        if len(path) <= LONGEST_REMEMBERED:
            if len(self._plain) >= REMEMBERED:
                self._plain.clear()
            self._plain.add(path)
        return True
