"""Reservations: amounts set aside until they are settled.

A hold is not consumption. While it is open, a check must leave room for it; when it is settled, the
actual amount is charged. Cancelled or expired, it leaves no trace. This works for every algorithm
alike: a check of cost c beside holds of h is a check of cost c + h that charges c.

A hold does not fade while it is open, whatever the pace of the limit: settle it when the amount is
known. A commit of at most the held amount always fits.

Clock: a hold that expires later than its own TTL from now was made before the clock stepped back,
and expires one TTL from now.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from headgate.algorithms.base import Algorithm, Outcome

S = TypeVar("S")


class Hold(NamedTuple):
    """An amount set aside, when it expires by itself, and its TTL (0: not known)."""

    amount: int
    expires_ns: int
    lasts_ns: int = 0


Holds = dict[str, Hold]
"""Open reservations by their name."""


def rebase_holds(holds: Holds, now: int) -> Holds:
    """Return *holds* with none that expires later than its TTL from *now*; *holds* if none does."""
    moved = {
        name: hold._replace(expires_ns=now + hold.lasts_ns)
        for name, hold in holds.items()
        if 0 < hold.lasts_ns < hold.expires_ns - now
    }
    return {**holds, **moved} if moved else holds


def open_holds(holds: Holds, now: int) -> Holds:
    """Return the holds that have not expired."""
    return {name: hold for name, hold in rebase_holds(holds, now).items() if hold.expires_ns > now}


def wait_beside(
    algorithm: Algorithm[S], state: S | None, holds: Holds, cost: int, now: int
) -> int | None:
    """Return the nanoseconds until *cost* fits beside *holds*, if none is settled before it
    expires; None if it never can."""
    waiting = sorted(holds.values(), key=lambda hold: hold.expires_ns)
    held = sum(hold.amount for hold in waiting)
    begin = now
    for hold in waiting:
        wait = algorithm.wait(state, cost + held, now)
        if wait is not None and max(begin, now + wait) < hold.expires_ns:
            return max(begin, now + wait) - now
        held -= hold.amount
        begin = max(begin, hold.expires_ns)
    wait = algorithm.wait(state, cost, now)
    return None if wait is None else max(begin, now + wait) - now


def outcome_beside(
    algorithm: Algorithm[S], state: S | None, holds: Holds, wait: int | None, now: int
) -> Outcome:
    """Return the figures of a counter with *holds*, for a cost that has to wait *wait*."""
    held = sum(hold.amount for hold in holds.values())
    last = max((hold.expires_ns for hold in holds.values()), default=now)
    return Outcome(
        allowed=wait == 0,
        remaining=max(0, algorithm.remaining(state, now) - held),
        retry_after_ns=wait,
        reset_after_ns=max(algorithm.fresh_in(state, now), last - now),
    )
