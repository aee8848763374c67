"""What a gate keeps for requests that matter more."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from headgate.errors import OptionError
from headgate.rules.soft import PRIORITIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.soft import Priority


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
