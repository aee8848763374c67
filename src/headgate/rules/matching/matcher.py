"""Which rules are for a request, at a cost that does not grow with the rules that are not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from headgate.rules.matching.conditions import Enquiry, conditions_of
from headgate.rules.matching.path import readings
from headgate.rules.matching.pattern import compiled
from headgate.rules.matching.shelf import Candidate, Shelf
from headgate.rules.matching.trie import Trie

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.matching.trie import Node
    from headgate.rules.model import Policy, Rule
    from headgate.rules.request import Request

EVERYWHERE = "/**"


class Matcher:
    """The rules of a policy, compiled: a trie by path, and where patterns end, a shelf by the rest.

    It is not changed after it is made: any number of threads may use it.
    """

    __slots__ = ("_enquiry", "_rules", "_trie")

    def __init__(self, policy: Policy) -> None:
        self._rules = policy.rules
        active = [(at, rule) for at, rule in enumerate(policy.rules) if rule.mode != "off"]
        self._enquiry = Enquiry(rule.match for _, rule in active)
        self._trie: Trie[Shelf] = Trie()
        ending: dict[Node[Shelf], list[Candidate]] = defaultdict(list)
        for position, rule in active:
            candidate = Candidate(position, conditions_of(rule.match))
            patterns = map(compiled, rule.match.endpoints or (EVERYWHERE,))
            for node in {self._trie.place(pattern) for pattern in patterns}:
                ending[node].append(candidate)
        for node, candidates in ending.items():
            node.content = Shelf.of(candidates)

    def matching(self, request: Request, found: Mapping[str, str | None]) -> tuple[Rule, ...]:
        """The rules for *request* that are in force, in the order of the policy.

        *found* is what identity found of the caller, by name; `tier` is compared with
        `Match.tiers`. A rule for any reading of the path counts (see `path`).
        """
        facts = self._enquiry.facts(request, found)
        positions: set[int] = set()
        for segments in readings(request.path):
            for shelf in self._trie.walk(segments):
                shelf.gather(facts, positions)
        rules = self._rules
        return tuple([rules[position] for position in sorted(positions)])
