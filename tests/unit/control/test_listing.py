"""Finding rules among many."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.control.documents import RuleFilter, find_rules
from tests.support.policy_editor import RULE


class TestListing:
    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (RuleFilter(), ["a", "b", "c"]),
            (RuleFilter(mode="shadow"), ["b"]),
            (RuleFilter(mode="enforce"), ["a"]),
            (RuleFilter(mode="off"), ["c"]),
            (RuleFilter(key_by="tenant"), ["b"]),
            (RuleFilter(endpoint="/api/**"), ["b", "c"]),
            (RuleFilter(endpoint="/api/x"), ["b", "c"]),
            (RuleFilter(endpoint="/login"), ["a", "c"]),
            (RuleFilter(tier="paid"), ["b"]),
            (RuleFilter(tier="gold"), ["c"]),
            (RuleFilter(text="BRUTE"), ["a"]),
            (RuleFilter(mode="shadow", text="brute"), []),
        ],
    )
    def test_filters(self, wanted: RuleFilter, expected: list[str]) -> None:
        rules: list[dict[str, Any]] = [
            {"id": "a", **RULE, "match": {"endpoint": "/login"}, "description": "Brute force"},
            {
                "id": "b",
                "key_by": ["tenant", "endpoint"],
                "limits": {"free": "1/s", "paid": "2/s", "default": "1/s"},
                "match": {"endpoint": ["/api/**"]},
                "mode": "shadow",
            },
            {"id": "c", **RULE, "match": {"tier": "gold"}, "mode": "off"},
        ]

        found = find_rules({"version": 1, "rules": rules}, wanted)
        assert [rule["id"] for rule in found] == expected
