"""What was read before is not read again, and nobody can tell from what comes out."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.policy import document, loader
from headgate.policy.loader import examine_policy_data
from headgate.policy.model import Override
from headgate.policy.policy_document import RuleDocument
from headgate.policy.rule_cache import RuleCache


def rule(name: str = "a", limit: str = "5/s", **more: Any) -> dict[str, Any]:
    return {"id": name, "key_by": "ip", "limit": limit, **more}


def policy(*rules: object, **more: Any) -> dict[str, Any]:
    return {"version": 1, "rules": list(rules), **more}


def grant(**more: Any) -> dict[str, Any]:
    return {"rule": "a", "key": "k", "extra": 1, "until": "2026-01-01T00:00:00Z", **more}


TIERS = {"tier": {"header": "x-tier"}}
SEQUENCE: tuple[object, ...] = (
    policy(rule("a"), rule("b", "2/s")),
    policy(rule("a"), rule("b", "3/s")),
    policy(rule("b", "3/s"), rule("a")),
    policy(rule("a"), rule("a")),  # an id is taken
    policy(rule("a"), rule("c")),  # twins
    policy(rule("c"), rule("a")),
    policy(rule("a", limitt="1/s"), rule("b", "3/s")),  # an unknown field
    policy(rule("a", mode="off"), rule("b", "3/s")),  # a warning
    policy(rule("b", "3/s"), rule("a", mode="off")),
    policy(rule("a", match={"tier": "gold"}), identity=TIERS),
    policy(rule("a", match={"tier": "gold"})),
    policy(rule("a"), identity={"tier": {"heder": "x"}}),
    policy(rule("a"), overrides=[grant(until="2026-01-01")]),
    policy(rule("a"), overrides=[grant(), grant(key="other")]),
    policy(rule("a"), overrides=[grant(), grant()]),  # twice
    policy(rule("a", limit="1000000000000/s"), overrides=[grant(extra=10**15)]),
    policy(rule("a"), overrides=[grant(extra=10**15)]),
    policy(rule("b"), overrides=[grant()]),  # no such rule
    policy(rule("a"), overrides=[None, "a", {}]),
    policy(rule("a"), overrides=None),
    policy(rule("a", description=1)),
    policy(rule("a", description="1")),
    policy({1: "a"}, None, "a", []),
    policy({"1": "a"}),
    {"version": 1, "rules": "none"},
    {"version": 2, "rules": [rule("a")]},
    policy(),
    [],
    None,
)


@pytest.mark.parametrize("max_characters", [4_000_000, 150, 0])
def test_it_is_as_if_nothing_were_remembered(max_characters: int) -> None:
    memory = RuleCache(max_characters=max_characters)
    for data in (*SEQUENCE, *reversed(SEQUENCE), *SEQUENCE):
        assert examine_policy_data(data, cache=memory) == examine_policy_data(data)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of rules and the keys of overrides, as they are read."""
    found: list[str] = []
    own: Any = vars(loader)["read"]

    def counting(kind: Any, *others: Any) -> Any:
        made = own(kind, *others)
        if kind in (RuleDocument, Override):
            found.append(made.id if kind is RuleDocument else made.key)
        return made

    monkeypatch.setattr(loader, "read", counting)
    return found


def test_a_rule_that_was_read_is_not_read_again(loaded: list[str]) -> None:
    memory = RuleCache()
    examine_policy_data(policy(rule("a"), rule("b", "2/s"), rule("c", "3/s")), cache=memory)
    examine_policy_data(policy(rule("a"), rule("b", "9/s"), rule("c", "3/s")), cache=memory)
    assert loaded == ["a", "b", "c", "b"]
    examine_policy_data(policy(rule("a"), identity=TIERS), cache=memory)
    assert loaded[4:] == ["a"]


def test_an_override_is_read_again_only_if_its_rule_has_changed(loaded: list[str]) -> None:
    memory = RuleCache()
    others = rule("b", "2/s")
    first = policy(rule("a"), others, overrides=[grant(key="1"), grant(key="2", rule="b")])
    second = policy(rule("a", "9/s"), others, overrides=[*first["overrides"], grant(key="3")])
    examine_policy_data(first, cache=memory)
    assert loaded == ["a", "b", "1", "2"]
    examine_policy_data(second, cache=memory)
    assert loaded[4:] == ["a", "1", "3"]


@pytest.mark.parametrize("most", range(1, 50, 3))
def test_bounds_are_kept_as_if_all_were_read(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    rules = rule("a", match={"headers": {"x": ["1", "2"]}}), rule("b", limit="2/s")
    data = policy(*rules, overrides=[grant()])
    memory = RuleCache()
    examine_policy_data(data, cache=memory)
    monkeypatch.setattr(document, "MAX_NODES", most)
    assert examine_policy_data(data, cache=memory) == examine_policy_data(data)
    monkeypatch.setattr(document, "MAX_NODES", 1_000)
    monkeypatch.setattr(document, "MAX_DEPTH", most)
    assert examine_policy_data(data, cache=memory) == examine_policy_data(data)


def test_what_is_too_deep_or_too_long_for_a_text_is_refused_as_ever() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    for odd in (deep, 10**5_000):
        data = policy(rule("a", description=odd))
        memory = RuleCache()
        assert examine_policy_data(data, cache=memory) == examine_policy_data(data)


def test_warnings_that_were_too_many_to_be_told_are_told_later() -> None:
    many = [rule(f"r{number}", f"{number + 1}/s", mode="off") for number in range(250)]
    memory = RuleCache()
    examine_policy_data(policy(*many), cache=memory)
    data = policy(*many[-2:])
    assert examine_policy_data(data, cache=memory) == examine_policy_data(data)
