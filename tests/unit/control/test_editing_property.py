"""Any sequence of edits leaves the document that edits of a plain dictionary leave."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.control.editor import EditRequest, PolicyEditor
from headgate.control.edits import (
    delete_rule,
    put_override,
    put_rule,
    remove_override,
    replace_policy,
    switch_rule,
)
from headgate.control.revision import ControlError
from headgate.control.source import MemorySource
from headgate.policy.fields import instant_text
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.examples import example_count

ADA = EditRequest(author="ada")
IDS = st.sampled_from("abc")
KEYS = st.sampled_from(["ip=1", "ip=2"])
RULES = st.fixed_dictionaries(
    {"key_by": st.sampled_from(["ip", "global"]), "limit": st.sampled_from(["1/s", "2/s"])},
    optional={
        "mode": st.sampled_from(["shadow", "off"]),
        "decide": st.sampled_from(["exact", "quota", "local"]),
        "cost": st.sampled_from([{"after": {"header": "x-tokens"}}, {"after": {"bytes": True}}]),
    },
)
EDITS = st.one_of(
    st.tuples(st.just("put"), IDS, RULES),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("replace"), st.dictionaries(IDS, RULES, max_size=3)),
    st.tuples(st.just("rollback"), st.integers(1, 12)),
    st.tuples(st.just("off"), IDS),
    st.tuples(st.just("block"), IDS, KEYS, st.integers(1, 3)),
    st.tuples(st.just("unblock"), IDS, KEYS),
    st.tuples(st.just("wait"), st.integers(1, 2)),
)


class Model:
    """The same by the shortest way: rules by id, blocks by rule and key, all states that were."""

    def __init__(self) -> None:
        self.rules: dict[str, Any] = {}
        self.blocks: dict[tuple[str, str], int] = {}
        self.past: list[tuple[dict[str, Any], dict[tuple[str, str], int]]] = []

    def edit(self, now: int, verb: str, *given: Any) -> None:
        before = (dict(self.rules), dict(self.blocks))
        getattr(self, f"_{verb}")(now, *given)
        if (self.rules, self.blocks) != before:
            self.blocks = {place: ends for place, ends in self.blocks.items() if ends > now}
            self.past.append((dict(self.rules), dict(self.blocks)))

    def _put(self, _: int, rule: str, data: Any) -> None:
        self.rules[rule] = data

    def _delete(self, _: int, rule: str) -> None:
        self.rules.pop(rule, None)
        self.blocks = {place: ends for place, ends in self.blocks.items() if place[0] != rule}

    def _replace(self, _: int, rules: Any) -> None:
        self.rules, self.blocks = dict(rules), {}

    def _rollback(self, _: int, number: int) -> None:
        if number <= len(self.past):
            rules, blocks = self.past[number - 1]
            self.rules, self.blocks = dict(rules), dict(blocks)

    def _off(self, _: int, rule: str) -> None:
        if rule in self.rules:
            bare = {name: value for name, value in self.rules[rule].items() if name != "mode"}
            self.rules[rule] = {**bare, "mode": "off"}

    def _block(self, now: int, rule: str, key: str, seconds: int) -> None:
        if rule in self.rules:
            self.blocks.pop((rule, key), None)
            self.blocks[rule, key] = now + seconds * SECOND

    def _unblock(self, _: int, rule: str, key: str) -> None:
        self.blocks.pop((rule, key), None)

    def document(self) -> dict[str, Any]:
        rules = [{"id": rule, **data} for rule, data in self.rules.items()]
        overrides = [
            {"rule": rule, "key": key, "block": True, "until": instant_text(ends)}
            for (rule, key), ends in self.blocks.items()
        ]
        return {"version": 1, "rules": rules, **({"overrides": overrides} if overrides else {})}


def edit(editor: PolicyEditor, now: int, verb: str, *given: Any) -> None:
    match verb, *given:
        case "put", rule, data:
            editor.apply(put_rule(rule, data), ADA)
        case "delete", rule:
            editor.apply(delete_rule(rule), ADA)
        case "replace", rules:
            listed = [{"id": rule, **data} for rule, data in rules.items()]
            editor.apply(replace_policy({"version": 1, "rules": listed}), ADA)
        case "rollback", number:
            editor.apply(editor.rollback(number), ADA)
        case "off", rule:
            editor.apply(switch_rule(rule, "off"), ADA)
        case "block", rule, key, seconds:
            editor.apply(put_override(rule, key, block=True, until_ns=now + seconds * SECOND), ADA)
        case "unblock", rule, key:
            editor.apply(remove_override(rule, key), ADA)


def check(edits: list[tuple[Any, ...]]) -> None:
    clock, storage, model = ManualClock(), MemorySource(), Model()
    editor = PolicyEditor(storage, clock=clock)
    for verb, *given_ in edits:
        if verb == "wait":
            clock.advance(given_[0])
            continue
        with suppress(ControlError):  # what is not there: the model leaves it too
            edit(editor, clock(), verb, *given_)
        model.edit(clock(), verb, *given_)
        newest = storage.head()
        assert dict(newest.document) == model.document()
        assert newest.number == len(model.past)
        for rule, version in newest.versions.items():
            assert same_since(rule, version, model)


def same_since(rule: str, version: int, model: Model) -> bool:
    """Whether the rule is what it became in revision *version*, and was otherwise before."""
    now = model.rules[rule]
    since = all(past[0].get(rule) == now for past in model.past[version - 1 :])
    before = model.past[version - 2][0].get(rule) if version > 1 else None
    return since and before != now


@settings(max_examples=example_count(150), deadline=None)
@given(st.lists(EDITS, max_size=12))
def test_edits_are_those_of_a_dictionary(edits: list[tuple[Any, ...]]) -> None:
    check(edits)
