"""What each operation does to its counters, inside one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.errors import UsageError
from headgate.stores.base import refuse_concurrency
from headgate.stores.counter import refuse_slots
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    Hold,
    Operation,
    Outcomes,
    PublishValue,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
)
from headgate.stores.shm.transaction import Opened, Transaction, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.shm.file import File

Costs = list[tuple[Opened, int]]
"""Counters, and what is asked of each."""


def carry_out(operation: Operation[Any], file: File, now: int) -> Any:
    """Do *operation*; the caller has the turn. What it writes is written at its end, at once."""
    if isinstance(operation, TakeEach):
        return tuple(carry_out(take, file, now) for take in operation.takes)
    verb = _VERBS.get(type(operation))
    if verb is None:
        raise UsageError(f"a store in shared memory does not know {type(operation).__name__}")
    transaction = Transaction(file, now)
    reply = verb(operation, transaction)
    transaction.commit()
    return reply


def take(operation: Take, transaction: Transaction) -> Outcomes:
    opened = _open(operation.checks, transaction)
    waits = [counter.wait(cost) for counter, cost in opened]
    if operation.consume and waits.count(0) == len(waits):
        for counter, cost in opened:
            if operation.lease is not None and counter.has_slots:
                counter.enter(operation.lease)
            else:
                counter.charge(cost)
            counter.close()
    outcomes = _outcomes(opened, waits)
    if operation.consume and operation.lease is not None:
        refuse_slots(opened, waits)
    return outcomes


def _hold(operation: Hold, transaction: Transaction) -> Outcomes:
    refuse_concurrency([check.limit for check in operation.checks], "reserve")
    opened = _open(operation.checks, transaction)
    waits = [counter.wait(cost) for counter, cost in opened]
    if waits.count(0) == len(waits):
        for counter, cost in opened:
            counter.hold(operation.name, cost, operation.ttl_ns)
            counter.close()
    return _outcomes(opened, waits)


def _settle(operation: Settle, transaction: Transaction) -> bool:
    was_open = True
    for counter, cost in _open(operation.checks, transaction):
        late = operation.charge_lapsed
        was_open &= counter.settle(operation.name, cost, charge_lapsed=late)
        counter.close()
    return was_open


def _charge(operation: Charge, transaction: Transaction) -> Outcomes:
    refuse_concurrency([check.limit for check in operation.checks], "charge")
    opened = _open(operation.checks, transaction)
    for counter, cost in opened:
        counter.charge(cost)
        counter.close()
    return tuple(counter.outcome_of_one() for counter, _ in opened)


def _refund(operation: Refund, transaction: Transaction) -> Outcomes:
    refuse_concurrency([check.limit for check in operation.checks], "refund")
    opened = _open(operation.checks, transaction)
    for counter, cost in opened:
        counter.refund(cost)
        counter.close()
    return tuple(counter.outcome_of_one() for counter, _ in opened)


def _reset(operation: Reset, transaction: Transaction) -> None:
    for check in operation.checks:
        transaction.drop(check.group, check.key)


def _renew(operation: RenewSlot, transaction: Transaction) -> bool:
    opened = [counter for counter, _ in _open(operation.checks, transaction)]
    has_all = all(counter.has_slot(operation.lease) for counter in opened)
    if has_all:
        for counter in opened:
            counter.renew(operation.lease)
            counter.close()
    return has_all


def _leave(operation: ReleaseSlot, transaction: Transaction) -> bool:
    had_all = True
    for counter, _ in _open(operation.checks, transaction):
        had_all &= counter.has_slot(operation.lease)
        counter.leave(operation.lease)
        counter.close()
    return had_all


def _vacate(operation: CancelQueued, transaction: Transaction) -> bool:
    opened = _open(operation.checks, transaction)
    had_all = True
    for (counter, cost), turn_ns in zip(opened, operation.turns_ns, strict=True):
        had_all &= counter.vacate(turn_ns, cost)
        counter.close()
    return had_all


_VERBS: Final[dict[type, Callable[[Any, Transaction], Any]]] = {
    Take: take,
    Hold: _hold,
    Settle: _settle,
    Charge: _charge,
    Refund: _refund,
    Reset: _reset,
    RenewSlot: _renew,
    ReleaseSlot: _leave,
    CancelQueued: _vacate,
    PublishValue: share,
}


def _open(checks: tuple[Check, ...], transaction: Transaction) -> Costs:
    """The counter of each check and its cost; checks of one counter share it."""
    by_name: dict[bytes, Opened] = {}
    opened = []
    for check in checks:
        spot = transaction.spot(check.group, check.key, check.limit)
        counter = by_name.get(spot.name)
        if counter is None:
            counter = by_name[spot.name] = Opened(transaction, spot, check.limit)
        opened.append((counter, check.cost))
    return opened


def _outcomes(opened: Costs, waits: list[int | None]) -> Outcomes:
    pairs = zip(opened, waits, strict=True)
    return tuple([counter.outcome(wait) for (counter, _), wait in pairs])
