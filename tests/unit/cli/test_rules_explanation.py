"""What an explanation is made of agrees with what the engine does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.rules.explanation import explained, response_to
from headgate.engine.request import Request
from headgate.limits import Concurrency, LeakyQueue, Limit, parse_limits
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.explain import Reasons
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import RuleEngine
from headgate.testing import ManualClock
from headgate.units import SECOND

WORDS = st.sampled_from(["a", "b", "c"])
VALUES = st.none() | st.lists(WORDS, min_size=1, max_size=2, unique=True).map(tuple)
NAMED = st.dictionaries(WORDS, VALUES, max_size=2).map(lambda found: tuple(found.items()))
PATHS = st.sampled_from(["/", "/a", "/a/b", "/A//b/", "/a/../b", "/a%2Fb", "/a;x/b", "*", "/c/c/c"])
PATTERNS = st.sampled_from(["/a", "/b", "/a/*", "/a/**", "/**", "/*/b", "/c/**/c"])


def some(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, max_size=2, unique=True).map(tuple)


MATCHES = st.builds(
    Match,
    endpoints=some(PATTERNS),
    methods=some(st.sampled_from(["GET", "HEAD", "POST"])),
    hosts=some(st.sampled_from(["a.org", "*.org", "*", "b.a.org"])),
    tiers=some(WORDS),
    headers=NAMED,
    cookies=NAMED,
    attributes=NAMED,
)
REQUESTS = st.builds(
    Request,
    method=st.sampled_from(["GET", "get", "HEAD", "PUT"]),
    path=PATHS,
    host=st.sampled_from(["", "a.org", "B.a.org:80", "x"]),
    headers=st.lists(
        st.tuples(st.sampled_from(["a", "B", "x-tier"]), WORDS)
        | st.tuples(st.just("cookie"), st.sampled_from(["a=a", "b=c; a=b", "c"])),
        max_size=4,
    ).map(tuple),
    attributes=st.dictionaries(WORDS, WORDS, max_size=2),
)


@given(MATCHES, REQUESTS, st.sampled_from(["enforce", "off"]))
def test_there_is_a_reason_exactly_if_a_rule_does_not_match(
    match: Match, request: Request, mode: str
) -> None:
    limits = parse_limits("1/s")
    rule = Rule("r", match, ("global",), {None: limits}, mode="off" if mode == "off" else "enforce")
    engine = CompiledPolicy(Policy((rule,)))
    reasons = Reasons(engine.policy, request, engine.identifier.find(request))
    assert (reasons.no_match(rule) is None) == bool(engine.matching(request))


KINDS: list[tuple[Limit, ...]] = [
    *map(
        parse_limits,
        [
            "10/minute",
            "7/s burst 20",
            "10/minute gcra",
            "10/minute leaky_bucket",
            "10/minute fixed_window",
            "10/minute sliding_window_log",
            "10/minute sliding_window_counter",
            "10/minute sliding_window_counter subwindows 6",
            "10/minute; 12/hour fixed_window",
        ],
    ),
    (Concurrency(5, 30),),
    (Concurrency(5, 30, (("gold", 2),)),),
    (LeakyQueue(1, 5),),
    (LeakyQueue(2, 100, 3), *parse_limits("20/minute")),
]


@pytest.mark.parametrize("limits", KINDS, ids=lambda limits: "; ".join(map(str, limits)))
def test_what_is_foreseen_is_what_happens(limits: tuple[Limit, ...]) -> None:
    """Headers, body and figures, to the tick; over more requests than fit, and time between."""
    rules = (
        Rule("r", Match(), ("ip",), {None: limits}),
        Rule("s", Match(), ("global",), {None: parse_limits("10/minute")}, mode="shadow"),
    )
    clock = ManualClock(1_700_000_000 * SECOND + 123_456_789)
    engine = RuleEngine(Policy(rules), clock=clock)
    request = Request(peer="1.2.3.4")
    outcomes = set()
    for cost in (1, 2, 0, 3, 1, 4, 1, 21, 2, 1, 1):
        now_ns = clock()
        foreseen = explained(engine.explain(request, cost=cost), now_ns)
        again = explained(engine.explain(request, cost=cost), now_ns)
        assert foreseen.verdict.rules == again.verdict.rules
        happened = engine.check(request, cost=cost)
        assert foreseen.verdict.rules == happened.rules
        assert foreseen.response == response_to(request, happened, now_ns)
        outcomes.add(happened.allowed)
        clock.advance(2.5)
    assert outcomes == {True, False}
