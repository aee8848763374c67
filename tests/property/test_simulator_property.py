"""A replay says what the engine says to the same requests one by one, however alike they look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.policy.loader import read_policy_data
from headgate.rule_engine import RuleEngine
from headgate.simulator import Arrival, replay
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.examples import example_count

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGAN = 1_800_000_000

PATTERNS = ("/**", "/*", "/a", "/a/*", "/a/**", "/*/b", "/**/b", "/a/*/c", "/a/b")
PATHS = (
    *("/a", "/A/", "/b", "/a/b", "/a/1", "/a/2", "/a/1/c", "/a/2/c", "/1/b", "/2/b", "/1", "/2"),
    *("//a", "/a/../b", "/1/../b", "/%61/1", "/a%2F1", "/1%2Fb", "/a;x/1", "/a./1", "/"),
)
LIMITS = ("2/hour", "2/s; 3/minute", "2/minute gcra", "3/minute fixed_window", "5/hour")
"""So little that it is soon seen who shares a counter, and what a request costs."""
OTHERWISE = ("ip", "ip", "global", ["ip", "method"])
BY_PATH = ("endpoint", ["ip", "endpoint"])


@st.composite
def rules(draw: st.DrawFn, name: str, keys: Sequence[str | list[str]]) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": name, "limit": draw(st.sampled_from(LIMITS))}
    rule["key_by"] = draw(st.sampled_from(keys))
    rule["mode"] = draw(st.sampled_from(["enforce", "enforce", "enforce", "shadow", "off"]))
    patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2, unique=True)
    methods = st.sampled_from([{}, {}, {}, {"method": "POST"}])
    rule["match"] = draw(methods)
    if draw(st.booleans()):
        rule["match"] = {**rule["match"], "endpoint": draw(patterns)}
    if draw(st.booleans()):
        amounts = st.sampled_from([0, 2])
        rule["cost"] = {"endpoints": {one: draw(amounts) for one in draw(patterns)}}
    return rule


@st.composite
def policies(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rules of which, now and then, some count by path."""
    keys = BY_PATH if draw(st.booleans()) else OTHERWISE
    return [draw(rules(f"rule-{number}", keys)) for number in range(draw(st.integers(1, 3)))]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, str, int]]:
    """Requests to a few paths, most of them alike otherwise."""
    paths = draw(st.lists(st.sampled_from(PATHS), min_size=2, max_size=5, unique=True))
    asked = st.tuples(
        st.sampled_from(paths),
        st.sampled_from(["GET", "GET", "GET", "POST", "HEAD"]),
        st.sampled_from(["192.0.2.1", "192.0.2.1", "192.0.2.2"]),
        st.sampled_from([0, 0, 0, 1, 20]),
    )
    return draw(st.lists(asked, min_size=6, max_size=25))


LIMITED = {"id": "one", "limit": "5/hour", "key_by": "ip"}
FROM_ONE = ("192.0.2.1", 0)


@settings(max_examples=example_count(500), deadline=None)
@example(
    [{**LIMITED, "cost": {"endpoints": {"/a": 2}}}],
    [("/b", "GET", *FROM_ONE), *[("/a", "GET", *FROM_ONE)] * 5],
)
@example(
    [{**LIMITED, "match": {"endpoint": ["/a"]}}],
    [("/a", "GET", *FROM_ONE), ("/b", "GET", *FROM_ONE)],
)
@example(
    [{**LIMITED, "key_by": "endpoint"}],
    [*[("/1", "GET", *FROM_ONE)] * 5, ("/2", "GET", *FROM_ONE)],
)
@example(
    [{**LIMITED, "match": {"endpoint": ["/*"]}}],
    [("/a/2", "GET", *FROM_ONE), *[("/a%2F1", "GET", *FROM_ONE)] * 2],
)
@given(policies(), histories())
def test_a_replay_says_what_the_engine_says(
    made: list[dict[str, Any]], asked: list[tuple[str, str, str, int]]
) -> None:
    policy = read_policy_data({"version": 1, "rules": made})
    clock = ManualClock(BEGAN)
    engine = RuleEngine(policy, store=MemoryStore(clock=clock))
    arrivals, said = [], {rule.id: [0, 0] for rule in policy.rules}
    refused = at = 0
    for path, method, ip, pause in asked:
        clock.advance(pause)
        at += pause
        verdict = engine.check(Request(method, path, peer=ip))
        refused += not verdict.allowed
        for one in verdict.rules:
            said[one.rule.id][one.decision.allowed] += 1
        arrivals.append(Arrival((BEGAN + at) * SECOND, method, path, ip=ip))
    outcome = replay(policy, arrivals)
    assert (outcome.denied, outcome.allowed) == (refused, len(asked) - refused)
    assert {one.rule_id: [one.denied, one.allowed] for one in outcome.rules} == said
