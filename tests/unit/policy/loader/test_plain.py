"""A policy as data, and back."""

import json
from dataclasses import replace
from fractions import Fraction
from ipaddress import ip_network
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.decision import OnFailure
from headgate.limits import (
    GCRA,
    Accuracy,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
)
from headgate.policy.loader import policy_to_data, read_policy, read_policy_data
from headgate.policy.model import (
    DEFAULT_SOURCES,
    AddressSource,
    After,
    Cost,
    EndpointCost,
    Idempotency,
    Identity,
    Match,
    Override,
    Policy,
    Rule,
    Source,
    Values,
)
from headgate.policy.policy_document import rule_to_data
from headgate.units import DAY, MICROSECOND, MILLISECOND
from tests.support.overload_rules import PRESSURES, SOFTENED, priorities
from tests.support.policy_files import read_rule

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=9)
SOLID = WORDS.filter(lambda word: bool(word.strip()))
TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,9}", fullmatch=True)
HEADERS = TOKENS.map(str.lower)
PATTERNS = st.lists(st.sampled_from(("a", "B", "*", "**", "é", "%20")), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)
QUOTAS = st.integers(100, 10**6)
RATES = st.fractions(Fraction(1, 100), 10_000, max_denominator=1000)
WINDOWS = st.integers(1, 10**9).map(lambda n: Fraction(n, 1000))


def limits() -> st.SearchStrategy[Limit]:
    return st.one_of(
        st.builds(TokenBucket, QUOTAS, RATES),
        st.builds(GCRA, RATES, QUOTAS),
        st.builds(LeakyBucket, QUOTAS, RATES),
        st.builds(FixedWindow, QUOTAS, WINDOWS),
        st.builds(SlidingWindowLog, QUOTAS, WINDOWS),
        st.builds(SlidingWindowCounter, QUOTAS, WINDOWS, st.integers(1, 1000)),
        st.builds(Concurrency, QUOTAS, WINDOWS),
    )


def stacks() -> st.SearchStrategy[tuple[Limit, ...]]:
    return st.lists(limits(), min_size=1, max_size=3).map(tuple)


def unique(words: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(words, max_size=3, unique=True).map(tuple)


def conditions(names: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[tuple[str, Values], ...]]:
    values = st.none() | unique(SOLID).filter(bool)
    return st.dictionaries(names, values, max_size=2).map(lambda found: tuple(found.items()))


MATCHES = st.builds(
    Match,
    endpoints=unique(PATTERNS),
    methods=unique(TOKENS.map(str.upper)),
    hosts=unique(st.sampled_from(("a.com", "*.b.org", "::1", "*"))),
    headers=conditions(HEADERS),
    cookies=conditions(TOKENS),
    attributes=conditions(SOLID),
)
ENDPOINT_COSTS = st.lists(
    st.builds(
        EndpointCost,
        PATTERNS,
        st.integers(0, 100),
        st.none() | st.sampled_from(("GET", "POST")),
    ),
    max_size=3,
    unique_by=lambda cost: (cost.endpoint, cost.method),
).map(tuple)
AFTERS = st.builds(
    lambda header, per, most: After(header, per, most, by_bytes=True if header is None else None),
    st.none() | HEADERS,
    st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
)
PAID = ENDPOINT_COSTS.map(lambda costs: tuple(replace(one, cost=max(1, one.cost)) for one in costs))
COSTS = st.one_of(
    st.builds(Cost, st.integers(0, 100), ENDPOINT_COSTS),
    st.builds(
        Cost,
        st.integers(0, 100),
        ENDPOINT_COSTS,
        HEADERS,
        st.integers(100, 10**6),
        least=st.integers(0, 100),
    ),
    st.builds(Cost, st.integers(1, 100), PAID, after=AFTERS),
)
KEYS = st.lists(
    st.sampled_from(("ip", "api_key", "team", "header:x-a", "cookie:A", "attribute:ä b")),
    min_size=1,
    max_size=3,
    unique=True,
).map(tuple)
TIERED = st.dictionaries(
    st.none() | SOLID.filter(lambda t: t not in ("default", "algorithm")),
    stacks(),
    min_size=1,
    max_size=3,
)
SHARES = st.integers(1, 10_000).map(lambda n: Fraction(n, 10_000))
SPANS = st.none() | st.integers(1, 10**6).map(lambda n: n * MILLISECOND)
ACCURACIES = st.one_of(
    st.just(Accuracy()),
    st.builds(
        Accuracy, st.none() | SHARES, st.integers(1, 10**6), SPANS, SPANS, st.integers(1, 64)
    ),
    st.builds(Accuracy, SHARES, denials_ns=st.just(0) | SPANS),
)
FAILURES = st.one_of(
    st.just(OnFailure()),
    st.just(OnFailure("fail_closed")),
    st.builds(OnFailure, st.sampled_from(("fail_open", "local")), SHARES),
    st.builds(
        OnFailure,
        st.just("fail_open"),
        SHARES,
        st.integers(1, 10**6).map(lambda n: n * MICROSECOND),
        st.sampled_from(("fail_closed", "local")),
    ),
)


def _can_be_charged(rule: Rule) -> bool:
    """Whether its cost and its limits go together: slots alone cost nothing afterwards."""
    stacked = [limit for many in rule.limits.values() for limit in many]
    has_a_rate = not all(isinstance(limit, Concurrency) for limit in stacked)
    return has_a_rate or rule.cost.after is None


PLAIN_RULES = st.builds(
    Rule,
    id=TOKENS,
    match=MATCHES,
    key_by=KEYS,
    limits=TIERED,
    cost=COSTS,
    mode=st.sampled_from(("enforce", "shadow", "off")),
    accuracy=ACCURACIES,
    headers=st.sampled_from(("on", "brief", "off", "redacted")),
    idempotency=st.none()
    | st.builds(
        Idempotency,
        st.integers(1, 10**9).map(lambda n: n * MICROSECOND),
        HEADERS,
        st.integers(1, 1000),
        st.lists(HEADERS, max_size=8, unique=True).map(tuple),
    ),
    description=WORDS | st.just(""),
    decide=st.none() | st.sampled_from(("exact", "quota", "local")),
    across_regions=st.booleans(),
)
RULES = st.builds(
    lambda rule, failing, soften: soften(
        replace(rule, on_failure=failing, cost=rule.cost if _can_be_charged(rule) else Cost())
    ),
    PLAIN_RULES,
    FAILURES,
    SOFTENED,
)
SOURCES = st.one_of(
    st.builds(Source, header=HEADERS, default=st.none() | SOLID, secret=st.booleans()),
    st.builds(Source, cookie=TOKENS, secret=st.booleans()),
    st.builds(Source, attribute=SOLID),
    st.builds(
        Source,
        lookup=st.just("user_id"),
        values=st.dictionaries(WORDS, SOLID, min_size=1, max_size=3),
        default=st.none() | SOLID,
    ),
)
ADDRESSES = st.builds(
    AddressSource,
    st.sampled_from(((), (ip_network("10.0.0.0/8"), ip_network("2001:db8::1")))),
    st.integers(1, 32),
    st.integers(1, 128),
    HEADERS,
)


def identities() -> st.SearchStrategy[Identity]:
    sources = st.fixed_dictionaries(
        {"team": SOURCES}, optional={"api_key": SOURCES, "tier": SOURCES}
    )
    return st.builds(
        Identity,
        sources.map(lambda own: {**DEFAULT_SOURCES, **own}),
        ADDRESSES,
        st.sampled_from(("ip", "shared", "skip")),
    )


UNTIL = st.integers(0, 10**19)


def overridden(policy: Policy) -> st.SearchStrategy[Policy]:
    """*policy* with some overrides of its rules."""
    if not policy.rules:
        return st.just(policy)
    ids = st.sampled_from([rule.id for rule in policy.rules])
    one = st.builds(Override, ids, TOKENS, UNTIL, extra=st.integers(1, 10**5)) | st.builds(
        Override, ids, TOKENS, UNTIL, block=st.just(value=True)
    )
    some = st.lists(one, max_size=2, unique_by=lambda own: (own.rule, own.key))
    return some.map(lambda overrides: replace(policy, overrides=tuple(overrides)))


def tried(rules: list[Rule], *, has_candidate: bool) -> tuple[Rule, ...]:
    """*rules*, the last of them as the candidate of the first."""
    if len(rules) < 2 or rules[-1].fair is not None or not has_candidate:
        return tuple(rules)
    return (*rules[:-1], replace(rules[-1], mode="shadow", candidate_of=rules[0].id))


POLICIES = st.builds(
    Policy,
    st.builds(
        tried,
        st.lists(RULES, max_size=3, unique_by=lambda rule: rule.id),
        has_candidate=st.booleans(),
    ),
    identities(),
    priorities=priorities(MATCHES),
    pressure=st.none() | PRESSURES,
).flatmap(overridden)


@given(POLICIES)
def test_every_policy_comes_back_from_its_data(policy: Policy) -> None:
    data = policy_to_data(policy)
    assert read_policy_data(data) == policy
    assert read_policy(json.dumps(data)) == policy


def test_what_is_as_usual_is_left_out() -> None:
    rule = Rule("a", Match(), ("ip",), MappingProxyType({None: (TokenBucket(5, 5),)}))
    assert rule_to_data(rule) == {"key_by": "ip", "limits": ["5/s"]}
    assert read_rule(rule_to_data(rule)) == rule


@pytest.mark.parametrize("secret", [True, False])
def test_whether_an_api_key_is_secret_comes_back(secret: bool) -> None:
    sources = {**DEFAULT_SOURCES, "api_key": Source(header="x", secret=secret)}
    policy = Policy(identity=Identity(sources))
    assert read_policy_data(policy_to_data(policy)) == policy


def test_the_usual_idempotency_comes_back() -> None:
    rule = read_rule({"key_by": "ip", "limit": "1/s", "idempotency": True})
    assert rule.idempotency == Idempotency(DAY)
    assert read_rule(rule_to_data(rule)) == rule


def test_what_is_charged_afterwards_is_written_as_short_as_it_can_be() -> None:
    for cost in (
        {"default": 1, "after": {"header": "x-tokens"}},
        {"default": 1, "after": {"bytes": True, "per": 1024, "max": 50}},
    ):
        data = {"key_by": "ip", "limits": ["5/s"], "cost": cost, "decide": "quota"}
        assert rule_to_data(read_rule(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        {"limits": [{"algorithm": "leaky_queue", "rate": "5/3s", "queue": 10, "max_wait": 0}]},
        {
            "limits": [
                {
                    "algorithm": "concurrency",
                    "limit": 20,
                    "ttl": 30,
                    "shares": {"gold": 5},
                    "lends": False,
                }
            ],
            "share_by": "tier",
            "reserve": {"critical": "20%"},
        },
        {"limits": ["5/s"], "adaptive": {"floor": "12.5%"}},
        {"limits": ["5/s"], "across_regions": True, "max_region_debt": "250%"},
        {"fair": {"slots": 5, "queue": 100, "max_wait": 1}},
        {"fair": {"rate": "5/3s", "weights": {"a": 2, "default": 1}, "queue": 0, "max_wait": 0.5}},
        {
            "fair": {
                "slots": {"adaptive": "aimd", "min": 1, "max": 9, "target": 0.2},
                "queue": 1,
                "max_wait": 2,
            }
        },
    ],
    ids=str,
)
def test_what_is_soft_is_written_as_it_is_read(data: dict[str, Any]) -> None:
    whole = {"key_by": "ip", **data}
    assert rule_to_data(read_rule(whole)) == whole
