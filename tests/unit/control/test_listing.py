"""Finding rules among many."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.control.documents import find_rules
from tests.support.policy_editor import RULE


class TestListing:
    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({}, ["a", "b", "c"]),
            ({"mode": "shadow"}, ["b"]),
            ({"mode": "enforce"}, ["a"]),
            ({"mode": "off"}, ["c"]),
            ({"key_by": "tenant"}, ["b"]),
            ({"endpoint": "/api/**"}, ["b", "c"]),
            ({"endpoint": "/api/x"}, ["b", "c"]),
            ({"endpoint": "/login"}, ["a", "c"]),
            ({"tier": "paid"}, ["b"]),
            ({"tier": "gold"}, ["c"]),
            ({"text": "BRUTE"}, ["a"]),
            ({"mode": "shadow", "text": "brute"}, []),
        ],
    )
    def test_filters(self, wanted: dict[str, str], expected: list[str]) -> None:
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

        found = find_rules({"version": 1, "rules": rules}, **wanted)
        assert [rule["id"] for rule in found] == expected
