"""Operations whose keys are in different slots of a cluster, as steps of operations of one slot.

A step is a list of operations that may run at the same time. All or nothing takes two steps here:
every part is reserved, and then all parts are confirmed or all are given back. Reserved units are
not free for other callers, so a check that was allowed is charged in full. If the caller dies in
between, its units stay reserved until the reservation expires, after `CONFIRM_WITHIN_NS` at most:
in those slots that were not confirmed, nothing is charged.

A place in a queue cannot be reserved and confirmed: it is taken. So queues are read first, and
taken from once all else is reserved. Only if one of several has filled up in between, places are
given up again; one whose time has come by then is lost.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import StoreError, UsageError
from headgate.limits import Concurrency
from headgate.stores.base import refuse_partial, refuse_undivided
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    CheckOperation,
    GrantLease,
    Hold,
    MergeUsage,
    Operation,
    Outcomes,
    Refund,
    ReleaseSlot,
    Reset,
    Settle,
    Take,
    TakeUpTo,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.stores.redis.naming import Names

C = TypeVar("C", bound=CheckOperation[Any])

CONFIRM_WITHIN_NS: Final = 10 * SECOND
"""Time that a part of a check stays reserved if its caller dies before it confirms."""

Steps = Generator[Sequence[Operation[Any]], list[Any], Any]
"""Yields operations to run, is sent their results (or a `StoreError` each), returns one."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """Outcomes of a reservation that is confirmed at once: before it, and after the charge."""

    before: Outcomes
    after: Outcomes


@dataclass(frozen=True, slots=True)
class Reserve(Hold):
    """A hold that is confirmed at once. Its reply is a `Reserved`."""


Group = list[int]
"""The places, in the operation, of the checks whose counters are in one slot."""


def slot_groups(operation: Operation[Any], names: Names) -> list[Group]:
    """Return the checks of *operation* by slot; one group if one request is enough.

    Raises `UsageError` for one that is not for slots, or whose keys have to be in one slot.
    """
    if isinstance(operation, GrantLease):
        refuse_undivided((operation.check.limit,), "lend")
    if not isinstance(operation, CheckOperation):
        return [[0]]
    if isinstance(operation, MergeUsage):
        refuse_undivided((check.limit for check in operation.checks), "absorb")
    found: dict[bytes, Group] = {}
    for place, check in enumerate(operation.checks):
        tag = names.tag(names.counter(check.group, check.key))
        found.setdefault(tag, []).append(place)
    if isinstance(operation, TakeUpTo):
        refuse_partial([check.limit for check in operation.checks], "hit_up_to")
        if len(found) > 1:
            raise UsageError("the checks of a TakeUpTo have different keys; expected one key")
    return list(found.values())


def independent_results(results: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of independent takes.

    A `StoreError` stays in its place, unless all are such: then one is raised, if there is any one
    after which something may have been done. Other errors are raised.
    """
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, StoreError):
            raise result
    errors = [result for result in results if isinstance(result, StoreError)]
    if errors and len(errors) == len(results):
        raise min(errors, key=lambda error: error.is_undone)
    return tuple(results)


def first_name(operation: Operation[Any], names: Names) -> bytes:
    """Return the name of the first counter of *operation*."""
    subject: Any = operation
    if isinstance(operation, CheckOperation):
        subject = operation.checks[0]
    elif isinstance(operation, GrantLease):
        subject = operation.check
    return names.counter(subject.group, subject.key)


def split(operation: CheckOperation[Any], groups: list[Group]) -> Steps:
    """Return the steps of *operation*, whose checks are in several *groups*."""
    match operation:
        case Take(consume=True):
            return _take(operation, groups)
        case Hold():
            return _hold(operation, groups)
        case _:
            return _each(operation, groups)


def _each(operation: CheckOperation[Any], groups: list[Group]) -> Steps:
    """Run each part by itself."""
    results = yield [_part(operation, group) for group in groups]
    _raise_first(results, is_given_back=False)
    if isinstance(operation, Take | Charge | Refund | MergeUsage):
        return _in_order(groups, results)
    return None if isinstance(operation, Reset) else all(results)


def _hold(operation: Hold, groups: list[Group]) -> Steps:
    parts = [_part(operation, group) for group in groups]
    results = yield parts
    if not all(_is_granted(result) for result in results):
        yield _undoing(parts, results)
    _raise_first(results, is_given_back=True)
    return _in_order(groups, results)


def _take(operation: Take, groups: list[Group]) -> Steps:
    name = token_hex(12)
    parts: list[Reserve | Take] = []
    places: list[Group] = []
    for group in groups:
        rates = [n for n in group if operation.checks[n].limit.is_divisible]
        slots = [n for n in group if isinstance(operation.checks[n].limit, Concurrency)]
        queues = [n for n in group if n not in rates and n not in slots]
        if rates:
            parts.append(Reserve(_checks(operation, rates), name, CONFIRM_WITHIN_NS))
            places.append(rates)
        if slots:
            parts.append(Take(_checks(operation, slots), lease=operation.lease))
            places.append(slots)
        if queues:
            parts.append(Take(_checks(operation, queues), consume=False))
            places.append(queues)
    results = yield parts
    if all(_is_granted(result) for result in results):
        yield from _enter_queues(parts, results)
    if all(_is_granted(result) for result in results):
        yield [Settle(part.checks, name, charge_lapsed=True)
               for part in parts if isinstance(part, Reserve)]  # fmt: skip
        return _in_order(places, [_after(result) for result in results])
    yield _undoing(parts, results)
    _raise_first(results, is_given_back=True)
    return _in_order(places, [_before(result) for result in results])


def _enter_queues(parts: list[Reserve | Take], results: list[Any]) -> Steps:
    """Take places in the queues that were read; replace their *parts* and *results*."""
    looks = [n for n, part in enumerate(parts) if isinstance(part, Take) and not part.consume]
    if looks:
        takes = [Take(parts[n].checks) for n in looks]
        taken = yield takes
        for n, take, result in zip(looks, takes, taken, strict=True):
            parts[n], results[n] = take, result


def _undoing(parts: Sequence[Hold | Take], results: list[Any]) -> list[Operation[Any]]:
    """Return operations that give back all that was reserved or taken, or may have been."""
    undoing: list[Operation[Any]] = []
    for part, result in zip(parts, results, strict=True):
        if not isinstance(result, StoreError) and not _is_granted(result):
            continue  # (a server that did not reply may have granted it)
        if isinstance(part, Hold):
            nothing = tuple(replace(check, cost=0) for check in part.checks)
            undoing.append(Settle(nothing, part.name, charge_lapsed=False))
        elif isinstance(part.checks[0].limit, Concurrency):
            undoing.append(ReleaseSlot(part.checks, part.lease or ""))
        if (isinstance(part, Hold) or part.consume) and not isinstance(result, StoreError):
            undoing += _vacating(part.checks, _before(result))
    return undoing


def _vacating(checks: Sequence[Check], outcomes: Outcomes) -> list[CancelQueued]:
    """Return operations that give up the places in queues among *outcomes*."""
    queued = [(c, one.turn_ns) for c, one in zip(checks, outcomes, strict=True) if one.turn_ns]
    if not queued:
        return []
    places, turns_ns = zip(*queued, strict=True)
    return [CancelQueued(places, turns_ns)]


def _part(operation: C, group: Group) -> C:
    """Return the part of *operation* for the checks of *group*."""
    part = replace(operation, checks=_checks(operation, group))
    if isinstance(part, CancelQueued):
        return replace(part, turns_ns=tuple([part.turns_ns[place] for place in group]))
    return part


def _is_granted(result: Any) -> bool:
    if isinstance(result, StoreError):
        return False
    return all(outcome.allowed for outcome in _before(result))


def _before(result: Reserved | Outcomes) -> Outcomes:
    return result.before if isinstance(result, Reserved) else result


def _after(result: Reserved | Outcomes) -> Outcomes:
    return result.after if isinstance(result, Reserved) else result


def _checks(operation: CheckOperation[Any], group: Group) -> tuple[Check, ...]:
    return tuple(operation.checks[place] for place in group)


def _in_order(groups: list[Group], results: list[Outcomes]) -> Outcomes:
    """Return the outcomes of all groups, in the order of the checks."""
    by_place: dict[int, Outcome] = {}
    for group, outcomes in zip(groups, results, strict=True):
        by_place.update(zip(group, outcomes, strict=True))
    return tuple(by_place[place] for place in sorted(by_place))


def _raise_first(results: list[Any], *, is_given_back: bool) -> None:
    """Raise the first error, if there is one.

    It is undone if no part was done, or if the parts that were done are given back.
    """
    errors = [result for result in results if isinstance(result, StoreError)]
    if not errors:
        return
    is_undone = is_given_back or len(errors) == len(results)
    errors[0].is_undone = is_undone and all(error.is_undone for error in errors)
    raise errors[0]
