"""Which rules are for a request, at a cost that does not grow with the rules that are not."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.rules.matching.conditions import TIER, Enquiry, conditions_of
from headgate.rules.matching.path import readings
from headgate.rules.matching.pattern import compiled
from headgate.rules.matching.shelf import Candidate, Shelf
from headgate.rules.matching.trie import Trie

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.matching.conditions import Condition, Value
    from headgate.rules.matching.trie import Node
    from headgate.rules.model import Policy, Rule
    from headgate.rules.request import Request

    Tiers = frozenset[Value] | None

EVERYWHERE = "/**"

REMEMBERED: Final = 4096
"""For how many paths it is remembered which rules may be for them: most requests are for a few."""

LONGEST_REMEMBERED: Final = 256
"""Longer paths are looked up anew, so that what is remembered stays small."""

FEW: Final = 16
"""Of so many rules that a path leads to it is looked up beforehand what they ask for."""


class Place(NamedTuple):
    """What a path leads to.

    *rules* are for all requests there; None if some ask for more. Of a *few* it is known what each
    asks for: of which tiers (None: of any), and what else, and the *enquiry* is about that alone;
    None if nothing else is asked. Of many it is known only on which *shelves* they are.
    """

    rules: tuple[Rule, ...] | None
    few: tuple[tuple[Rule, Tiers, tuple[Condition, ...]], ...] | None
    enquiry: Enquiry | None
    asks_tier: bool = False
    shelves: tuple[Shelf, ...] = ()


class Matcher:
    """The rules of a policy, compiled: a trie by path, and where patterns end, a shelf by the rest.

    What it says never changes after it is made: any number of threads may use it.
    """

    __slots__ = ("_enquiry", "_places", "_rules", "_trie")

    def __init__(self, policy: Policy) -> None:
        self._rules = policy.rules
        self._places: dict[str, Place] = {}
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
        path = request.path
        place = self._places.get(path) or self._place(path)
        if place.rules is not None:
            return place.rules
        if place.few is not None:
            return _fitting(place, request, found)
        facts = self._enquiry.facts(request, found)
        positions: set[int] = set()
        for shelf in place.shelves:
            shelf.gather(facts, positions)
        rules = self._rules
        return tuple([rules[position] for position in sorted(positions)])

    def matching_each(
        self, request: Request, found: Mapping[str, str | None]
    ) -> list[tuple[Rule, ...]]:
        """The same for each reading of the path by itself."""
        facts = self._enquiry.facts(request, found)
        ways = []
        for segments in readings(request.path):
            positions: set[int] = set()
            for shelf in self._trie.walk(segments):
                shelf.gather(facts, positions)
            ways.append(tuple([self._rules[position] for position in sorted(positions)]))
        return ways

    def _place(self, path: str) -> Place:
        shelves = {shelf for segments in readings(path) for shelf in self._trie.walk(segments)}
        place = self._place_of(tuple(shelves))
        if len(path) <= LONGEST_REMEMBERED:
            if len(self._places) >= REMEMBERED:
                self._places.clear()
            self._places[path] = place
        return place

    def _place_of(self, shelves: tuple[Shelf, ...]) -> Place:
        if any(shelf.sorted for shelf in shelves) or sum(len(s.open) for s in shelves) > FEW:
            return Place(None, None, None, shelves=shelves)
        found = {each.position: each.conditions for shelf in shelves for each in shelf.open}
        few = tuple([(self._rules[at], *_tiers_apart(found[at])) for at in sorted(found)])
        if not any(found.values()):
            return Place(tuple([rule for rule, _, _ in few]), few, None)
        asking = [rule.match for rule, _, conditions in few if conditions]
        asks_tier = any(tiers is not None for _, tiers, _ in few)
        return Place(None, few, Enquiry(asking) if asking else None, asks_tier)


def _tiers_apart(conditions: tuple[Condition, ...]) -> tuple[Tiers, tuple[Condition, ...]]:
    """Tiers, and all other conditions: rules that ask for a tier and nothing else are common."""
    tiers = next((each.values for each in conditions if each.subject == TIER), None)
    return tiers, tuple([each for each in conditions if each.subject != TIER])


def _fitting(place: Place, request: Request, found: Mapping[str, str | None]) -> tuple[Rule, ...]:
    """Those of the few rules of *place* that are for *request*."""
    facts = {} if place.enquiry is None else place.enquiry.facts(request, found)
    tier = found.get(TIER) if place.asks_tier else None
    fitting = []
    for rule, tiers, conditions in place.few or ():
        if tiers is not None and tier not in tiers:
            continue
        for condition in conditions:
            if not condition.holds(facts):
                break
        else:
            fitting.append(rule)
    return tuple(fitting)
