"""The options of a gate, checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol, get_args

from headgate.errors import OptionError
from headgate.observability.metrics import MEASURES
from headgate.overload.fair_queue import checked_weight
from headgate.overload.turns import Budget, FetchedBudget, PacedBudget, Refusal, read_rate
from headgate.policy.model import PRIORITIES
from headgate.runtime.waiting_lines import LONGEST_TIMEOUT
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.engine.rule import Priority
    from headgate.limits.model import PacedLimit
    from headgate.overload.slot_control import Steering
    from headgate.units import Rate, Seconds


# What a gate keeps for requests that matter more.


def in_proportion(in_flight: int, ceiling: int, limit: int | None) -> int:
    """How full *limit* slots are for a class that may use *ceiling* of them, of which *in_flight*
    are in use: as full as what it may use."""
    if limit is None or ceiling >= limit:
        return in_flight
    return in_flight * limit // max(ceiling, 1)


def no_class(priority: str) -> OptionError:
    """That *priority* is none."""
    return OptionError(f"priority is {priority!r}; expected one of {', '.join(PRIORITIES)}")


def read_reserve(reserve: Mapping[Priority, float | Fraction]) -> dict[Priority, Fraction]:
    """*reserve*, shares by class, checked."""
    for priority, share in reserve.items():
        if priority not in ("critical", "default"):
            raise OptionError(
                f"reserve is for {priority!r}; expected 'critical' or 'default': "
                "what the others may use is what is left"
            )
        if type(share) not in (int, float, Fraction) or not 0 <= share <= 1:
            raise OptionError(f"reserve of {priority} is {share!r}; expected a share from 0 to 1")
    found = {
        priority: Fraction(share).limit_denominator(10**6) for priority, share in reserve.items()
    }
    total = sum(found.values())
    if total > 1:
        raise OptionError(f"reserve comes to {float(total):.0%}, more than there is")
    return found


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


# What a gate tells at `/metrics`.


REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)


class Tally:
    """How often something has happened. Without a lock: its gate is called by one at a time."""

    __slots__ = ("__weakref__", "count")

    def __init__(self) -> None:
        self.count = 0

    def read(self) -> int:
        return self.count


class Watched(Protocol):
    """What is told besides."""

    def waiting(self) -> int:
        """How many wait."""

    def inside(self) -> int:
        """How many are in."""

    def slots(self) -> int:
        """How many may be in; 0 if there is no such number."""


class Tallies:
    """What came of those who asked one gate for a turn; gates of the same *name* add up."""

    __slots__ = ("cancelled", "passed", "refused", "waited")

    def __init__(self, name: str) -> None:
        self.passed = Tally()
        self.waited = Tally()
        self.cancelled = Tally()
        self.refused: dict[Refusal, Tally] = {reason: Tally() for reason in REFUSALS}
        tallies: dict[str, Tally] = {
            "passed": self.passed,
            "waited": self.waited,
            "cancelled": self.cancelled,
        }
        tallies |= {str(reason): tally for reason, tally in self.refused.items()}
        text = "Turns that gates were asked for, by what came of it."
        for outcome, tally in tallies.items():
            MEASURES.tally("gate_turns", text, tally.read, gate=name, outcome=outcome)


def watch(name: str, watched: Watched) -> None:
    """Tell what *watched* says for as long as it lives."""
    MEASURES.gauge("gate_waiting", "Requests that wait at a gate.", watched.waiting, gate=name)
    MEASURES.gauge("gate_in_flight", "Requests that are in.", watched.inside, gate=name)
    MEASURES.gauge("gate_slots", "Requests that may be in.", watched.slots, gate=name)


def watch_wait(name: str, read: Callable[[], float]) -> None:
    """Tell how long those will wait who wait."""
    text = "Seconds until all who wait at a gate have had their turn, about."
    MEASURES.gauge("gate_wait_seconds", text, read, gate=name)
