"""Find the rules for a request, at a cost that does not grow with the rules that do not match."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headgate.policy.conditions import (
    FactReader,
    conditions_of,
)
from headgate.policy.model import GLOBAL, PRIORITIES, Policy, Rule
from headgate.policy.path import (
    ANY,
    ONE,
    ROUTE,
    Pattern,
    compiled,
    readings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headgate.engine.plan import Priority
    from headgate.engine.request import Request
    from headgate.policy.conditions import Condition, Facts, Value
    from headgate.policy.model import Match, PriorityClass
    from headgate.policy.path import Segments


# Rules for the same paths, sorted by their other conditions.
#
# Each rule stands where its most selective condition has it: the one whose values the fewest others
# share. So of ten thousand rules for as many hosts, a request meets those of its own host. What
# shares a value is sorted again by the other conditions, until few are left.


FEW: Final = 4
"""So many rules are tried one by one."""

MOST_PLACES: Final = 64
"""In so many places a rule stands at most, on the average. One for each value of each condition it
is sorted by would be too many, where several have many."""

Shares = Counter[tuple[str, "Value"]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The rule at *position* in its policy, and the conditions that are left to test."""

    position: int
    conditions: tuple[Condition, ...]

    def without(self, condition: Condition) -> Candidate:
        left = tuple(each for each in self.conditions if each is not condition)
        return Candidate(self.position, left)


@dataclass(slots=True, eq=False)
class Shelf:
    """Rules: those to try whatever comes, and others by subject and value."""

    open: tuple[Candidate, ...]
    sorted: dict[str, dict[Value, Shelf]]
    has_conditions: bool = field(init=False)
    """True if some rule depends on facts of the request."""

    def __post_init__(self) -> None:
        self.has_conditions = bool(self.sorted) or any(one.conditions for one in self.open)

    @classmethod
    def of(cls, candidates: Sequence[Candidate], room: float | None = None) -> Shelf:
        """Sort *candidates*; *room* is how many places they may take, several for each value."""
        room = MOST_PLACES * len(candidates) if room is None else room
        if len(candidates) <= FEW:
            return cls(tuple(candidates), {})
        shares: Shares = Counter(
            (condition.subject, value)
            for candidate in candidates
            for condition in candidate.conditions
            for value in condition.values
        )
        unsorted: list[Candidate] = []
        places = 0
        groups: dict[str, dict[Value, list[Candidate]]] = defaultdict(lambda: defaultdict(list))
        for candidate in candidates:
            condition = _most_selective(candidate.conditions, shares, len(candidates))
            if condition is None:
                unsorted.append(candidate)
                continue
            places += len(condition.values)
            left = candidate.without(condition)
            for value in condition.values:
                groups[condition.subject][value].append(left)
        if places > room:
            return cls(tuple(candidates), {})
        share = room / max(places, 1)
        return cls(tuple(unsorted), {name: _shelves(each, share) for name, each in groups.items()})

    def gather(self, facts: Facts, positions: set[int]) -> None:
        """Add the positions of the rules that the facts fit."""
        for candidate in self.open:
            for condition in candidate.conditions:
                if condition.values.isdisjoint(facts.get(condition.subject, ())):
                    break
            else:
                positions.add(candidate.position)
        if self.sorted:
            for subject, values in facts.items():
                shelves = self.sorted.get(subject)
                if shelves is not None:
                    for value in values:
                        if value in shelves:
                            shelves[value].gather(facts, positions)


def _shelves(groups: dict[Value, list[Candidate]], share: float) -> dict[Value, Shelf]:
    return {value: Shelf.of(group, share * len(group)) for value, group in groups.items()}


def _most_selective(
    conditions: Iterable[Condition], shares: Shares, total: int
) -> Condition | None:
    """The condition whose most common value is the rarest; None if all the rules have it."""
    best, best_share = None, total
    for condition in conditions:
        subject = condition.subject
        share = max((shares[subject, value] for value in condition.values), default=0)
        if share < best_share:
            best, best_share = condition, share
    return best


# Where patterns end, found by walking a path: a trie with edges for words, `*` and `**`.
#
# A walk keeps the set of nodes that the segments so far lead to, as one does for a nondeterministic
# automaton: its effort is the length of the path times the nodes it stands on at once, whatever the
# patterns, and nodes it does not come to cost nothing. A `**` at the end of a pattern is done with
# as soon as it is reached; only one with more behind it goes along.


T = TypeVar("T")


class Node(Generic[T]):
    """The continuations of a prefix of patterns, and the *content* of those that end here.

    *deep* is the node behind `**`; on such a node the walk stays, whatever comes.
    """

    __slots__ = ("content", "deep", "one", "words")

    def __init__(self) -> None:
        self.words: dict[str, Node[T]] = {}
        self.one: Node[T] | None = None
        self.deep: Node[T] | None = None
        self.content: T | None = None

    def child(self, segment: str) -> Node[T]:
        """The node that *segment* of a pattern leads to, made if need be."""
        if segment == ANY:
            self.deep = self.deep or Node()
            return self.deep
        if segment == ONE:
            self.one = self.one or Node()
            return self.one
        return self.words.setdefault(segment, Node())

    @property
    def goes_on(self) -> bool:
        return bool(self.words) or self.one is not None


class Trie(Generic[T]):
    """Contents, by patterns. Filled first, through `place`; then only walked."""

    def __init__(self) -> None:
        self._root: Node[T] = Node()

    def place(self, pattern: Pattern) -> Node[T]:
        """The node where *pattern* ends; the same for the same pattern."""
        node = self._root
        for segment in pattern.segments:
            node = node.child(segment)
        return node

    def walk(self, path: Segments) -> set[T]:
        """The contents of all patterns that *path* fits.

        A node other than one behind `**` is reached through its parent only, so that no step
        comes to it twice; those are kept apart, as a set, for the walk never leaves them.
        """
        found: set[T] = set()
        staying: set[Node[T]] = set()
        nodes = [self._root]
        _look_deep(nodes, staying, found)
        for segment in path:
            reached: list[Node[T]] = []
            for node in [*nodes, *staying] if staying else nodes:
                word = node.words.get(segment)
                if word is not None:
                    reached.append(word)
                if node.one is not None:
                    reached.append(node.one)
            nodes = reached
            if nodes:
                _look_deep(nodes, staying, found)
            elif not staying:
                return found
        found.update([node.content for node in nodes if node.content is not None])
        return found


def _look_deep(nodes: list[Node[T]], staying: set[Node[T]], found: set[T]) -> None:
    """Follow the `**` behind *nodes*."""
    for node in nodes:
        deep = node.deep
        if deep is not None:
            if deep.content is not None:
                found.add(deep.content)
            if deep.goes_on:
                staying.add(deep)


EVERYWHERE: Final = "/**"

MAX_PATHS: Final = 4096
"""Paths whose shelves are cached: most requests are for a few."""

MAX_PATH: Final = 256
"""The longest path that is cached, so that the cache stays small."""


class Matcher:
    """The rules of a policy, compiled: a trie by path, and where patterns end, a shelf by the rest.

    It never changes after it is made: any number of threads may use it.
    """

    __slots__ = ("_facts", "_rules", "_shelves", "_trie")

    def __init__(self, policy: Policy) -> None:
        self._rules = policy.rules
        self._shelves: dict[str, tuple[Shelf, ...]] = {}
        active = [(at, rule) for at, rule in enumerate(policy.rules) if rule.mode != "off"]
        self._facts = FactReader(rule.match for _, rule in active)
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
        shelves = self._shelves.get(path)
        if shelves is None:
            ways = readings(path)
            shelves = tuple({shelf for segments in ways for shelf in self._trie.walk(segments)})
            if len(path) <= MAX_PATH:
                if len(self._shelves) >= MAX_PATHS:
                    self._shelves.clear()
                self._shelves[path] = shelves
        return self._fitting(shelves, request, found)

    def matching_each(
        self, request: Request, found: Mapping[str, str | None]
    ) -> list[tuple[Rule, ...]]:
        """The same for each reading of the path by itself."""
        ways = map(self._trie.walk, readings(request.path))
        return [self._fitting(shelves, request, found) for shelves in ways]

    def _fitting(
        self, shelves: Iterable[Shelf], request: Request, found: Mapping[str, str | None]
    ) -> tuple[Rule, ...]:
        facts: Facts | None = None
        positions: set[int] = set()
        for shelf in shelves:
            if facts is None and shelf.has_conditions:
                facts = self._facts.facts(request, found)
            shelf.gather(facts or {}, positions)
        return tuple([self._rules[position] for position in sorted(positions)])


# The rules for a caller, whatever it requests: conditions on the caller, and on the request.


class CallerMatcher:
    """Those of *rules* that decide, sorted by their conditions on the caller.

    It is not changed after it is made: any number of threads may use it.
    """

    __slots__ = ("_facts", "_rules", "_shelf")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rule for rule in rules if rule.mode == "enforce")
        matches = [_of_caller(rule.match) for rule in self._rules]
        self._facts = FactReader(matches)
        self._shelf = Shelf.of([Candidate(n, conditions_of(one)) for n, one in enumerate(matches)])

    def matching(self, request: Request, found: Mapping[str, str | None]) -> tuple[Rule, ...]:
        """The rules for some request of the caller who made *request*, in their order.

        Its path and its method do not matter. *found* is what identity found of the caller.
        """
        positions: set[int] = set()
        self._shelf.gather(self._facts.facts(request, found), positions)
        return tuple([self._rules[position] for position in sorted(positions)])


def only_endpoint(match: Match) -> str | None:
    """The one endpoint that requests can have which *match* is for, as `endpoints_of` has it; None
    if there may be several."""
    routes = [values for name, values in match.attributes if name == ROUTE]
    if routes:
        named = {route for values in routes for route in values or ()}
        return named.pop() if len(named) == 1 else None
    patterns = {compiled(endpoint).segments for endpoint in match.endpoints}
    if len(patterns) != 1:
        return None
    segments = patterns.pop()
    return None if ONE in segments or ANY in segments else "/" + "/".join(segments)


def only_method(match: Match) -> str | None:
    """The one method, in upper case, that *match* names; None if it names several or none.

    GET and HEAD are one: they are counted together.
    """
    named = set(map(str.upper, match.methods))
    if "GET" in named:
        named.discard("HEAD")
    return named.pop() if len(named) == 1 else None


def _of_caller(match: Match) -> Match:
    """The conditions of *match* on the caller. The route is a condition like the endpoint."""
    attributes = tuple(one for one in match.attributes if one[0] != ROUTE)
    return replace(match, endpoints=(), methods=(), attributes=attributes)


# Which class a request is of, at a cost that does not grow with the classes it is not of.
#
# Where servers read a path in several ways, a rule is for a request if it is for any of them. To
# matter more is a privilege, though: of several readings the one that matters least counts, so that
# no caller gets ahead by the spelling of a path.


USUAL: Final[Priority] = "default"
"""The class of requests that no entry is for."""


class Classifier:
    """The priorities of a policy, compiled. Any number of threads may use it."""

    __slots__ = ("_classes", "_matcher")

    def __init__(self, priorities: Sequence[PriorityClass]) -> None:
        self._classes: dict[str, Priority] = {}
        rules = []
        for position, one in enumerate(priorities):
            self._classes[str(position)] = one.priority
            rules.append(Rule(str(position), one.match, (GLOBAL,), {}))
        self._matcher = Matcher(Policy(tuple(rules)))

    def of(self, request: Request, found: Mapping[str, str | None]) -> Priority:
        """The class of *request*: the first that fits; *found* as in `Matcher.matching`."""
        ways = self._matcher.matching_each(request, found)
        return max(map(self._first, ways), key=PRIORITIES.index)

    def _first(self, fitting: tuple[Rule, ...]) -> Priority:
        return self._classes[fitting[0].id] if fitting else USUAL
