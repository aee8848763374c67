"""The fast encoder of headers says what the general one says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate import Concurrency, LeakyQueue, MemoryStore, RateLimiter, TokenBucket
from headgate.responses import Answer, RuleAnswer, allowed_lines, encoded_lines, headers_for
from headgate.responses.headers import rule_template
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.limit_kinds import KIND, limit_of

QUOTAS = st.integers(1, 30_000) | st.sampled_from([1, 2, 3, 7, 60, 100])
WINDOWS = st.integers(1, 90 * 10**6).map(lambda us: us * 1_000) | st.just(60 * SECOND)
LARGEST = TokenBucket(10**15 - 1, 9 * 10**14)
RATES = st.one_of([st.builds(limit_of, KIND, QUOTAS, WINDOWS)] * 5 + [st.just(LARGEST)])
OTHERS = st.sampled_from([Concurrency(3, 30), LeakyQueue(2, 5)])
RULES = st.lists(
    st.tuples(
        st.lists(RATES, min_size=1, max_size=3) | st.lists(OTHERS, min_size=1, max_size=1),
        st.sampled_from(["on", "on", "off"]),
    ),
    min_size=1,
    max_size=3,
)
NAMES = st.text("abcXYZ019._-%", min_size=1, max_size=20)
STEPS = st.lists(st.tuples(st.integers(0, 90 * SECOND), st.integers(1, 50)), min_size=1, max_size=6)


@given(RULES, NAMES, st.integers(10**18, 2 * 10**18), STEPS)
def test_the_fast_headers_are_the_general_ones(
    rules: list[tuple[list[Any], Any]], name: str, start: int, steps: list[tuple[int, int]]
) -> None:
    clock = ManualClock(start / SECOND)
    store = MemoryStore(clock=clock)
    limiters = [
        RateLimiter(limits, store=store, namespace=f"rule{n}")
        for n, (limits, _) in enumerate(rules)
    ]
    for wait_ns, cost in steps:
        clock.advance_ns(wait_ns)
        answers = []
        for n, (limiter, (limits, mode)) in enumerate(zip(limiters, rules, strict=True)):
            if isinstance(limits[0], Concurrency):
                slot = limiter.slot("k")
                slot.__enter__()
                answers.append(RuleAnswer(f"{name}{n}", slot.decision, mode))
            else:
                answers.append(RuleAnswer(f"{name}{n}", limiter.hit("k", cost), mode))
        answer = Answer(all(one.decision.allowed for one in answers), tuple(answers))
        shown = [(one.name, one.decision) for one in answers if one.headers == "on"]
        lines = allowed_lines(shown, clock())
        is_usual = all(
            decision.allowed and not isinstance(decision.limit, LeakyQueue) for _, decision in shown
        )
        assert (lines is not None) == is_usual
        if lines and len(shown) == 1 and answer.allowed:
            (place,) = [n for n, one in enumerate(answers) if one.headers == "on"]
            template = rule_template(shown[0][0], limiters[place].limits)
            assert template.lines(shown[0][1], clock()) == lines
        if lines is not None and answer.allowed:
            assert lines == encoded_lines(headers_for(answer, now_ns=clock()))
