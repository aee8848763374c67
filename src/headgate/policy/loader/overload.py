"""Reading `fair`: requests that take turns in each process."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, get_args

from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Listing, Table
from headgate.policy.loader.limits import NO_RESERVE, read_queue, read_rate, read_reserve, wait_ns
from headgate.policy.loader.matches import read_match
from headgate.policy.loader.scalars import Fields, entries
from headgate.policy.model import (
    PRIORITIES,
    AdaptiveAlgorithm,
    AdaptiveSlots,
    Fair,
    Match,
    Pressure,
    PriorityClass,
)
from headgate.units import HOUR, MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from headgate.engine.rule import Priority
    from headgate.policy.loader.diagnostics import Spot


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


# Reading `pressure` and `adaptive`: when limits are lowered by themselves, and how far.


PRESSURE_FIELDS: Final = (
    "latency",
    "quantile",
    "errors",
    "queue",
    "interval",
    "backoff",
    "recovery",
    "least",
)
FLOOR_FIELDS: Final = ("floor",)
LONGEST_LINE: Final = 1_000_000
"""The most requests that may be waiting before that is pressure."""


def read_floor(spot: Spot) -> Fraction | None:
    """The share of its limits that pressure may not lower a rule below."""
    fields = Fields.of(spot, FLOOR_FIELDS, "how pressure lowers the limits")
    if fields is None:
        return None
    floor = fields.need("floor", scalars.percentage, "a share of the limits such as 20%")
    if floor == 1:
        fields["floor"].warn("it has no effect: the limits are never lowered")
    return floor


def read_pressure(spot: Spot) -> Pressure | None:
    """When there is pressure, and what is done then."""
    fields = Fields.of(spot, PRESSURE_FIELDS, "when there is pressure")
    if fields is None:
        return None
    before = spot.findings.errors
    usual = Pressure()
    found = Pressure(
        latency_ns=fields.read("latency", scalars.duration_ns, None),
        quantile=fields.read("quantile", _part, usual.quantile),
        errors=fields.read("errors", _part, None),
        queue=fields.read("queue", _line, None),
        interval_ns=fields.read("interval", _interval_ns, usual.interval_ns),
        backoff=fields.read("backoff", _part, usual.backoff),
        recovery=fields.read("recovery", scalars.percentage, usual.recovery),
        least=fields.read("least", scalars.percentage, usual.least),
    )
    if fields.present(PRESSURE_FIELDS) and not fields.present(("latency", "errors", "queue")):
        told = "nothing in it says when there is pressure: only a signal of the app's own does"
        spot.warn(told, hint="expected latency, errors or queue; {} if that is meant")
    elif "quantile" in fields and "latency" not in fields:
        fields["quantile"].warn("it has no effect: it is about latency, of which nothing is said")
    return found if spot.findings.errors == before else None


def _part(spot: Spot) -> Fraction | None:
    """A share that is not all."""
    found = scalars.percentage(spot)
    if found == 1:
        spot.expected("a percentage above 0% and below 100%")
        return None
    return found


def _line(spot: Spot) -> int | None:
    return scalars.whole(spot, 0, LONGEST_LINE)


def _interval_ns(spot: Spot) -> int | None:
    found = scalars.duration_ns(spot)
    if found is not None and not 10 * MILLISECOND <= found <= HOUR:
        spot.expected("a time from 10ms to 1h")
        return None
    return found


# Reading `priority`: which requests matter more than others, and which less.


PRIORITY_FIELDS: Final = ("class", "match")
MOST_CLASSES: Final = 1_000
"""How many entries there may be."""


def read_priorities(spot: Spot) -> tuple[PriorityClass, ...]:
    """The classes of requests, in their order; what is wrong is noted."""
    if not isinstance(spot.node, Listing):
        spot.expected("a list such as [{class: critical, match: {endpoint: /pay/**}}]")
        return ()
    if len(spot.node.items) > MOST_CLASSES:
        spot.wrong(f"{len(spot.node.items)} entries; expected at most {MOST_CLASSES}")
        return ()
    return _read(spot)


def _read(spot: Spot) -> tuple[PriorityClass, ...]:
    found: list[PriorityClass] = []
    everything: int | None = None
    for number, child in enumerate(spot.children(), start=1):
        one = _class(child)
        if one is None:
            continue
        if everything is not None:
            child.warn(f"it is never looked at: the entry {everything} is for every request")
        elif one.match == Match():
            everything = number
        found.append(one)
    return tuple(found)


def _class(spot: Spot) -> PriorityClass | None:
    fields = Fields.of(spot, PRIORITY_FIELDS, "a class of requests")
    if fields is None:
        return None
    before = spot.findings.errors
    kind: Priority | None = fields.need("class", _priority, f"one of {', '.join(PRIORITIES)}")
    match = fields.read("match", read_match, Match())
    return None if kind is None or spot.findings.errors > before else PriorityClass(kind, match)


def _priority(spot: Spot) -> Priority | None:
    word = scalars.choice(spot, *PRIORITIES)
    return next((known for known in PRIORITIES if known == word), None)
