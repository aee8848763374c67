"""Reservations: amounts set aside until they are settled.

A hold is not consumption. While it is open, a check must leave room for it; when it is settled, the
actual amount is charged. This works for every algorithm alike: a check of cost c beside holds of h
is a check of cost c + h that charges c.

A hold that is cancelled leaves no trace. One that expires leaves none either, or is charged in full
as of the instant at which it expires, whichever operation finds that first. What is written to a
counter is never older than the holds that have expired by then, so charges stay in their order. A
record of the hold stays for its TTL again: who settles it late corrects the charge (`correct`).

A hold does not fade while it is open, whatever the pace of the limit: settle it when the amount is
known. A commit of at most the held amount always fits.

Clock: a hold that expires later than its own TTL from now was made before the clock stepped back,
and expires one TTL from now. One that was charged in the future of the clock was charged now.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from headgate.algorithms.base import Algorithm, Outcome

S = TypeVar("S")


class Expiry(IntEnum):
    """The end of a hold that is not settled."""

    VANISHES = 0
    """It leaves no trace."""
    CHARGES = 1
    """It is charged when it expires."""
    CHARGED = 2
    """It has expired, and was charged."""


class Hold(NamedTuple):
    """An amount set aside, when it expires by itself, its TTL (0: not known), and what then."""

    amount: int
    expires_ns: int
    lasts_ns: int = 0
    expiry: Expiry = Expiry.VANISHES

    @property
    def is_open(self) -> bool:
        """False for the record of one that was charged."""
        return self.expiry != Expiry.CHARGED

    @property
    def ends_ns(self) -> int:
        """When nothing is left of it, not even a record."""
        return self.expires_ns + (self.lasts_ns if self.expiry else 0)


Holds = dict[str, Hold]
"""Reservations by their name: the open ones, and records of those that expired and were charged."""


def rebase_holds(holds: Holds, now: int) -> Holds:
    """Return *holds* with none that ends later than it can as of *now*; *holds* if none does."""
    moved: Holds = {}
    for name, hold in holds.items():
        latest = now + hold.lasts_ns if hold.is_open else now
        if hold.lasts_ns and hold.expires_ns > latest:
            moved[name] = hold._replace(expires_ns=latest)
    return {**holds, **moved} if moved else holds


def expire(
    algorithm: Algorithm[S], state: S | None, holds: Holds, now: int
) -> tuple[S | None, Holds]:
    """Return a counter as of *now*: what has expired is charged or gone.

    The state that comes back is *state* itself if nothing was charged. It is not changed.
    """
    charged, left = _expired(holds, now)
    return _charged(algorithm, state, charged), left


def _expired(holds: Holds, now: int) -> tuple[list[Hold], Holds]:
    """Return the holds that are to be charged by now, and what is left of all."""
    left: Holds = {}
    charged: list[Hold] = []
    for name, hold in rebase_holds(holds, now).items():
        if hold.expires_ns > now:
            left[name] = hold
        elif hold.expiry:
            if hold.is_open:
                charged.append(hold)
            if hold.ends_ns > now:
                left[name] = hold._replace(expiry=Expiry.CHARGED)
    return charged, left


def _charged(algorithm: Algorithm[S], state: S | None, expired: list[Hold]) -> S | None:
    """Return *state* with all that has *expired* charged, each as of its instant."""
    if expired and state is not None:
        state = algorithm.copied(state)
    for hold in sorted(expired, key=lambda hold: hold.expires_ns):
        state = algorithm.charge(state, hold.amount, hold.expires_ns)
    return state


def correct(
    algorithm: Algorithm[S], state: S | None, hold: Hold, amount: int, now: int
) -> S | None:
    """Return *state* after a hold that was charged when it expired is settled for *amount*.

    What *amount* exceeds it by is charged. What it falls short of it is returned where it was
    charged: what has been refilled since, or is in a window that has passed, does not come back.
    """
    more = amount - hold.amount
    if more > 0:
        return algorithm.charge(state, more, now)
    if more == 0 or state is None:
        return state
    return algorithm.give_back(state, -more, hold.expires_ns, now)


def held_in(holds: Holds) -> int:
    """Return the units that open holds set aside."""
    return sum([hold.amount for hold in holds.values() if hold.is_open])


def wait_beside(
    algorithm: Algorithm[S], state: S | None, holds: Holds, cost: int, now: int
) -> int | None:
    """Return the nanoseconds until *cost* fits beside *holds*, if none is settled before it
    expires; None if it never can."""
    waiting = _in_order(holds)
    held = sum([hold.amount for hold in waiting])
    at, is_copied = now, False
    for hold in waiting:
        wait = algorithm.wait(state, cost + held, at)
        if wait is not None and at + wait < hold.expires_ns:
            return at + wait - now
        held -= hold.amount
        at = max(at, hold.expires_ns)
        if hold.expiry:
            if state is not None and not is_copied:
                state = algorithm.copied(state)
            state, is_copied = algorithm.charge(state, hold.amount, at), True
    wait = algorithm.wait(state, cost, at)
    return None if wait is None else at + wait - now


def outcome_beside(
    algorithm: Algorithm[S], state: S | None, holds: Holds, wait: int | None, now: int
) -> Outcome:
    """Return the figures of a counter with *holds*, for a cost that has to wait *wait*."""
    waiting = _in_order(holds)
    return Outcome(
        allowed=wait == 0,
        remaining=max(0, algorithm.remaining(state, now) - sum([one.amount for one in waiting])),
        retry_after_ns=wait,
        reset_after_ns=_fresh_at(algorithm, state, waiting, now) - now,
    )


def idle_in(algorithm: Algorithm[S], state: S | None, holds: Holds, now: int) -> int:
    """Return the nanoseconds until a counter is as good as none: fresh, without holds and their
    records; 0 if it is now."""
    charged, left = _expired(holds, now)
    ends = max([hold.ends_ns for hold in left.values()], default=now)
    state = _charged(algorithm, state, charged)
    return max(_fresh_at(algorithm, state, _in_order(left), now), ends) - now


def _in_order(holds: Holds) -> list[Hold]:
    """Return the open holds, the first to expire first."""
    waiting = [hold for hold in holds.values() if hold.is_open]
    return sorted(waiting, key=lambda hold: hold.expires_ns)


def _fresh_at(algorithm: Algorithm[S], state: S | None, waiting: list[Hold], now: int) -> int:
    """Return when a counter is fresh if all that is *waiting* expires."""
    last = max([hold.expires_ns for hold in waiting], default=now)
    charging = [hold for hold in waiting if hold.expiry]
    if charging:
        now = charging[-1].expires_ns
        state = _charged(algorithm, state, charging)
    return max(now + algorithm.fresh_in(state, now), last)
