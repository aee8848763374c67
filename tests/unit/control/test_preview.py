"""What would change, and for whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.control.documents import differences, summary_of
from headgate.control.live_counters import FoundCounters, LiveCounter, affected_by
from headgate.control.preview import Preview, preview_of
from headgate.control.revision import Revision

RULE: dict[str, Any] = {"id": "api", "key_by": "ip", "limit": "10/s"}


def document(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "rules": list(rules), **more}


def previewed(after: dict[str, Any], before: dict[str, Any] | None = None) -> Preview:
    old = RULE if before is None else {**RULE, **before}
    new = {**{name: value for name, value in RULE.items() if name not in after}, **after}
    new = {name: value for name, value in new.items() if value is not None}
    return preview_of(Revision(7, document(old)), document(new))


def field(name: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"field": name, "before": before, "after": after}


def changed(rule: str, change: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"rule_id": rule, "change": change, "fields": list(fields)}


class TestDifferences:
    def test_rules_are_added_changed_and_removed(self) -> None:
        old = document({"id": "a", "cost": 1}, {"id": "b", "match": {"tier": "x", "host": "h"}})
        new = document({"id": "b", "match": {"tier": "y", "host": "h"}}, {"id": "c", "cost": 2})
        assert differences(old, new)["rules"] == [
            changed("b", "changed", field("match.tier", "x", "y")),
            changed("c", "added", field("cost", None, 2)),
            changed("a", "removed", field("cost", 1, None)),
        ]

    def test_costs_afterwards_and_how_to_decide_are_told_field_by_field(self) -> None:
        old = document({**RULE, "cost": {"after": {"header": "x", "per": 5}}})
        new = document({**RULE, "cost": {"after": {"bytes": True, "per": 5}}, "decide": "exact"})
        (rule,) = differences(old, new)["rules"]
        assert rule["fields"] == [
            field("cost.after.header", "x", None),
            field("cost.after.bytes", None, after=True),
            field("decide", None, "exact"),
        ]

    def test_another_order_is_a_difference(self) -> None:
        a, b, c = ({"id": name} for name in "abc")
        assert differences(document(a, b), document(b, a))["reordered"]
        assert not differences(document(a, b), document(c, a, b))["reordered"]

    def test_so_are_identity_and_overrides(self) -> None:
        old = document(identity={"fallback": "ip"}, overrides=[{"key": 1}, {"key": 2}])
        new = document(identity={"fallback": "skip"}, overrides=[{"key": 2}, {"key": 3}])
        found = differences(old, new)
        assert found["identity"] == [field("identity.fallback", "ip", "skip")]
        assert found["overrides"] == {"added": [{"key": 3}], "removed": [{"key": 1}]}

    def test_nothing_is_nothing(self) -> None:
        assert differences(document(RULE), document(dict(RULE))) == {
            "rules": [],
            "reordered": False,
            "identity": [],
            "overrides": {"added": [], "removed": []},
            "priority": [],
            "pressure": [],
        }


@pytest.mark.parametrize(
    ("before", "after", "effects"),
    [
        ({}, {"limit": "5/s"}, ["tighter"]),
        ({}, {"limit": "20/s"}, ["looser"]),
        ({}, {"limit": "20/m"}, ["tighter", "looser"]),
        ({}, {"limit": "10/s burst 5"}, ["tighter"]),
        ({}, {"limit": "10/s fixed_window"}, ["algorithm"]),
        ({}, {"limit": "10/s; 100/h"}, ["tighter"]),
        ({"limit": "10/s; 100/h"}, {}, ["looser"]),
        ({}, {"key_by": "global"}, ["counters"]),
        ({}, {"match": {"endpoint": "/x"}}, ["match"]),
        ({}, {"mode": "shadow"}, ["mode"]),
        ({"mode": "off"}, {}, ["mode"]),
        ({}, {"id": "other"}, ["new", "gone"]),
        ({}, {"limit": None, "limits": {"free": "1/s", "default": "10/s"}}, ["tighter"]),
        ({}, {"limit": None, "limits": {"free": "10/s"}}, ["looser"]),
        ({}, {"description": "words"}, []),
        ({}, {"adaptive": {"floor": "20%"}}, ["tighter"]),
        ({"adaptive": {"floor": "20%"}}, {"adaptive": {"floor": "30%"}}, ["looser"]),
        ({"adaptive": {"floor": "20%"}}, {}, ["looser"]),
        ({}, {"limit": None, "fair": {"slots": 5}}, ["algorithm"]),
        ({}, {"limit": None, "shape": {"rate": "10/s", "queue": 9}}, ["algorithm"]),
        ({}, {"limit": None, "shape": {"rate": "10/s", "queue": 5}}, ["algorithm", "tighter"]),
    ],
)
def test_consequences(before: dict[str, Any], after: dict[str, Any], effects: list[str]) -> None:
    found = previewed(after, before)
    assert found.policy is not None, found.problems
    assert [one.effect for one in found.consequences] == effects


def test_who_is_guaranteed_more_slots_or_fewer_is_told() -> None:
    def slots(shares: dict[str, int], *, lends: bool) -> dict[str, Any]:
        terms = {"limit": 9, "share_by": "tier", "shares": shares, "lends": lends}
        return document({"id": "api", "key_by": "ip", "concurrency": terms})

    before, after = {"gold": 4, "free": 2}, {"gold": 6, "new": 1}
    old = Revision(7, slots(before, lends=True))
    found = preview_of(old, slots(after, lends=False))
    assert found.policy is not None, found.problems
    assert [(one.effect, one.message) for one in found.consequences] == [
        ("looser", "gold was guaranteed 4 slots, now 6"),
        ("tighter", "free was guaranteed 2 slots, now none"),
        ("looser", "new was guaranteed no slots, now 1"),
        ("tighter", "others may no longer use idle guaranteed slots"),
    ]


def test_what_is_kept_for_whom_and_who_matters_more_is_told() -> None:
    def slots(kept: dict[str, str], **more: Any) -> dict[str, Any]:
        return document(
            {"id": "api", "key_by": "ip", "fair": {"slots": 9, "reserve": kept}}, **more
        )

    classes = [{"class": "critical", "match": {"endpoint": "/pay"}}]
    old = Revision(7, slots({"critical": "20%"}))
    found = preview_of(old, slots({"critical": "10%", "default": "5%"}, priority=classes))
    assert [(one.effect, one.message) for one in found.consequences] == [
        ("algorithm", "requests queue in another way; waiting requests keep waiting"),
        ("looser", "20% of the slots was reserved for critical requests, now 10%"),
        ("tighter", "nothing of the slots was reserved for default requests, now 5%"),
        ("match", "the priorities of requests change"),
    ]
    assert found.differences["priority"] == [field("priority", None, classes)]


def test_that_pressure_is_told_otherwise_is_told() -> None:
    floored = {**RULE, "adaptive": {"floor": "20%"}}
    old = Revision(7, document(floored, pressure={"latency": "1s"}))
    found = preview_of(old, document(floored, pressure={"latency": "2s"}))
    assert found.differences["pressure"] == [field("pressure.latency", "1s", "2s")]
    assert [(one.rule, one.effect) for one in found.consequences] == [("api", "algorithm")]
    summary = summary_of(old.document, document(floored, pressure={"latency": "2s"}))
    assert summary == "pressure"


def test_a_consequence_is_told_in_words() -> None:
    found = previewed({"limit": "5/s", "mode": "enforce"}, {"mode": "shadow"})
    assert [one.message for one in found.consequences] == [
        "from shadow to enforce: it begins to deny requests",
        "was 10/s, now 5/s",
    ]


def test_what_is_no_policy_is_told_with_what_would_change() -> None:
    found = previewed({"limitt": "5/s"})
    assert found.policy is None
    assert found.consequences == ()
    assert [one["field"] for one in found.differences["rules"][0]["fields"]] == ["limitt"]
    assert any("did you mean" in problem.hint for problem in found.problems)


def test_warnings_are_told() -> None:
    found = previewed({"mode": "off"})
    assert [problem.message for problem in found.problems] == ["the rule is switched off"]


class Counters:
    """A store that can be looked through."""

    def __init__(self, *counters: LiveCounter) -> None:
        self.counters = counters
        self.asked: list[tuple[Any, ...]] = []

    async def find(self, rules: Any, *, most: int, pattern: str | None = None) -> FoundCounters:
        self.asked.append(tuple(rules))
        return FoundCounters(self.counters[:most], has_more=len(self.counters) > most)


def judgements(after: dict[str, Any], used: int, place: int = 0) -> tuple[Any, Any]:
    preview = previewed(after)
    counters = Counters(LiveCounter("api", "ip=1", place, used))
    (one,), _ = asyncio.run(affected_by(preview, counters))
    return one.was_denied, one.would_be_denied


class TestLiveCounters:
    @pytest.mark.parametrize(
        ("after", "used", "expected"),
        [
            ({"limit": "5/s"}, 4, (False, False)),
            ({"limit": "5/s"}, 5, (False, True)),
            ({"limit": "20/s"}, 10, (True, False)),
            ({"limit": "5/s", "mode": "shadow"}, 5, (False, False)),
            ({"limit": "5/s", "key_by": "global"}, 5, (False, False)),
            ({"limit": None, "limits": {"a": "5/s", "b": "50/s"}}, 7, (False, None)),
            ({"limit": None, "limits": {"a": "5/s", "b": "50/s"}}, 50, (True, True)),
        ],
    )
    def test_whom_it_would_refuse(
        self, after: dict[str, Any], used: int, expected: tuple[Any, Any]
    ) -> None:
        assert judgements(after, used) == expected

    def test_those_who_would_be_refused_come_first(self) -> None:
        preview = previewed({"limit": "5/s"})
        counters = Counters(*(LiveCounter("api", f"k{used}", 0, used) for used in (1, 6, 9)))
        found, has_more = asyncio.run(affected_by(preview, counters))
        assert [one.counter.used for one in found] == [9, 6, 1]
        assert not has_more

    def test_only_rules_that_change_are_looked_for(self) -> None:
        counters = Counters(LiveCounter("api", "k", 0, 1))
        assert asyncio.run(affected_by(previewed({"limit": "5/s"}), counters))[0]
        assert asyncio.run(affected_by(previewed({}), counters)) == ((), False)
        assert asyncio.run(affected_by(previewed({"limitt": "5/s"}), counters)) == ((), False)
        assert counters.asked == [("api",)]
