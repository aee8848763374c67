"""Which requests are the same to a policy, though their paths differ: `/users/7` and `/users/8`.

A pattern of paths is made of words, `*` and `**`. A segment that no pattern of the policy has as a
word can only fit an asterisk, so it is as good as any other such segment, if no rule counts by
path. Only paths that all servers read in one way are compared: of others nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.matching.path import readings
from headgate.rules.matching.pattern import ANY, ONE, compiled

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from headgate.rules.model import Policy
    from headgate.simulator.traffic import Asked

_BY_PATH: Final = "endpoint"
_OTHER: Final = ""
"""In place of a segment that is no word; no segment is empty."""


class Likeness:
    """Tells whether requests are alike under *policy*."""

    def __init__(self, policy: Policy) -> None:
        rules = [rule for rule in policy.rules if rule.mode != "off"]
        self._counts_by_path = any(_BY_PATH in rule.key_by for rule in rules)
        self._spelt = {word: word for word in _words(policy)}

    def of(self, asked: Asked) -> Hashable | None:
        """The same for requests that are alike; None if nobody can say."""
        if self._counts_by_path:
            return None
        found = readings(asked.path)
        if len(found) != 1:
            return None
        spelt = self._spelt.get
        path = tuple([spelt(segment, _OTHER) for segment in found[0]])
        return asked.method, path, asked.headers, asked.ip, asked.cost


def _words(policy: Policy) -> Iterator[str]:
    """All words in patterns of *policy*."""
    for pattern in _patterns(policy):
        for segment in compiled(pattern).segments:
            if segment not in (ONE, ANY):
                yield segment


def _patterns(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        yield from rule.match.endpoints or ()
        for cost in rule.cost.endpoints:
            yield cost.endpoint
    for one in policy.priorities:
        yield from one.match.endpoints or ()
