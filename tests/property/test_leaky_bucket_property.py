"""The leaky bucket does what the textbook's level does."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.limits import LeakyBucket
from tests.support.histories import LATELY, STARTS, Step, examples, follow, steps
from tests.support.oracles import LeakyBucketOracle
from tests.support.paced_limits import PACES, Pace, period_ns


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Pace, int, list[Step]]:
    pace = draw(PACES)
    return pace, draw(STARTS), draw(steps(pace.quota, period_ns(pace)))


@examples(120)
@given(_cases())
@example((Pace(3, Fraction(3)), LATELY, [Step("hit", 0, 3), Step("hit", 0, 1)]))
@example((Pace(2, Fraction(3)), 0, [Step("charge", 0, 9), Step("refund", 1, 8)]))
def test_every_answer_is_the_textbooks(case: tuple[Pace, int, list[Step]]) -> None:
    (quota, rate), start, history = case
    follow(algorithm_for(LeakyBucket(quota, rate)), LeakyBucketOracle(quota, rate), start, history)
