"""GCRA does what the textbook's TAT with a tolerance of burst - 1 intervals does."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.algorithms import algorithm_for
from headgate.limits import GCRA
from tests.support.histories import LATELY, STARTS, Step, examples, follow, steps
from tests.support.oracles import GCRAOracle
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
    follow(algorithm_for(GCRA(rate, quota)), GCRAOracle(rate, quota), start, history)
