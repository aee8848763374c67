"""Rules made of a configuration: they read back, and decide the same, or it is said where not."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.limits import FixedWindow
from headgate.policy.envoy_config.attributes import attributes_of
from headgate.policy.envoy_config.config import Descriptor, Domain, EnvoyConfig, RateLimit
from headgate.policy.envoy_config.conversion import convert
from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.policy.identity import Identifier
from headgate.policy.loader import examine_policy_data, read_policy_data
from headgate.policy.matcher import Matcher

Entries = Sequence[tuple[str, str]]

SHOP = """\
domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limit: {unit: month, requests_per_unit: 100, name: free}
        shadow_mode: true
  - key: plan
    value: paid
    rate_limit: {unit: second, requests_per_unit: 5}
"""


def config_of(text: str) -> EnvoyConfig:
    return read_envoy_config([("a.yaml", text)])


def rules_of(config: EnvoyConfig) -> list[dict[str, Any]]:
    rules = convert(config).policy["rules"]
    assert isinstance(rules, list)
    return rules


def warnings_of(text: str) -> list[str]:
    return [str(warning) for warning in convert(config_of("domain: d\n" + text)).warnings]


def test_every_limit_becomes_a_rule() -> None:
    assert convert(config_of(SHOP)).policy == {
        "version": 1,
        "identity": {"fallback": "shared"},
        "rules": [
            {
                "id": "shop.plan_free.user",
                "description": "From envoyproxy/ratelimit, shop: plan=free, user=any (free)",
                "match": {
                    "attributes": {
                        "domain": "shop",
                        "descriptor": "plan/user",
                        "plan": "free",
                        "user": True,
                    }
                },
                "key_by": ["attribute:user"],
                "limit": "100 per 30 days fixed_window",
                "mode": "shadow",
            },
            {
                "id": "shop.plan_paid",
                "description": "From envoyproxy/ratelimit, shop: plan=paid",
                "match": {"attributes": {"domain": "shop", "descriptor": "plan", "plan": "paid"}},
                "key_by": "global",
                "limit": "5/second fixed_window",
            },
        ],
    }
    assert convert(config_of(SHOP)).warnings == ()


def test_the_rules_read_back_without_a_problem() -> None:
    examined = examine_policy_data(convert(config_of(SHOP)).policy)
    assert examined.problems == ()
    assert examined.policy is not None
    assert examined.policy.rules[0].limits_for(None) == (FixedWindow(100, 30 * 86_400),)


@pytest.mark.parametrize("unit", ["second", "minute", "hour", "day", "week", "month", "year"])
def test_a_rule_has_the_window_of_its_unit(unit: str) -> None:
    limit = f"{{unit: {unit}, requests_per_unit: 4294967295}}"
    config = config_of(f"domain: d\ndescriptors: [{{key: a, rate_limit: {limit}}}]")
    (rule,) = read_policy_data(convert(config).policy).rules
    found = config.lookup("d", [("a", "x")])
    assert found is not None
    assert rule.limits_for(None) == (found.limit.window,)


def test_ids_are_fit_and_different() -> None:
    one = RateLimit("day", 1)
    names = ["a b", "a/b", "a-b", "a-b-2", "é", "ü", "x" * 300, "x" * 300 + "y"]
    config = EnvoyConfig({"d": Domain("d", tuple(Descriptor(name, None, one) for name in names))})
    assert convert(config).warnings == ()
    assert [rule.id for rule in read_policy_data(convert(config).policy).rules][:6] == [
        "d.a-b",
        "d.a-b-2",
        "d.a-b-3",
        "d.a-b-2-2",
        "d",
        "d-2",
    ]


LIMIT = "rate_limit: {unit: day, requests_per_unit: 5}"


@pytest.mark.parametrize(
    ("descriptors", "message"),
    [
        (f"[{{key: a, value: b*, {LIMIT}}}]", "left out: a rule has no wildcards, as in 'a_b*'"),
        (f"[{{key: a*, descriptors: [{{key: b, {LIMIT}}}]}}]", "no wildcards, as in 'a*'"),
        ("[{key: a, rate_limit: {unlimited: true}}]", "'d: a=any' is left out: what no rule"),
        ("[{key: a, rate_limit: {unit: day, requests_per_unit: 0}}]", "a limit of 0 is no limit"),
        (f'[{{key: "a\\tb", {LIMIT}}}]', "blank, too long or not printable"),
        (f"[{{key: a, quota_mode: true, {LIMIT}}}]", "quota_mode is not kept"),
        (f"[{{key: a, detailed_metric: true, {LIMIT}}}]", "detailed_metric is not kept in 'd' (1"),
        (f"[{{key: a, metadata: {{a: b}}, {LIMIT}}}]", "metadata is not kept in 'd' (1 times)"),
        (
            "[{key: a, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: x}]}}]",
            "rule 'd.a': it does not replace 'x'",
        ),
        (
            f"[{{key: a, {LIMIT}}}, {{key: a, value: b}}, {{key: a, value: c}}]",
            "rule 'd.a': it also limits 'a_b', 'a_c': a rule has no exceptions",
        ),
    ],
)
def test_what_rules_cannot_say_is_told(descriptors: str, message: str) -> None:
    (told,) = warnings_of(f"descriptors: {descriptors}")
    assert message in told
    assert told.startswith("a.yaml:2:")


@pytest.mark.parametrize(
    ("unit", "count", "is_told"),
    [
        ("day", 5, False),
        ("day", 6, True),
        ("hour", 1, True),  # 24 a day
        ("week", 5, False),
        ("week", 6, True),
    ],
)
def test_exceptions_are_told_if_they_are_not_as_tight(unit: str, count: int, is_told: bool) -> None:
    own = f"rate_limit: {{unit: {unit}, requests_per_unit: {count}}}"
    told = warnings_of(f"descriptors: [{{key: a, {LIMIT}}}, {{key: a, value: b, {own}}}]")
    assert bool(told) == is_told


def test_keys_that_come_again_or_are_taken_get_a_number() -> None:
    entries = [("user", "a"), ("domain", "b"), ("user", "c"), ("user#2", "d"), ("x/y\\", "e")]
    assert attributes_of("shop", entries) == {
        "domain": "shop",
        "descriptor": r"user/domain/user/user#2/x\/y\\",
        "user": "a",
        "domain#2": "b",
        "user#2": "c",
        "user#2#2": "d",
        "x/y\\": "e",
    }


class Ledger:
    """Counters of fixed windows, all or nothing."""

    def __init__(self) -> None:
        self.used: Counter[object] = Counter()

    def admits(self, hits: list[tuple[object, FixedWindow]], now: int) -> bool:
        places = [((key, now * 10**9 // limit.window_ns), limit) for key, limit in hits]
        if any(self.used[place] >= limit.limit for place, limit in places):
            return False
        self.used.update(place for place, _ in places)
        return True


class Looking:
    """Decides by looking limits up."""

    def __init__(self, config: EnvoyConfig) -> None:
        self.config = config
        self.ledger = Ledger()

    def admits(self, entries: Entries, now: int) -> bool:
        found = self.config.lookup("d", entries)
        if found is None or found.limit.window is None:
            return True
        return self.ledger.admits([(found.key, found.limit.window)], now) or found.shadow_mode


class Ruling:
    """Decides by the rules that the configuration was made into."""

    def __init__(self, config: EnvoyConfig) -> None:
        policy = read_policy_data(convert(config).policy)
        self.matcher = Matcher(policy)
        self.identifier = Identifier(policy.identity)
        self.ledger = Ledger()

    def admits(self, entries: Entries, now: int) -> bool:
        request = Request(attributes=attributes_of("d", entries))
        found = self.identifier.find(request)
        enforced: list[tuple[object, FixedWindow]] = []
        for rule in self.matcher.matching(request, found):
            if rule.mode == "enforce":
                (limit,) = rule.limits_for(None)
                assert isinstance(limit, FixedWindow)
                enforced.append(((rule.id, self.identifier.key(rule, request, found)), limit))
        return self.ledger.admits(enforced, now)


KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["x", "y"])
LIMITS = st.builds(RateLimit, st.sampled_from(["second", "minute"]), st.integers(1, 3))
VISITS = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES | st.just("")), min_size=1, max_size=2), st.integers(0, 40)
    ),
    max_size=30,
)


def descriptors(depth: int) -> st.SearchStrategy[tuple[Descriptor, ...]]:
    one = st.builds(
        Descriptor,
        key=KEYS,
        value=st.none() | VALUES,
        rate_limit=st.none() | LIMITS,
        descriptors=descriptors(depth - 1) if depth else st.just(()),
        shadow_mode=st.booleans(),
    )
    return st.lists(one, max_size=4, unique_by=lambda each: each.name).map(tuple)


@given(descriptors(1), VISITS)
@example(
    (
        Descriptor("a", None, RateLimit("minute", 3)),
        Descriptor("a", "x", RateLimit("minute", 2)),
    ),
    [([("a", "x")], 1), ([("a", "y")], 1)] * 4,
)
def test_without_warnings_rules_decide_the_same(
    level: tuple[Descriptor, ...], visits: list[tuple[list[tuple[str, str]], int]]
) -> None:
    config = EnvoyConfig({"d": Domain("d", level)})
    assume(not convert(config).warnings)
    looking, ruling, now = Looking(config), Ruling(config), 0
    for entries, later in visits:
        now += later
        assert looking.admits(entries, now) == ruling.admits(entries, now), (entries, now)
