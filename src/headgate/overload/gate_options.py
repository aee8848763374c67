"""The options of a gate: declared once, checked, and as the gate uses them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from headgate.errors import OptionError
from headgate.overload.fair_queue import checked_weight
from headgate.overload.rate_budget import FleetRate, PacedBudget, read_rate
from headgate.policy.model import PRIORITIES
from headgate.runtime.waiting_lines import LONGEST_TIMEOUT
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.plan import Priority
    from headgate.limits.model import PacedLimit
    from headgate.overload.adaptive import Steering
    from headgate.overload.rate_budget import Budget
    from headgate.units import Rate, Seconds


class GateOptions(TypedDict, total=False):
    """The capacity of a gate, and who may wait for it."""

    slots: int | Steering | None
    """Requests that may be in at the same time, or a `Steering` that sets their number."""
    rate: str | PacedLimit | Rate | FleetRate | None
    """In place of slots: what may begin in a time, evenly spaced, as text (`100/s`), a limit or
    units a second."""
    burst: int | None
    """Units of a rate that may begin at once after idle time; 1."""
    queue: int | None
    """Requests of one tenant that may wait; 100."""
    waiting: int | None
    """Requests that may wait in all; 10,000."""
    max_wait: Seconds | None
    """Seconds that a request may wait; `math.inf` has no bound."""
    weights: Mapping[str, int] | None
    """Weights by tenant, from 1 to 1,000; 1 for all others."""
    reserve: Mapping[Priority, float | Fraction] | None
    """Shares of the slots for `critical` requests, and for `default` ones besides."""


DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    dict.fromkeys(GateOptions.__annotations__)
    | {"burst": 1, "queue": 100, "waiting": 10_000, "weights": {}, "reserve": {}}
)


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Options that were checked."""

    slots: int | Steering | None
    budget: Budget | None
    fetched: FleetRate | None
    """The budget, if it has to be fetched."""
    queue: int
    waiting: int
    max_wait_ns: int | None
    weights: Mapping[str, int]
    reserve: Mapping[Priority, Fraction]


def read_options(options: Mapping[str, Any]) -> GateSettings:
    """Check all options of a gate."""
    slots, rate, burst = options["slots"], options["rate"], options["burst"]
    if (slots is None) == (rate is None):
        raise OptionError("a gate has either slots or a rate: say one of the two")
    budget: Budget | None = None
    if rate is None:
        is_steering = hasattr(slots, "limit") and hasattr(slots, "observe")
        if not is_steering and (type(slots) is not int or slots < 1):
            raise OptionError(f"slots is {slots!r}; expected a whole number from 1, or a Steering")
        if burst != 1:
            raise OptionError("burst is how much of a rate may go at once: slots have none")
    elif options["reserve"]:
        raise OptionError("reserve keeps slots for a class of requests: a rate has none")
    else:
        is_fleet = isinstance(rate, FleetRate)
        budget = rate if is_fleet else PacedBudget(read_rate(rate), burst=burst)
    for name in ("queue", "waiting"):
        if type(options[name]) is not int or options[name] < 0:
            raise OptionError(f"{name} is {options[name]!r}; expected a whole number from 0")
    return GateSettings(
        slots,
        budget,
        budget if isinstance(budget, FleetRate) else None,
        options["queue"],
        options["waiting"],
        read_wait(options["max_wait"], "max_wait"),
        {tenant: checked_weight(weight) for tenant, weight in options["weights"].items()},
        _read_reserve(options["reserve"]),
    )


def read_wait(wait: Seconds | None, what: str) -> int | None:
    """Return *wait* in nanoseconds; None if it has no end."""
    if wait is None:
        return None
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if type(seconds) not in (int, float, Fraction) or not seconds >= 0:
        raise OptionError(f"{what} is {wait!r}; expected seconds from 0, or None to wait on")
    return None if seconds > LONGEST_TIMEOUT else round(seconds * SECOND)


def unknown_priority(priority: str) -> OptionError:
    """Return the error for a *priority* that there is not."""
    return OptionError(f"priority is {priority!r}; expected one of {', '.join(PRIORITIES)}")


def _read_reserve(reserve: Mapping[Priority, float | Fraction]) -> dict[Priority, Fraction]:
    found: dict[Priority, Fraction] = {}
    for priority, share in reserve.items():
        if priority not in ("critical", "default"):
            raise OptionError(
                f"reserve is for {priority!r}; expected 'critical' or 'default': "
                "what the others may use is what is left"
            )
        if type(share) not in (int, float, Fraction) or not 0 <= share <= 1:
            raise OptionError(f"reserve of {priority} is {share!r}; expected a share from 0 to 1")
        found[priority] = Fraction(share).limit_denominator(10**6)
    total = sum(found.values())
    if total > 1:
        raise OptionError(f"reserve comes to {float(total):.0%}, more than there is")
    return found
