"""Reading `fair`: requests that take turns in each process."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, get_args

from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields, entries
from headgate.rules.reading.queues import read_queue, read_rate, wait_ns
from headgate.rules.reading.slots import NO_RESERVE, read_reserve
from headgate.rules.reading.tree import Table
from headgate.rules.soft import AdaptiveAlgorithm, AdaptiveSlots, Fair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from headgate.rules.reading.findings import Spot

FAIR_FIELDS: Final = ("slots", "rate", "weights", "queue", "max_wait", "reserve")
ADAPTIVE_FIELDS: Final = ("adaptive", "min", "max", "target")
ADAPTIVE_ALGORITHMS: Final[tuple[AdaptiveAlgorithm, ...]] = get_args(AdaptiveAlgorithm)
MOST_SLOTS: Final = 1_000_000
LARGEST_WEIGHT: Final = 1_000
OTHERS: Final = "default"
"""In `weights`: callers of all other tiers, and of none."""

Weights = MappingProxyType[str | None, int]

_NO_WEIGHTS: Final[Weights] = MappingProxyType({})
_USUAL: Final = Fair()


def read_fair(spot: Spot) -> Fair | None:
    """How requests take turns."""
    fields = Fields.of(spot, FAIR_FIELDS, "how requests take turns")
    if fields is None:
        return None
    before = spot.findings.errors
    slots, adaptive, rate = _budget(fields)
    if "reserve" in fields and "rate" in fields and "slots" not in fields:
        told = "is about slots, and there are none: requests take turns at a rate"
        fields["reserve"].wrong(told, hint="expected slots in place of rate, or no reserve")
    fair = Fair(
        slots=slots,
        rate=rate,
        adaptive=adaptive,
        weights=fields.read("weights", _weights, _NO_WEIGHTS),
        queue=fields.read("queue", read_queue, _USUAL.queue),
        max_wait_ns=fields.read("max_wait", wait_ns, _USUAL.max_wait_ns),
        reserve=fields.read("reserve", read_reserve, NO_RESERVE),
    )
    return fair if spot.findings.errors == before else None


def _budget(fields: Fields) -> tuple[int | None, AdaptiveSlots | None, Fraction | None]:
    """What there is to share: slots, those that move, or a rate."""
    given = fields.present(("slots", "rate"))
    if len(given) != 1 and not fields.meant.intersection(("slots", "rate")):
        told = "found both" if given else "found none"
        fields.spot.missing("slots", f"{told}, expected exactly one of slots and rate")
    if "slots" not in fields:
        return None, None, fields.read("rate", read_rate, None)
    if isinstance(fields["slots"].node, Table):
        return None, _adaptive(fields["slots"]), None
    return _slots(fields["slots"]), None, None


def _adaptive(spot: Spot) -> AdaptiveSlots | None:
    fields = Fields.of(spot, ADAPTIVE_FIELDS, "slots that move")
    if fields is None:
        return None
    usual = AdaptiveSlots()
    found = AdaptiveSlots(
        algorithm=fields.need("adaptive", _algorithm, " or ".join(ADAPTIVE_ALGORITHMS))
        or usual.algorithm,
        least=fields.read("min", _slots, usual.least),
        most=fields.read("max", _slots, usual.most),
        target_ns=fields.read("target", scalars.duration_ns, None),
    )
    if found.least > found.most:
        fields.spot_of("min").wrong(f"the min of {found.least} is above the max of {found.most}")
        return None
    return found


def _algorithm(spot: Spot) -> AdaptiveAlgorithm | None:
    word = scalars.choice(spot, *ADAPTIVE_ALGORITHMS)
    return next((known for known in ADAPTIVE_ALGORITHMS if known == word), None)


def _weights(spot: Spot) -> Weights | None:
    found: dict[str | None, int] = {}
    for name, child in entries(spot, "weights of tiers"):
        scalars.word(child.of_key(), "the name of a tier")
        weight = scalars.whole(child, 1, LARGEST_WEIGHT)
        if weight is not None:
            found[None if name == OTHERS else name] = weight
    return MappingProxyType(found) if found else None


def _slots(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, MOST_SLOTS)


def weights_by_name(weights: Mapping[str | None, int]) -> dict[str, int]:
    """*weights* as they are written."""
    return {OTHERS if tier is None else tier: weight for tier, weight in weights.items()}
