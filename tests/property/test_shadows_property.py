"""Rules in shadow beside rules that decide: prepared takes say what one operation says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.stores.memory import MemoryStore
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.async_stores import Waiting

if TYPE_CHECKING:
    from headgate.engine.verdict import Verdict

_LIMITS = st.sampled_from(
    ["3/s", "5/m burst 2", "4/m fixed_window", "3/m sliding_window_log", "2/s; 5/m"]
)
_RULES = st.lists(
    st.tuples(_LIMITS, st.sampled_from(["enforce", "shadow"])), min_size=1, max_size=4
)
_STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=40
)


class _Blocking(MemoryStore):
    waits = True


def _policy(rules: list[tuple[str, str]]) -> str:
    lines = [
        f"  - {{id: r{n}, key_by: user_id, limit: '{limit}', mode: {mode}}}"
        for n, (limit, mode) in enumerate(rules)
    ]
    return "\n".join(["version: 1", "rules:", *lines])


def _told(verdict: Verdict) -> object:
    figures = [
        (one.rule.id, one.decision.allowed, one.decision.remaining, one.decision.retry_after_ns)
        for one in verdict.rules
    ]
    return verdict.allowed, figures, [one.decision.reset_after_ns for one in verdict.rules]


@given(_RULES, _STEPS)
@settings(max_examples=example_count(150), deadline=None)
def test_both_ways_say_the_same(
    rules: list[tuple[str, str]], steps: list[tuple[str, int, int]]
) -> None:
    policy = read_policy(_policy(rules))
    clock = ManualClock()
    prepared = RuleEngine(policy, store=MemoryStore(clock=clock))
    # Takes on a store that waits: in a thread one operation, in an event loop several at once.
    blocking = RuleEngine(policy, store=_Blocking(clock=clock))
    awaited = AsyncRuleEngine(policy, store=Waiting(clock, turns=0))
    with asyncio.Runner() as runner:
        for user, cost, tenths in steps:
            clock.advance(tenths / 10)
            request = Request(headers=(("x-user-id", user),))
            found = runner.run(awaited.check(request, cost=cost))
            assert _told(prepared.check(request, cost=cost)) == _told(found)
            assert _told(blocking.check(request, cost=cost)) == _told(found)


def test_a_shadow_counts_what_a_rule_that_decides_refuses() -> None:
    policy = read_policy(_policy([("1/m", "enforce"), ("3/m", "shadow")]))
    engine = RuleEngine(policy, store=MemoryStore(clock=ManualClock()))
    request = Request(headers=(("x-user-id", "a"),))
    told = [[one.decision.allowed for one in engine.check(request).rules] for _ in range(4)]
    assert told == [[True, True], [False, True], [False, True], [False, False]]
