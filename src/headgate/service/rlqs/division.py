"""Dividing a capacity by demand: weighted max-min fairness. No I/O.

Water is poured into vessels as wide as their weights until each is as full as its owner wants, or
there is no more. Who wants little gets it all; the others get equally much by weight. So nobody can
get more without taking it from somebody who has less (by weight), and nothing is kept back while
somebody wants more.

What is left when all have what they want can be *spread* on top by weight: who was quiet can start
at once then.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from headgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def divide(
    capacity: Fraction | int,
    wanted: Sequence[Fraction | int],
    weights: Sequence[int] | None = None,
    *,
    spread: bool = False,
) -> tuple[Fraction, ...]:
    """What each gets of *capacity*, in the order of *wanted*; exact.

    Without *weights* all count alike. The parts never sum above *capacity*, and sum to it exactly
    if more than that is wanted or if the rest is *spread*.
    """
    widths = [1] * len(wanted) if weights is None else list(weights)
    if len(widths) != len(wanted) or any(one < 1 for one in widths):
        raise UsageError(f"the weights are {widths}; expected one of at least 1 for each")
    left, width = max(Fraction(capacity), Fraction(0)), sum(widths)
    wants = [max(Fraction(one), Fraction(0)) for one in wanted]
    parts = [Fraction(0)] * len(wants)
    by_level = sorted(range(len(wants)), key=lambda n: wants[n] / widths[n])
    for n in by_level:
        parts[n] = min(wants[n], left * widths[n] / width)
        left -= parts[n]
        width -= widths[n]
    if spread and left and wants:
        width = sum(widths)
        parts = [part + left * own / width for part, own in zip(parts, widths, strict=True)]
    return tuple(parts)
