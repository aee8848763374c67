"""Operations on limits without a counter: what of them is decided before a store is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.algorithms import algorithm_for
from headgate.errors import StoreError
from headgate.limits import ConstantLimit
from headgate.stores.operations import (
    Charge,
    Check,
    Hold,
    Operation,
    Outcomes,
    Refund,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.algorithms import Outcome

NO_TIME: Final = 0
"""The time for arithmetic in which no time matters."""


@dataclass(frozen=True, slots=True)
class Divided:
    """The part of an operation that a store has to carry out, and what to make of its reply."""

    rest: Operation[Any] | None
    """None: there is no such part. `join` then takes None in place of a reply."""
    join: Callable[[Any], Any]
    """Return the reply of the whole operation from that of *rest*."""


def is_constant(operation: Operation[Any]) -> bool:
    """Return True if no store is needed to carry *operation* out."""
    divided = divide(operation)
    return divided is not None and divided.rest is None


def divide(operation: Operation[Any]) -> Divided | None:
    """Take the checks without a counter out of *operation*; None if there are none.

    Other checks that are asked together with one that denies are only looked at.
    """
    if isinstance(operation, TakeEach):
        return _divide_each(operation)
    if not isinstance(operation, Take | TakeUpTo | Hold | Settle | Charge | Refund):
        return None
    kept = tuple([one for one in operation.checks if not isinstance(one.limit, ConstantLimit)])
    if len(kept) == len(operation.checks):
        return None
    if isinstance(operation, Settle):
        settle = replace(operation, checks=kept) if kept else None
        return Divided(settle, lambda was_open: was_open is not False)
    if isinstance(operation, TakeUpTo):
        return _divide_up_to(operation, kept)
    checks = operation.checks
    if isinstance(operation, Charge | Refund):
        checks = tuple([replace(check, cost=1) for check in checks])
    rest: Operation[Outcomes] = replace(operation, checks=kept)
    if isinstance(operation, Take | Hold) and _is_denied(checks):
        rest = Take(kept, consume=False)
    return Divided(rest if kept else None, lambda outcomes: _joined(checks, outcomes))


def _divide_up_to(operation: TakeUpTo, kept: tuple[Check, ...]) -> Divided:
    checks = operation.checks
    if _is_denied(checks):
        look = Take(kept, consume=False) if kept else None
        return Divided(look, lambda outcomes: (0, _joined(checks, outcomes)))

    def joined(reply: tuple[int, Outcomes] | None) -> tuple[int, Outcomes]:
        granted, outcomes = (checks[0].cost, None) if reply is None else reply
        return granted, _joined(checks, outcomes)

    return Divided(TakeUpTo(kept) if kept else None, joined)


def _divide_each(operation: TakeEach) -> Divided | None:
    divided = [divide(take) for take in operation.takes]
    if not any(divided):
        return None
    pairs = list(zip(operation.takes, divided, strict=True))
    asked = [take if parts is None else parts.rest for take, parts in pairs]
    rest = tuple([one for one in asked if isinstance(one, Take)])

    def joined(replies: tuple[Any, ...] | None) -> tuple[Outcomes | StoreError, ...]:
        left = iter(replies or ())
        results: list[Outcomes | StoreError] = []
        for parts, one in zip(divided, asked, strict=True):
            reply: Any = None if one is None else next(left)
            if parts is not None and not isinstance(reply, StoreError):
                reply = parts.join(reply)
            results.append(reply)
        return tuple(results)

    return Divided(TakeEach(rest) if rest else None, joined)


def _is_denied(checks: tuple[Check, ...]) -> bool:
    return any(
        check.cost and not check.limit.quota
        for check in checks
        if isinstance(check.limit, ConstantLimit)
    )


def _joined(checks: tuple[Check, ...], outcomes: Outcomes | None) -> Outcomes:
    """The outcome of each check: of those without a counter here, of the others *outcomes*."""
    left: Iterator[Outcome] = iter(outcomes or ())
    return tuple(
        [
            _outcome(check) if isinstance(check.limit, ConstantLimit) else next(left)
            for check in checks
        ]
    )


def _outcome(check: Check) -> Outcome:
    algorithm = algorithm_for(check.limit)
    wait = algorithm.wait(None, check.cost, NO_TIME) if check.cost else 0
    return algorithm.outcome(None, wait, NO_TIME)
