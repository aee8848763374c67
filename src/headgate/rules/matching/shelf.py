"""Rules for the same paths, sorted by what else they ask for.

Each rule stands where its most telling condition has it: the one whose values the fewest others
share. So of ten thousand rules for as many hosts, a request meets those of its own host. What
shares a value is sorted again by the other conditions, until few are left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.rules.matching.conditions import Condition, Facts, Value

FEW: Final = 4
"""So many rules are tried one by one."""

MOST_PLACES: Final = 64
"""In so many places a rule stands at most, on the average. One for each value of each condition it
is sorted by would be too many, where several have many."""

Shares = Counter[tuple[str, "Value"]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """The rule at *position* in its policy, and what is left to ask for it."""

    position: int
    conditions: tuple[Condition, ...]

    def without(self, condition: Condition) -> Candidate:
        left = tuple(each for each in self.conditions if each is not condition)
        return Candidate(self.position, left)


@dataclass(frozen=True, slots=True, eq=False)
class Shelf:
    """Rules: those to try whatever comes, and others by subject and value."""

    open: tuple[Candidate, ...]
    sorted: dict[str, dict[Value, Shelf]]

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
            condition = _most_telling(candidate.conditions, shares, len(candidates))
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


def _most_telling(
    conditions: Iterable[Condition], shares: Shares, everybody: int
) -> Condition | None:
    """The condition whose most common value is the rarest; None if all the rules have it."""
    best, best_share = None, everybody
    for condition in conditions:
        subject = condition.subject
        share = max((shares[subject, value] for value in condition.values), default=0)
        if share < best_share:
            best, best_share = condition, share
    return best
