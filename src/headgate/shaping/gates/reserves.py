"""What a gate keeps for requests that matter more."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.soft import Priority


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
