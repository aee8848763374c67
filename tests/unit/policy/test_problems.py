"""Problems: how they read."""

import pickle

import pytest

from headgate.errors import HeadgateError
from headgate.policy.problems import PolicyError, Problem

TYPO = Problem(
    "error",
    "rules.yaml",
    "unknown field",
    12,
    5,
    rule="login",
    field="limt",
    hint="did you mean 'limit'?",
)


def test_a_problem_reads_like_a_compilers() -> None:
    expected = (
        "rules.yaml:12:5: error: rule 'login', field 'limt': unknown field; did you mean 'limit'?"
    )
    assert str(TYPO) == expected


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("warning", "a.yaml", "no rules"), "a.yaml: warning: no rules"),
        (Problem("error", "a.yaml", "bad", 3), "a.yaml:3: error: bad"),
        (Problem("error", "x", "bad", field="a.b"), "x: error: field 'a.b': bad"),
        (Problem("error", "x", "bad", rule="r"), "x: error: rule 'r': bad"),
    ],
)
def test_what_is_not_known_is_left_out(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_an_error_has_a_line_for_every_problem() -> None:
    warning = Problem("warning", "a.yaml", "no rules")
    error = PolicyError([TYPO, warning])
    assert str(error) == f"{TYPO}\n{warning}"
    assert error.problems == (TYPO, warning)
    assert error.errors == (TYPO,)


def test_an_error_is_a_value_error_of_ours_that_can_be_pickled() -> None:
    error = PolicyError([TYPO])
    assert isinstance(error, HeadgateError)
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).problems == (TYPO,)  # noqa: S301 - our own
