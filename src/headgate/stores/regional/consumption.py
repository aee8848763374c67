"""What an operation has consumed, from what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from headgate.errors import StoreError
from headgate.stores.operations import (
    Charge,
    Check,
    Lend,
    Lent,
    Operation,
    Outcomes,
    Refund,
    Settle,
    Take,
    TakeEach,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Consumed = tuple[Check, int]
"""A counter, and how much more of it is used; less, if negative."""


def consumption(operation: Operation[Any], result: Any) -> Iterator[Consumed]:
    """What *operation* has used of each counter, now that *result* came of it.

    What is held is used when it is settled. What is lent in advance (a lease) is used when it is
    lent, but for what is given back in the same breath; what is used under a licence, when it is
    told. Pots hold what was lent before, and what other regions have used is not used here.
    """
    match operation:
        case TakeEach(takes):
            for take, outcomes in zip(takes, result, strict=True):
                if not isinstance(outcomes, StoreError):
                    yield from consumption(take, cast("Outcomes", outcomes))
        case Lend(check):
            yield check, _lent(operation, result)
        case Refund(checks):
            for check in checks:
                yield check, -check.cost
        case Take(checks) | Charge(checks) | Settle(checks):
            if _is_charged(operation, result):
                for check in checks:
                    yield check, check.cost
        case _:
            return


def _is_charged(operation: Take | Charge | Settle, result: Any) -> bool:
    """Whether the costs of *operation* have been charged."""
    if isinstance(operation, Take):
        return operation.consume and all(outcome.allowed for outcome in result)
    return isinstance(operation, Charge) or bool(result) or operation.charge_lapsed


def _lent(lend: Lend, lent: Lent) -> int:
    taken = lend.check.cost if lent.outcome.allowed else 0
    if lend.is_charged:
        # Units that are given back were never used, whether or not the store took them back.
        return taken + lent.amount - lend.unused
    return taken + max(lend.used - lend.told, 0)
