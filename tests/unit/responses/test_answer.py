"""The names of limits, the limit that is shown, and the rule that a denial names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headgate.decision import Decision
from headgate.errors import OptionError
from headgate.responses import Answer, ResponseOptions, headers_for
from tests.support.decisions import NOW, answer, body_for, decided, outage, refused, told

if TYPE_CHECKING:
    from headgate.responses import RuleAnswer


def shown(rule: RuleAnswer) -> dict[str, str]:
    return dict(headers_for(answer(rule), now_ns=NOW, options=ResponseOptions(bucket=True)))


def named(it: Answer) -> str | None:
    """The rule that the body of a denial names."""
    found: str | None = json.loads(body_for(it, problem=False)[1]).get("limit")
    return found


def test_stacked_limits_have_names_that_no_rule_can_have() -> None:
    rule = told(decided(), decided("5/s"), decided("1/ms"))
    assert [name for name, _ in rule.limits] == ["per-user", "per-user/2", "per-user/3"]
    assert [name for name, _ in told(decided()).limits] == ["per-user"]


def test_of_those_that_allow_the_one_with_the_least_left_is_tightest() -> None:
    stack = told(decided(left=9), decided("7/s", left=3), decided("8/s", left=3))
    assert shown(stack)["X-RateLimit-Limit"] == "7"


def test_a_refusal_is_tighter_than_anything_allowed_and_one_without_end_tightest() -> None:
    stack = told(decided(left=0), refused("7/s", retry_ms=5), refused("8/s", retry_ms=9))
    assert shown(stack)["X-RateLimit-Limit"] == "8"
    never = told(refused("7/s", retry_ms=None), refused("8/s", retry_ms=10**9))
    assert shown(never)["X-RateLimit-Limit"] == "7"


def test_the_longest_wait_speaks() -> None:
    short, long = told(refused(retry_ms=5)), told(refused(retry_ms=9), name="b")
    assert named(answer(short, told(decided(left=0)), long)) == "b"


def test_a_limit_that_was_exceeded_speaks_before_one_that_could_not_be_checked() -> None:
    assert named(answer(told(outage(), name="b"), told(refused(retry_ms=5)))) == "per-user"


def test_of_equal_waits_one_that_may_be_told_speaks() -> None:
    shown = told(refused())
    assert named(answer(told(refused(), name="b", headers="redacted"), shown)) == "per-user"


def test_nobody_speaks_when_nobody_refused() -> None:
    assert named(Answer(allowed=False)) is None


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
    assert named(answer(told(late))) == "per-user"


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_jitter_is_a_number_from_0_to_1(jitter: float) -> None:
    with pytest.raises(OptionError, match="jitter"):
        Answer(allowed=True, jitter=jitter)
