"""The way of a take that may be decided here, in part here, or by the store: without I/O.

Both shells drive the same generators. What a step yields is to be done, and its reply sent in: a
`GrantLease` is an exchange, a `Take`, `TakeEach` or `Errand` is for the store, anything else is to
be waited for; None for a reply says that nobody wants to wait any longer.
Should that fail, the generator is closed, and what was taken here is put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.stores.layers.leases.pots import drawing
from headgate.stores.layers.leases.served import Served
from headgate.stores.operations import GrantLease, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from headgate.stores.layers.leases.desk import Desk
    from headgate.stores.layers.leases.pots import Errand
    from headgate.stores.layers.leases.served import Begun
    from headgate.stores.operations import Check, Outcomes

F = TypeVar("F")


def taking(
    desk: Desk[F], take: Take, new_flight: Callable[[], F]
) -> Generator[GrantLease | Take | TakeEach | Errand | F, Any, list[Served]]:
    """Take all checks of *take* or none; what each came to."""
    checks = take.checks
    asked: set[tuple[str, str]] = set()
    is_patient = is_first = True
    while True:
        begun = desk.begin(checks)
        if not begun.rest:
            return [one for one in begun.served if one is not None]
        if is_first and len(checks) == 1 and not begun.is_refused:
            is_first = False
            drawn = yield from drawing(desk, checks[0])
            if drawn is not None:
                return [drawn]
        is_settled = False
        try:
            if is_patient and not begun.is_refused:
                step = _borrowing(desk, begun, checks, asked, new_flight)
                if step is not None:
                    desk.put_back(begun.taken)
                    is_settled = True
                    reply = yield step
                    if isinstance(step, GrantLease) and step.check is checks[0]:
                        return [Served(reply.outcome, "store")]
                    is_patient = reply is not None
                    continue
            sent_ns = desk.clock()
            outcomes: Outcomes = yield _rest(take, begun)
            is_settled = all(one.allowed for one in outcomes)
        finally:
            if not is_settled:
                desk.put_back(begun.taken)
        rest = checks if begun.is_refused else begun.rest
        if not is_settled:
            desk.note(rest, outcomes, sent_ns)
        return _together(begun, outcomes, are_taken=is_settled)


def _borrowing(
    desk: Desk[F],
    begun: Begun,
    checks: Sequence[Check],
    asked: set[tuple[str, str]],
    new_flight: Callable[[], F],
) -> GrantLease | F | None:
    """What to ask for, or to wait for, before the rest of *checks* is taken; None: nothing.

    A check that stands alone is taken with the loan. Of several each is borrowed for, once.
    """
    is_alone = len(checks) == 1
    for check in begun.rest:
        place = check.group, check.key
        if check.cost > 0 and place not in asked and desk.book.governs(check.group):
            step = desk.ask(check, takes=is_alone, flight=new_flight())
            if not is_alone and isinstance(step, GrantLease):
                asked.add(place)
            if step is not None:
                return step
    return None


def _rest(take: Take, begun: Begun) -> Take:
    """What the store is to decide of *take*: all of it, if something is known to be refused, since
    only the store has the figures of the others."""
    if begun.is_refused or len(begun.rest) == len(take.checks):
        return take
    return Take(begun.rest, lease=take.lease)


def _together(begun: Begun, outcomes: Outcomes, *, are_taken: bool) -> list[Served]:
    """What each check came to, here or in the store."""
    if begun.is_refused:
        return [Served(outcome, "store") for outcome in outcomes]
    told = iter(outcomes)
    taken = iter(begun.taken)
    served = []
    for one in begun.served:
        if one is None:
            served.append(Served(next(told), "store"))
            continue
        cost = 0 if are_taken else next(taken).cost
        left = one.outcome.remaining + cost
        served.append(Served(one.outcome._replace(remaining=left), one.source))
    return served


def taking_each(
    desk: Desk[F], operation: TakeEach
) -> Generator[GrantLease | Take | TakeEach | F, Any, tuple[Outcomes | StoreError, ...]]:
    """Each take by itself, one round trip for all that need the store. What is asked for often is
    borrowed afterwards, when nobody waits for it."""
    started = [desk.begin(take.checks) if take.consume else None for take in operation.takes]
    pairs = list(zip(operation.takes, started, strict=True))
    needed = [
        take if begun is None else _rest(take, begun)
        for take, begun in pairs
        if begun is None or begun.rest
    ]
    replies: tuple[Outcomes | StoreError, ...] = ()
    sent_ns = desk.clock()
    try:
        if needed:
            replies = yield TakeEach(tuple(needed))
    finally:
        if needed and not replies:
            for begun in started:
                if begun is not None and begun.rest:
                    desk.put_back(begun.taken)
    told = iter(zip(needed, replies, strict=True))
    return tuple(
        [
            _outcomes_here(begun)
            if begun is not None and not begun.rest
            else _outcomes_of(desk, begun, *next(told), sent_ns)
            for begun in started
        ]
    )


def _outcomes_here(begun: Begun) -> Outcomes:
    return tuple([one.told for one in begun.served if one is not None])


def _outcomes_of(
    desk: Desk[F], begun: Begun | None, asked: Take, reply: Outcomes | StoreError, sent_ns: int
) -> Outcomes | StoreError:
    """What a take came to of which the store was *asked* the rest."""
    if begun is None:
        return reply
    is_taken = not isinstance(reply, StoreError) and all(one.allowed for one in reply)
    if not is_taken:
        desk.put_back(begun.taken)
    if isinstance(reply, StoreError):
        return reply
    desk.note(asked.checks, reply, sent_ns)
    if is_taken:
        desk.borrow_soon(asked.checks)
    return tuple([one.told for one in _together(begun, reply, are_taken=is_taken)])
