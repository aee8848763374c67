"""What reading may cost, and what it may show."""

from __future__ import annotations

from headgate.policy.loader import examine_policy


def test_a_list_of_long_wild_patterns_is_not_compared_at_length() -> None:
    patterns = "".join(f"        - /{'**/*/' * 30}{n}\n" for n in range(440))
    text = f"version: 1\nrules:\n  - id: a\n    match:\n      endpoint:\n{patterns}"
    text += "    key_by: ip\n    limit: 5/s\n"
    assert examine_policy(text).policy is not None


def test_a_key_that_may_be_a_secret_is_not_shown() -> None:
    values = "{sk_live_SECRET: a, sk_live_SECRET: b}"
    text = f"version: 1\nidentity:\n  tier: {{lookup: api_key, values: {values}}}\nrules: []\n"
    told = "\n".join(map(str, examine_policy(text).problems))
    assert "given twice" in told
    assert "SECRET" not in told


def test_a_cost_is_not_compared_with_slots() -> None:
    rule = (
        "{id: a, key_by: ip, cost: 5, limits: [100/s, {algorithm: concurrency, limit: 2, ttl: 9}]}"
    )
    assert examine_policy(f"version: 1\nrules: [{rule}]").policy is not None


def test_tiers_that_anybody_can_make_up_need_a_default() -> None:
    rule = "{id: a, key_by: ip, limits: {free: 5/s, paid: 9/s}}"
    (told,) = examine_policy(f"version: 1\nrules: [{rule}]").problems
    assert (told.severity, told.hint) == ("warning", "add a default")


def test_a_rule_may_allow_everything_or_nothing() -> None:
    limits = "limit: unlimited", "limit: 0/minute", "limits: [5/s, 0/h strict, unlimited]"
    for limit in limits:
        found = examine_policy(f"version: 1\nrules: [{{id: a, key_by: ip, cost: 3, {limit}}}]")
        assert (found.policy is not None, found.problems) == (True, ()), limit
    tiers = "{id: a, key_by: ip, limits: {paid: unlimited, blocked: 0/s, default: 5/s}}"
    found = examine_policy(f"version: 1\nrules: [{tiers}]")
    assert found.policy is not None
    assert [str(one) for (one,) in found.policy.rules[0].limits.values()] == [
        "unlimited",
        "0/s",
        "5/s",
    ]


def test_accuracy_has_no_effect_where_nothing_is_counted() -> None:
    rule = "{id: a, key_by: ip, limit: unlimited, accuracy: {max_overshoot: 5%}}"
    (told,) = examine_policy(f"version: 1\nrules: [{rule}]").problems
    assert "it has no effect: limits without a counter are always kept exactly" in str(told)
