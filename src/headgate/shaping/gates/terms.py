"""The options of a gate, checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.plan import LONGEST_TIMEOUT
from headgate.shaping.gates.budgets import Budget, FetchedBudget, PacedBudget, read_rate
from headgate.shaping.gates.fair_queue import checked_weight
from headgate.shaping.gates.reserves import read_reserve
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.limits.model import PacedLimit
    from headgate.rules.soft import Priority
    from headgate.shaping.steering import Steering
    from headgate.units import Rate, Seconds


@dataclass(frozen=True, slots=True)
class Terms:
    """What turns are given out of, and who may wait for one."""

    slots: int | Steering | None
    budget: Budget | None
    fetched: FetchedBudget | None
    """The budget, if it has to be fetched."""
    queue: int
    waiting: int
    max_wait_ns: int | None
    weights: Mapping[str, int]
    reserve: Mapping[Priority, Fraction]


def read_terms(
    *,
    slots: int | Steering | None,
    rate: str | PacedLimit | Rate | Budget | None,
    burst: int,
    queue: int,
    waiting: int,
    max_wait: Seconds | None,
    weights: Mapping[str, int],
    reserve: Mapping[Priority, float | Fraction],
) -> Terms:
    """The options of a gate as they were said."""
    if (slots is None) == (rate is None):
        raise OptionError("a gate has either slots or a rate: say one of the two")
    if slots is not None:
        _check_slots(slots)
    elif reserve:
        raise OptionError("reserve keeps slots for a class of requests: a rate has none")
    if slots is not None and burst != 1:
        raise OptionError("burst is how much of a rate may go at once: slots have none")
    budget = None if rate is None else read_budget(rate, burst)
    return Terms(
        slots,
        budget,
        budget if isinstance(budget, FetchedBudget) else None,
        _checked_count(queue, "queue"),
        _checked_count(waiting, "waiting"),
        read_wait(max_wait, "max_wait"),
        {tenant: checked_weight(weight) for tenant, weight in weights.items()},
        read_reserve(reserve),
    )


def read_budget(rate: str | PacedLimit | Rate | Budget, burst: int) -> Budget:
    """What *rate* says, or is."""
    if isinstance(rate, Budget):
        return rate
    return PacedBudget(read_rate(rate), burst=burst)


def read_wait(wait: Seconds | None, what: str) -> int | None:
    """*wait* in nanoseconds; None if it may last for ever."""
    if wait is None:
        return None
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if type(seconds) not in (int, float, Fraction) or not seconds >= 0:
        raise OptionError(f"{what} is {wait!r}; expected seconds from 0, or None to wait on")
    return None if seconds > LONGEST_TIMEOUT else round(seconds * SECOND)


def _check_slots(slots: int | Steering) -> None:
    is_steering = hasattr(slots, "limit") and hasattr(slots, "observe")
    if not is_steering and (type(slots) is not int or slots < 1):
        raise OptionError(f"slots is {slots!r}; expected a whole number from 1, or a Steering")


def _checked_count(count: int, what: str) -> int:
    if type(count) is not int or count < 0:
        raise OptionError(f"{what} is {count!r}; expected a whole number from 0")
    return count
