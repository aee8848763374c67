"""Reading `pressure` and `adaptive`: when limits are lowered by themselves, and how far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields
from headgate.rules.soft import Pressure
from headgate.units import HOUR, MILLISECOND

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.rules.reading.findings import Spot

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
