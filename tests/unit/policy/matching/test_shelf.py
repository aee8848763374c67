from __future__ import annotations

from headgate.policy.conditions import Condition, Facts
from headgate.policy.matcher import FEW, Candidate, Shelf


def asks(subject: str, *values: str) -> Condition:
    return Condition(subject, frozenset(values))


def shelf(*conditions: tuple[Condition, ...]) -> Shelf:
    return Shelf.of([Candidate(at, each) for at, each in enumerate(conditions)])


def tried(on: Shelf, facts: Facts) -> int:
    """How many candidates a request with *facts* meets."""
    below = (
        group[value]
        for name, group in on.sorted.items()
        for value in facts.get(name, ())
        if value in group
    )
    return len(on.open) + sum(tried(each, facts) for each in below)


def gathered(on: Shelf, facts: Facts) -> set[int]:
    positions: set[int] = set()
    on.gather(facts, positions)
    return positions


def test_of_many_values_a_request_meets_its_own() -> None:
    many = shelf(*((asks("host", f"h{n}"),) for n in range(1000)))
    assert tried(many, {"host": (None, "h7")}) == 1
    assert gathered(many, {"host": (None, "h7")}) == {7}


def test_a_rule_stands_where_it_is_told_apart_best() -> None:
    many = shelf(*((asks("host", "same"), asks("org", f"o{n}")) for n in range(1000)))
    facts: Facts = {"host": ("same",), "org": ("o7",)}
    assert tried(many, facts) == 1
    assert gathered(many, facts) == {7}
    assert gathered(many, {"host": ("other",), "org": ("o7",)}) == set()


def test_what_shares_one_value_is_sorted_by_another() -> None:
    pairs = [(host, org) for host in range(40) for org in range(40)]
    many = shelf(*((asks("host", f"h{host}"), asks("org", f"o{org}")) for host, org in pairs))
    facts: Facts = {"host": ("h3",), "org": ("o5",)}
    assert tried(many, facts) <= FEW
    assert gathered(many, facts) == {pairs.index((3, 5))}


def test_many_subjects_cost_a_request_no_more_than_its_own() -> None:
    many = shelf(*((asks(f"header x-{n}", "v"),) for n in range(1000)))
    assert tried(many, {"header x-5": ("v",)}) == 1
    assert gathered(many, {"header x-5": ("v",), "header x-6": ("w",)}) == {5}


def test_rules_that_ask_the_same_are_all_found() -> None:
    same = shelf(*((asks("tier", "free"),) for _ in range(20)))
    assert gathered(same, {"tier": ("free",)}) == set(range(20))
    assert gathered(same, {"tier": ("paid",)}) == set()


def test_a_condition_that_nothing_fulfils_is_never_met() -> None:
    never = shelf(*((asks("tier"),) for _ in range(20)))
    assert gathered(never, {"tier": ("free",)}) == set()
