"""What a policy says for when there is more demand than capacity: who takes turns with whom, which
requests matter more, and when limits are lowered. Frozen values, as in `model`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.model import Match

Priority = Literal["critical", "default", "sheddable"]
"""How much a request matters."""

PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""All of them, what matters most first."""

BY_PRIORITY: Final = "priority"
"""As `share_by`: shares go by the class of a request."""

_NOTHING: Final = Fraction(0)

AdaptiveAlgorithm = Literal["gradient", "aimd"]


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Requests that *match* are of the class *priority*."""

    priority: Priority
    match: Match


@dataclass(frozen=True, slots=True)
class AdaptiveSlots:
    """How many slots there are moves between *least* and *most*, by how the requests in them fare.

    `gradient` goes by how much slower they are than usual; `aimd` by errors and by requests that
    take longer than *target_ns*.
    """

    algorithm: AdaptiveAlgorithm = "gradient"
    least: int = 1
    most: int = 1_000
    target_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Fair:
    """Requests take turns in each process, by weight of whom they are counted for (`key_by`).

    There are *slots* at a time, which *adaptive* may move, or *rate* a second: one of the two.
    *weights* are by tier, None for all others; 1 if not said. At most *queue* requests of one
    caller wait, none for longer than *max_wait_ns*. *reserve* keeps a share of the slots for
    requests of a class and those that matter more.
    """

    slots: int | None = None
    rate: Fraction | None = None
    adaptive: AdaptiveSlots | None = None
    weights: Mapping[str | None, int] = field(default_factory=lambda: MappingProxyType({}))
    queue: int = 100
    max_wait_ns: int = SECOND
    reserve: Mapping[Priority, Fraction] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Pressure:
    """When a process, or a fleet with one store, is under pressure, and what it does then.

    Every *interval_ns* it looks at the requests that ended meanwhile. It is under pressure if they
    took more than *latency_ns* at the quantile *quantile*, if more than the share *errors* of them
    failed, if more than *queue* wait, or if a signal of the user's says so. Then all limits of
    rules with a floor are multiplied by *backoff*; else they regain *recovery* of what they are
    without pressure. They never fall below *least*, nor a rule below its own floor.
    """

    latency_ns: int | None = None
    quantile: Fraction = Fraction(9, 10)
    errors: Fraction | None = None
    queue: int | None = None
    interval_ns: int = SECOND
    backoff: Fraction = Fraction(7, 10)
    recovery: Fraction = Fraction(1, 20)
    least: Fraction = Fraction(1, 10)


def ceilings(slots: int, reserve: Mapping[Priority, Fraction]) -> dict[Priority, int]:
    """By class, how many of *slots* may be in use for a request of it to have one, that included.

    Critical requests may use all. What is reserved is rounded up to whole slots, but from three
    slots on each class keeps at least one that is not taken from it: sheddable requests may always
    use one, default ones one more if they have a share of their own, and critical ones one more
    than those if they have. With one slot there is nothing to reserve.
    """
    critical, default = reserve.get("critical", _NOTHING), reserve.get("default", _NOTHING)
    middle = max(slots - math.ceil(slots * critical), 1 + (default > 0))
    middle = max(min(middle, slots - (critical > 0)), 1)
    low = min(slots - math.ceil(slots * (critical + default)), middle - (default > 0))
    return {"critical": slots, "default": middle, "sheddable": max(low, 1)}


def ceiling(slots: int, reserve: Mapping[Priority, Fraction], priority: Priority) -> int:
    """That of one class."""
    return ceilings(slots, reserve)[priority]
