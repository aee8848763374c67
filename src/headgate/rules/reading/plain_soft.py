"""Queues, slots, turns, classes of requests and pressure as plain data (see `plain`)."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headgate.rules.reading.turns import weights_by_name
from headgate.rules.soft import Pressure
from headgate.units import plain_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from headgate.limits import Concurrency, LeakyQueue
    from headgate.rules.soft import AdaptiveSlots, Fair

Data = dict[str, Any]


def queue_to_data(queue: LeakyQueue) -> Data:
    """A queue in the long form, its rate as text: not every one is a number of digits."""
    data: Data = {"algorithm": queue.algorithm, "rate": rate_text(queue.per_second)}
    data["queue"] = queue.queue
    if queue.max_wait is not None:
        data["max_wait"] = queue.max_wait
    return data


def slots_to_data(slots: Concurrency) -> Data:
    """Slots in the long form."""
    data: Data = {"algorithm": slots.algorithm, "limit": slots.limit, "ttl": slots.ttl}
    if slots.shares:
        data["shares"] = dict(slots.shares)
    if not slots.lends:
        data["lends"] = False
    return data


def fair_to_data(fair: Fair) -> Data:
    """How requests take turns; how long and how many wait is always said."""
    data: Data = {}
    if fair.adaptive is not None:
        data["slots"] = _adaptive(fair.adaptive)
    elif fair.rate is not None:
        data["rate"] = rate_text(fair.rate)
    else:
        data["slots"] = fair.slots
    if fair.weights:
        data["weights"] = weights_by_name(fair.weights)
    data |= {"queue": fair.queue, "max_wait": plain_seconds(fair.max_wait_ns)}
    if fair.reserve:
        data["reserve"] = reserve_to_data(fair.reserve)
    return data


def _adaptive(slots: AdaptiveSlots) -> Data:
    data: Data = {"adaptive": slots.algorithm, "min": slots.least, "max": slots.most}
    if slots.target_ns is not None:
        data["target"] = plain_seconds(slots.target_ns)
    return data


def reserve_to_data(reserve: Mapping[Any, Fraction]) -> Data:
    """What is kept for which class."""
    return {name: percentage(share) for name, share in reserve.items()}


def pressure_to_data(pressure: Pressure) -> Data:
    """When there is pressure, and what is done; what is as usual is left out."""
    data: Data = {}
    if pressure.latency_ns is not None:
        data["latency"] = plain_seconds(pressure.latency_ns)
    if pressure.errors is not None:
        data["errors"] = percentage(pressure.errors)
    if pressure.queue is not None:
        data["queue"] = pressure.queue
    usual = Pressure()
    if pressure.interval_ns != usual.interval_ns:
        data["interval"] = plain_seconds(pressure.interval_ns)
    for name in ("quantile", "backoff", "recovery", "least"):
        if getattr(pressure, name) != getattr(usual, name):
            data[name] = percentage(getattr(pressure, name))
    return data


def rate_text(rate: Fraction) -> str:
    """*rate* in the notation, exactly."""
    each = "" if rate.denominator == 1 else str(rate.denominator)
    return f"{rate.numerator}/{each}s"


def percentage(share: Fraction) -> str:
    """*share* as it is written."""
    percent = share * 100
    return f"{Decimal(percent.numerator) / percent.denominator:f}%"
