"""All or nothing over several slots: the steps, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.algorithms import Outcome
from headgate.errors import StoreError
from headgate.limits import Concurrency, FixedWindow, LeakyQueue, Limit
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    CheckOperation,
    Hold,
    Operation,
    ReleaseSlot,
    Reset,
    Settle,
    Take,
    independent_results,
)
from headgate.stores.redis.cluster import slot_groups, split
from headgate.stores.redis.naming import TAGS, Names
from headgate.stores.redis.requests import Reserve, Reserved

LIMIT = FixedWindow(5, 10)
YES = Outcome(allowed=True, remaining=4, retry_after_ns=0, reset_after_ns=9)
LESS = Outcome(allowed=True, remaining=3, retry_after_ns=0, reset_after_ns=9)
NO = Outcome(allowed=False, remaining=0, retry_after_ns=7, reset_after_ns=7)
GRANTED = Reserved((YES,), (LESS,))
REFUSED = Reserved((NO,), (NO,))
GONE = StoreError("gone", reason="unreachable")
LOST = StoreError("lost", reason="timeout")
UNSENT = StoreError("no connection", reason="unreachable", is_undone=True)


def _check(key: str, limit: Limit = LIMIT, cost: int = 2) -> Check:
    return Check("g", key, limit, cost)


def _steps(
    operation: CheckOperation[Any], *replies: list[Any]
) -> tuple[list[list[Operation[Any]]], Any]:
    """The steps of *operation* in two slots, given *replies*; and its result or error."""
    asked: list[list[Operation[Any]]] = []
    steps = split(operation, [[0], [1]])
    try:
        for reply in (None, *replies):
            step = next(steps) if reply is None else steps.send(reply)
            asked.append(list(step))
    except StopIteration as end:
        return asked, end.value
    except StoreError as error:
        return asked, error
    raise AssertionError("it wants more steps")


BOTH = (_check("a"), _check("b"))


def test_what_is_granted_everywhere_is_confirmed_everywhere() -> None:
    asked, outcomes = _steps(Take(BOTH), [GRANTED, GRANTED], [True, True])
    assert [type(part) for part in asked[0]] == [Reserve, Reserve]
    assert [part.checks for part in asked[0]] == [BOTH[:1], BOTH[1:]]  # type: ignore[attr-defined]
    name = asked[0][0].name  # type: ignore[attr-defined]
    assert asked[1] == [Settle(BOTH[:1], name, True), Settle(BOTH[1:], name, True)]
    assert outcomes == (LESS, LESS)


def test_what_is_refused_somewhere_is_given_back_where_it_was_granted() -> None:
    asked, outcomes = _steps(Take(BOTH), [GRANTED, REFUSED], [True])
    name = asked[0][0].name  # type: ignore[attr-defined]
    assert asked[1] == [Settle((_check("a", cost=0),), name, False)]
    assert outcomes == (YES, NO)


def test_a_part_that_did_not_answer_is_given_back_too() -> None:
    asked, error = _steps(Take(BOTH), [GRANTED, GONE], [True, GONE])
    assert len(asked[1]) == 2
    assert error is GONE


def test_a_confirmation_that_is_lost_changes_nothing_for_the_caller() -> None:
    _, outcomes = _steps(Take(BOTH), [GRANTED, GRANTED], [True, GONE])
    assert outcomes == (LESS, LESS)


def test_slots_are_taken_and_left_again() -> None:
    slots = _check("a", Concurrency(2, 60), 1)
    take = Take((slots, BOTH[1]), lease="me")
    asked, _ = _steps(take, [(YES,), REFUSED], [True])
    assert asked[0][0] == Take((slots,), lease="me")
    assert asked[1] == [ReleaseSlot((slots,), "me")]


def test_a_hold_is_given_back_where_it_was_granted() -> None:
    asked, outcomes = _steps(Hold(BOTH, "mine", 9), [(YES,), (NO,)], [True])
    assert asked[1] == [Settle((_check("a", cost=0),), "mine", False)]
    assert outcomes == (YES, NO)
    asked, outcomes = _steps(Hold(BOTH, "mine", 9), [(YES,), (YES,)])
    assert (len(asked), outcomes) == (1, (YES, YES))


def test_what_need_not_be_all_or_nothing_is_one_step() -> None:
    assert _steps(Charge(BOTH), [(YES,), (NO,)])[1] == (YES, NO)
    assert _steps(Take(BOTH, consume=False), [(YES,), (NO,)])[1] == (YES, NO)
    assert _steps(Settle(BOTH, "n", True), [True, False])[1] is False
    assert _steps(Reset(BOTH), [None, None])[1] is None
    assert _steps(Charge(BOTH), [(YES,), GONE])[1] is GONE


def test_outcomes_are_in_the_order_of_the_checks() -> None:
    three = (_check("a"), _check("b"), _check("a", cost=1))
    steps = split(Take(three, consume=False), [[0, 2], [1]])
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([(YES, LESS), (NO,)])
    assert end.value.value == (YES, NO, LESS)


def test_checks_are_grouped_by_what_can_be_asked_together() -> None:
    checks = tuple(_check(f"user:{n}") for n in range(200))
    assert len(slot_groups(Take(checks), Names(has_tags=False))) == 1
    groups = slot_groups(Take(checks), Names(has_tags=True))
    assert len(groups) == TAGS
    assert sorted(place for group in groups for place in group) == list(range(200))
    stack = tuple(Check(f"g{n}", "user", LIMIT) for n in range(5))
    assert len(slot_groups(Take(stack), Names(has_tags=True))) == 1


@pytest.mark.parametrize(
    ("operation", "results", "is_undone"),
    [
        (Charge(BOTH), [UNSENT, UNSENT], True),
        (Charge(BOTH), [(YES,), UNSENT], False),
        (Charge(BOTH), [LOST, UNSENT], False),
        (Charge(BOTH), [UNSENT, LOST], False),
        (Take(BOTH), [GRANTED, UNSENT], True),
        (Take(BOTH), [REFUSED, UNSENT], True),
        (Take(BOTH), [LOST, UNSENT], False),
    ],
)
def test_it_is_undone_if_no_part_was_done_or_all_were_given_back(
    operation: CheckOperation[Any], results: list[Any], *, is_undone: bool
) -> None:
    copies = [one.copied() if isinstance(one, StoreError) else one for one in results]
    _, error = _steps(operation, copies, [True, True])
    assert error.is_undone == is_undone


@pytest.mark.parametrize("errors", [[UNSENT, LOST], [LOST, UNSENT], [LOST, LOST]])
def test_of_takes_that_all_failed_one_is_told_that_may_have_been_made(
    errors: list[StoreError],
) -> None:
    with pytest.raises(StoreError) as failure:
        independent_results(errors)
    assert not failure.value.is_undone
    with pytest.raises(StoreError) as failure:
        independent_results([UNSENT, UNSENT])
    assert failure.value.is_undone


QUEUE = LeakyQueue(10, 5)
QUEUED = Take((_check("a"), _check("b", QUEUE)))
NEXT = Outcome(True, 3, 0, 9, delay_ns=5, place_ns=105)


def test_a_turn_is_looked_at_first_and_taken_when_all_else_is_reserved() -> None:
    replies: list[list[Any]] = [[GRANTED, (YES,)], [(NEXT,)], [True]]
    asked, outcomes = _steps(QUEUED, *replies)
    assert asked[0][1] == Take(QUEUED.checks[1:], consume=False)
    assert asked[1] == [Take(QUEUED.checks[1:])]
    assert [type(part) for part in asked[2]] == [Settle]
    assert outcomes == (LESS, NEXT)


def test_a_queue_that_is_full_takes_nothing_from_anybody() -> None:
    asked, outcomes = _steps(QUEUED, [GRANTED, (NO,)], [True])
    assert [[type(part) for part in step] for step in asked] == [[Reserve, Take], [Settle]]
    assert outcomes == (YES, NO)
    asked, outcomes = _steps(QUEUED, [REFUSED, (NEXT,)], [])
    assert [[type(part) for part in step] for step in asked] == [[Reserve, Take], []]
    assert outcomes == (NO, NEXT)


def test_of_several_queues_those_that_were_taken_are_vacated_if_one_has_filled_up() -> None:
    both = Take((_check("a", QUEUE), _check("b", QUEUE)))
    asked, outcomes = _steps(both, [(YES,), (YES,)], [(NEXT,), (NO,)], [True])
    assert asked[2] == [CancelQueued(both.checks[:1], (105,))]
    assert outcomes == (NEXT, NO)
    asked, error = _steps(both, [(YES,), (YES,)], [(NEXT,), GONE], [True])
    assert asked[2] == [CancelQueued(both.checks[:1], (105,))]
    assert error is GONE


def test_turns_are_given_up_where_they_are() -> None:
    checks = (_check("a", QUEUE), _check("b", QUEUE))
    asked, result = _steps(CancelQueued(checks, (105, 205)), [True, False])
    assert asked == [[CancelQueued(checks[:1], (105,)), CancelQueued(checks[1:], (205,))]]
    assert result is False


def test_a_reservation_in_a_queue_is_vacated_if_it_is_refused_elsewhere() -> None:
    hold = Hold((_check("a", QUEUE), _check("b")), "r", 10)
    asked, _ = _steps(hold, [(NEXT,), (NO,)], [True, True])
    nothing = (_check("a", QUEUE, 0),)
    assert asked[1] == [Settle(nothing, "r", False), CancelQueued(hold.checks[:1], (105,))]
