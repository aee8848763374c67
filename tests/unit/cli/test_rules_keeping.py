"""How a rule is kept, in words."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.cli.rules.explain_output import accuracy_in_words, outage_in_words
from headgate.policy.loader import read_policy_data


def rule(**more: Any) -> Any:
    data = {"id": "a", "key_by": "ip", "limit": "1000/minute", **more}
    return read_policy_data({"version": 1, "rules": [data]}).rules[0]


def kept(**more: Any) -> str | None:
    one = rule(**more)
    return accuracy_in_words(one, one.limits[None])


def test_of_a_rule_that_is_kept_exactly_nothing_is_said() -> None:
    assert kept() is None


@pytest.mark.parametrize(
    ("accuracy", "words"),
    [
        ({"max_overshoot": "1%", "denials": "off"}, "leases, at most 10 over the limit in all"),
        ({"batch": 7, "denials": "off"}, "leases, at most 7 for each process"),
        ({"split": 4}, "each counter is split into 4 on different shards"),
        (
            {"sync": "100ms", "max_overshoot": "5%"},
            "every 100ms, at most 50 over the limit in all; a den",
        ),
        ({"max_overshoot": "0.1%"}, "exact: 0.1% of it is too little"),
        ({"denials": "2s"}, "a denial is cached for up to 2s"),
    ],
)
def test_the_bound_is_told(accuracy: dict[str, Any], words: str) -> None:
    assert words in str(kept(accuracy=accuracy))


def test_other_regions_are_told_of() -> None:
    assert (
        kept(across_regions=True)
        == "usage is replicated to other regions, with a debt of up to 100% of the limit"
    )


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ("fail_open", "it is allowed, up to the limit in each process"),
        ({"share": "25%", "max_fail_open": "5m", "then": "local"}, "up to 25% of the limit in"),
        ({"share": "25%", "max_fail_open": "5m", "then": "local"}, "; after 5m: local"),
        ({"mode": "local", "share": "50%"}, "each process enforces 50% of the limit by itself"),
        ("fail_closed", "it is denied (fail_closed)"),
    ],
)
def test_what_happens_in_an_outage_is_told(failing: object, words: str) -> None:
    assert words in outage_in_words(rule(on_store_failure=failing))
