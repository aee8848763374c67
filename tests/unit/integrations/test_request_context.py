"""One request: allowed, denied, settled; in apps that block and in those that do not.

Each test runs in both.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.errors import CostError
from headgate.integrations import CompletedResponse, RequestContext, RequestLimiter, RouteLimit
from headgate.integrations.route_limit import named_limits
from headgate.limits import Concurrency
from headgate.runtime.drivers import adrive, drive
from headgate.testing import ManualClock
from tests.support.heartbeats import listened

REQUEST = Request(peer="1.2.3.4")
OK = CompletedResponse(200)
KINDS = pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])


class Way:
    """The way of one request through *limiter*, in verbs that are the same for both kinds."""

    def __init__(self, limiter: RequestLimiter, *, is_async: bool) -> None:
        self.limiter, self.is_async = limiter, is_async
        self.context = RequestContext(limiter, REQUEST)

    def enter(self, *limits: RouteLimit) -> bool:
        planning = self.limiter.plan_route(named_limits(limits, "", ""), REQUEST, REQUEST)
        found: bool = self._run(self.context.begin(self.limiter, planning))
        return found

    def finish(self, response: CompletedResponse = OK) -> None:
        self._run(self.context.complete(response))

    def _run(self, effects: Any) -> Any:
        return asyncio.run(adrive(effects)) if self.is_async else drive(effects)

    def left(self, allowance: RouteLimit) -> int:
        """What is left of *allowance* for somebody who asks at no cost."""
        look = Way(self.limiter, is_async=self.is_async)
        free = RouteLimit(limits=allowance.limits, name=allowance.name, cost=0)
        assert look.enter(free)
        return look.context.rule_answers[0].decision.remaining


def way(is_async: bool, limiter: RequestLimiter | None = None) -> Way:
    return Way(limiter or RequestLimiter(clock=ManualClock(7_200)), is_async=is_async)


FIVE = RouteLimit(limits="5/hour fixed_window", name="five")
ONE = RouteLimit(limits="1/hour fixed_window", name="one")
PLACE = RouteLimit(limits=Concurrency(1, 600), name="place")
HELD = RouteLimit(limits="5/hour fixed_window", name="held", cost=2, is_estimate=True)


@KINDS
def test_a_refusal_gives_back_all_that_was_granted_before(is_async: bool) -> None:
    first = way(is_async)
    assert first.enter(ONE)
    second = way(is_async, first.limiter)

    assert second.enter(FIVE)
    assert second.enter(PLACE)
    assert second.enter(HELD)
    assert not second.enter(ONE)
    assert [shown.name for shown in second.context.answer().rules] == ["one"]
    assert second.left(FIVE) == 5
    assert second.left(HELD) == 5
    assert way(is_async, first.limiter).enter(PLACE)


def test_a_refusal_ends_the_beat_of_what_was_granted_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heart, one = listened(monkeypatch), way(is_async=False)
    assert way(is_async=False, limiter=one.limiter).enter(ONE)
    assert one.enter(PLACE)
    assert heart.are_beating == [True]
    assert not one.enter(ONE)
    assert heart.are_beating == [False]


@KINDS
def test_allowances_asked_together_are_all_or_nothing(is_async: bool) -> None:
    first = way(is_async)
    assert first.enter(ONE, FIVE)

    assert not way(is_async, first.limiter).enter(FIVE, ONE)
    assert first.left(FIVE) == 4


@KINDS
def test_a_place_is_free_at_the_end_and_a_second_end_does_nothing(is_async: bool) -> None:
    first = way(is_async)
    assert first.enter(PLACE)
    assert not way(is_async, first.limiter).enter(PLACE)
    first.finish()
    second = way(is_async, first.limiter)
    assert second.enter(PLACE)
    first.finish()
    assert not way(is_async, first.limiter).enter(PLACE)


@KINDS
@pytest.mark.parametrize(("used", "left"), [(None, 3), (0, 5), (1, 4), (5, 0)])
def test_what_was_held_is_settled_for_what_was_used(
    is_async: bool, used: int | None, left: int
) -> None:
    one = way(is_async)
    assert one.enter(HELD)
    assert one.left(HELD) == 3
    if used is not None:
        one.context.report({"held": used})
    one.finish()

    assert one.left(HELD) == left


@KINDS
@pytest.mark.parametrize(("status", "left"), [(200, 5), (401, 4)])
def test_the_outcome_decides_whether_it_counts(is_async: bool, status: int, left: int) -> None:
    allowance = RouteLimit(
        limits="5/hour fixed_window",
        name="login",
        charge_when=lambda responded: responded.status_code == 401,
    )
    one = way(is_async)
    assert one.enter(allowance)
    one.finish(CompletedResponse(status))

    assert one.left(allowance) == left


@KINDS
def test_an_outcome_that_does_not_count_costs_nothing_whatever_was_reported(
    is_async: bool,
) -> None:
    allowance = RouteLimit(
        limits="5/hour fixed_window",
        name="both",
        is_estimate=True,
        charge_when=lambda responded: responded.error is None,
    )
    one = way(is_async)
    assert one.enter(allowance)
    one.context.report({"both": 4})
    one.finish(CompletedResponse(500, error=ZeroDivisionError()))

    assert one.left(allowance) == 5


@KINDS
def test_one_that_raises_at_the_end_does_not_keep_the_others_from_ending(is_async: bool) -> None:
    def counts(responded: CompletedResponse) -> bool:
        raise LookupError("which?")

    raising = RouteLimit(limits="5/hour", name="raising", charge_when=counts)
    one = way(is_async)
    assert one.enter(PLACE)
    assert one.enter(raising)
    with pytest.raises(LookupError, match="which"):
        one.finish()

    assert way(is_async, one.limiter).enter(PLACE)
    assert one.left(raising) == 4


@KINDS
def test_a_shadow_refuses_nobody_and_is_not_told(is_async: bool) -> None:
    shadow = RouteLimit(limits="1/hour", name="shadow", mode="shadow")
    one = way(is_async)

    assert [one.enter(shadow) for _ in range(3)] == [True] * 3
    assert one.context.rule_answers == ()


def test_wrong_reports_are_clear_errors() -> None:
    context = RequestContext(RequestLimiter(), REQUEST)

    with pytest.raises(CostError, match="what was used of 'tokens' is -1"):
        context.report({"tokens": -1})
    assert context.used == {}


def test_unnamed_allowances_of_a_request_are_numbered() -> None:
    context = RequestContext(RequestLimiter(), REQUEST)

    assert [context.count_unnamed("view") for _ in range(3)] == [0, 1, 2]
