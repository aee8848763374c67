"""Reservations: amounts set aside until they are settled.

A hold is not consumption. It is set aside: as long as it is open, a check must leave room for it,
and when it is settled the actual amount is charged then. Cancelled or expired, it leaves no trace,
exactly as if it had never been. This works for every algorithm alike, because a check of cost c
beside holds of h is a check of cost c + h that charges c.

A hold does not fade while it is open, whatever the limit's pace: settle it when the amount is
known. A commit of at most the held amount always fits.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from headgate.algorithms.base import Algorithm, Outcome

S = TypeVar("S")


class Hold(NamedTuple):
    """An amount set aside, and when it lapses by itself."""

    amount: int
    expires_ns: int


Holds = dict[str, Hold]
"""Open reservations by their name."""


def open_holds(holds: Holds, now: int) -> Holds:
    """Those that have not lapsed."""
    return {name: hold for name, hold in holds.items() if hold.expires_ns > now}


def wait_beside(
    algorithm: Algorithm[S], state: S | None, holds: Holds, cost: int, now: int
) -> int | None:
    """Nanoseconds until *cost* fits beside *holds*, if none of them is settled before it lapses."""
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
    """The figures of a counter with *holds*, for a cost that has to wait *wait*."""
    held = sum(hold.amount for hold in holds.values())
    last = max((hold.expires_ns for hold in holds.values()), default=now)
    return Outcome(
        allowed=wait == 0,
        remaining=max(0, algorithm.remaining(state, now) - held),
        retry_after_ns=wait,
        reset_after_ns=max(algorithm.fresh_in(state, now), last - now),
    )
