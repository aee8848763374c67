"""Operations on limits without a counter: the part of them that needs no store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headgate.algorithms import Outcome
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
    from collections.abc import Callable


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
    checks = operation.checks
    if isinstance(operation, Charge | Refund):
        checks = tuple([replace(check, cost=1) for check in checks])
    is_denied = isinstance(operation, Take | TakeUpTo | Hold) and not all(map(_is_allowed, checks))
    rest: Operation[Any] = replace(operation, checks=kept)
    if is_denied:
        rest = Take(kept, consume=False)

    def joined(reply: Any) -> Any:
        if isinstance(operation, Settle):
            return reply is not False
        if not isinstance(operation, TakeUpTo):
            return _joined(checks, reply)
        if is_denied or reply is None:
            reply = 0 if is_denied else checks[0].cost, reply
        granted, outcomes = reply
        return granted, _joined(checks, outcomes)

    return Divided(rest if kept else None, joined)


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


def _is_allowed(check: Check) -> bool:
    """Return False if *check* is denied without a counter."""
    return not (check.cost and isinstance(check.limit, ConstantLimit) and not check.limit.quota)


def _joined(checks: tuple[Check, ...], outcomes: Outcomes | None) -> Outcomes:
    """The outcome of each check: of those without a counter here, of the others *outcomes*."""
    left = iter(outcomes or ())
    return tuple(
        [
            _outcome(check) if isinstance(check.limit, ConstantLimit) else next(left)
            for check in checks
        ]
    )


def _outcome(check: Check) -> Outcome:
    is_allowed = _is_allowed(check)
    return Outcome(is_allowed, check.limit.quota, 0 if is_allowed else None, 0)
