"""Which limit is shown, and which rule speaks."""

import pytest

from headgate.decision import Decision
from headgate.errors import OptionError
from headgate.responses import Answer
from headgate.responses.answer import loudest, parts_of, tightest
from tests.support.decisions import answer, decided, outage, refused, told


def test_a_rule_with_one_limit_gives_it_its_name() -> None:
    assert [part.policy for part in parts_of(told(decided()))] == ["per-user"]


def test_stacked_limits_have_names_that_no_rule_can_have() -> None:
    rule = told(decided(), decided("5/s"), decided("1/ms"))
    assert [part.policy for part in parts_of(rule)] == ["per-user", "per-user/2", "per-user/3"]


def test_of_those_that_allow_the_one_with_the_least_left_is_tightest() -> None:
    parts = parts_of(told(decided(left=9), decided(left=3), decided(left=3, key="b")))
    assert tightest(parts) is parts[1]


def test_a_refusal_is_tighter_than_anything_allowed_and_one_without_end_tightest() -> None:
    parts = parts_of(told(decided(left=0), refused(retry_ms=5), refused(retry_ms=9)))
    assert tightest(parts) is parts[2]
    never = parts_of(told(refused(retry_ms=None), refused(retry_ms=10**9)))
    assert tightest(never) is never[0]


def test_of_no_limits_none_is_tightest() -> None:
    assert tightest([]) is None


def test_the_longest_wait_speaks() -> None:
    short, long = told(refused(retry_ms=5)), told(refused(retry_ms=9), name="b")
    assert loudest(answer(short, told(decided(left=0)), long)) is long


def test_a_limit_that_was_exceeded_speaks_before_one_that_could_not_be_checked() -> None:
    exceeded = told(refused(retry_ms=5))
    assert loudest(answer(told(outage(), name="b"), exceeded)) is exceeded


def test_of_equal_waits_one_that_may_be_told_speaks() -> None:
    shown = told(refused(), headers="off")
    assert loudest(answer(told(refused(), name="b", headers="redacted"), shown)) is shown


def test_nobody_speaks_when_nobody_refused() -> None:
    assert loudest(Answer(allowed=False)) is None


def test_one_that_was_refused_in_line_speaks_though_its_limits_had_room() -> None:
    room = decided()
    late = Decision(
        "user:42",
        room.limit,
        allowed=False,
        remaining=0,
        retry_after_ns=1,
        reset_after_ns=0,
        parts=(room, room),
    )
    assert loudest(answer(told(late))) is not None


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_jitter_is_a_number_from_0_to_1(jitter: float) -> None:
    with pytest.raises(OptionError, match="jitter"):
        Answer(allowed=True, jitter=jitter)
