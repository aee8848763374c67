"""A request passes gates: granted, refused, settled; in apps that block and in those that do not.

Each test runs in both.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.errors import CostError
from headgate.integrations import Allowance, Gate, Passage, Responded
from headgate.integrations.passing import enter, enter_async, finish, finish_async
from headgate.limits import Concurrency
from headgate.testing import ManualClock
from tests.support.heartbeats import listened

REQUEST = Request(peer="1.2.3.4")
OK = Responded(200)
KINDS = pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])


class Way:
    """The way of one request through *gate*, in verbs that are the same for both kinds."""

    def __init__(self, gate: Gate, *, is_async: bool) -> None:
        self.gate, self.is_async = gate, is_async
        self.passage = Passage(gate)

    def enter(self, *allowances: Allowance[Any]) -> bool:
        pairs = [(one, one.own_names) for one in allowances]
        asking = self.gate.entry_for(pairs, REQUEST, REQUEST)
        if self.is_async:
            return asyncio.run(enter_async(self.passage, self.gate, asking))
        return enter(self.passage, self.gate, asking)

    def finish(self, responded: Responded = OK) -> None:
        if self.is_async:
            asyncio.run(finish_async(self.passage, responded))
        else:
            finish(self.passage, responded)

    def left(self, allowance: Allowance[Any]) -> int:
        """What is left of *allowance* for somebody who asks at no cost."""
        look = Way(self.gate, is_async=self.is_async)
        free: Allowance[Any] = Allowance(limits=allowance.limits, name=allowance.name, cost=0)
        assert look.enter(free)
        return look.passage.told[0].decision.remaining


def way(is_async: bool, gate: Gate | None = None) -> Way:
    return Way(gate or Gate(clock=ManualClock(7_200)), is_async=is_async)


FIVE: Allowance[Any] = Allowance(limits="5/hour fixed_window", name="five")
ONE: Allowance[Any] = Allowance(limits="1/hour fixed_window", name="one")
PLACE: Allowance[Any] = Allowance(limits=Concurrency(1, 600), name="place")
HELD: Allowance[Any] = Allowance(
    limits="5/hour fixed_window", name="held", cost=2, is_estimate=True
)


@KINDS
def test_a_refusal_gives_back_all_that_was_granted_before(is_async: bool) -> None:
    first = way(is_async)
    assert first.enter(ONE)
    second = way(is_async, first.gate)

    assert second.enter(FIVE)
    assert second.enter(PLACE)
    assert second.enter(HELD)
    assert not second.enter(ONE)
    assert [told.name for told in second.passage.answer().told] == ["one"]
    assert second.left(FIVE) == 5
    assert second.left(HELD) == 5
    assert way(is_async, first.gate).enter(PLACE)


def test_a_refusal_ends_the_beat_of_what_was_granted_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heart, one = listened(monkeypatch), way(is_async=False)
    assert way(is_async=False, gate=one.gate).enter(ONE)
    assert one.enter(PLACE)
    assert heart.are_wanted == [True]
    assert not one.enter(ONE)
    assert heart.are_wanted == [False]


@KINDS
def test_allowances_asked_together_are_all_or_nothing(is_async: bool) -> None:
    first = way(is_async)
    assert first.enter(ONE, FIVE)

    assert not way(is_async, first.gate).enter(FIVE, ONE)
    assert first.left(FIVE) == 4


@KINDS
def test_a_place_is_free_at_the_end_and_a_second_end_does_nothing(is_async: bool) -> None:
    first = way(is_async)
    assert first.enter(PLACE)
    assert not way(is_async, first.gate).enter(PLACE)
    first.finish()
    second = way(is_async, first.gate)
    assert second.enter(PLACE)
    first.finish()
    assert not way(is_async, first.gate).enter(PLACE)


@KINDS
@pytest.mark.parametrize(("used", "left"), [(None, 3), (0, 5), (1, 4), (5, 0)])
def test_what_was_held_is_settled_for_what_was_used(
    is_async: bool, used: int | None, left: int
) -> None:
    one = way(is_async)
    assert one.enter(HELD)
    assert one.left(HELD) == 3
    if used is not None:
        one.passage.report({"held": used})
    one.finish()

    assert one.left(HELD) == left


@KINDS
@pytest.mark.parametrize(("status", "left"), [(200, 5), (401, 4)])
def test_the_outcome_decides_whether_it_counts(is_async: bool, status: int, left: int) -> None:
    allowance: Allowance[Any] = Allowance(
        limits="5/hour fixed_window",
        name="login",
        charge_when=lambda responded: responded.status == 401,
    )
    one = way(is_async)
    assert one.enter(allowance)
    one.finish(Responded(status))

    assert one.left(allowance) == left


@KINDS
def test_an_outcome_that_does_not_count_costs_nothing_whatever_was_reported(
    is_async: bool,
) -> None:
    allowance: Allowance[Any] = Allowance(
        limits="5/hour fixed_window",
        name="both",
        is_estimate=True,
        charge_when=lambda responded: responded.error is None,
    )
    one = way(is_async)
    assert one.enter(allowance)
    one.passage.report({"both": 4})
    one.finish(Responded(500, error=ZeroDivisionError()))

    assert one.left(allowance) == 5


@KINDS
def test_one_that_raises_at_the_end_does_not_keep_the_others_from_ending(is_async: bool) -> None:
    def counts(responded: Responded) -> bool:
        raise LookupError("which?")

    raising: Allowance[Any] = Allowance(limits="5/hour", name="raising", charge_when=counts)
    one = way(is_async)
    assert one.enter(PLACE)
    assert one.enter(raising)
    with pytest.raises(LookupError, match="which"):
        one.finish()

    assert way(is_async, one.gate).enter(PLACE)
    assert one.left(raising) == 4


@KINDS
def test_a_shadow_refuses_nobody_and_is_not_told(is_async: bool) -> None:
    shadow: Allowance[Any] = Allowance(limits="1/hour", name="shadow", mode="shadow")
    one = way(is_async)

    assert [one.enter(shadow) for _ in range(3)] == [True] * 3
    assert one.passage.told == []


def test_wrong_reports_are_clear_errors() -> None:
    passage = Passage(Gate())

    with pytest.raises(CostError, match="what was used of 'tokens' is -1"):
        passage.report({"tokens": -1})
    assert passage.used == {}


def test_unnamed_allowances_of_a_request_are_numbered() -> None:
    passage = Passage(Gate())

    assert [passage.next_unnamed() for _ in range(3)] == [0, 1, 2]
