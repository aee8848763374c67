"""The load of queues, for callers and load balancers that slow down.

    Headgate-Queue: "calls";waiting=12;wait=0.34;in-flight=20;slots=20, "exports";waiting=3;wait=0.3
    Headgate-Delay: 0.25

`Headgate-Queue` is a list of rules (RFC 9651, as `RateLimit`), with the state of the queue of each
when the response began: `waiting`, the requests in the queue; `wait`, the expected seconds of one
more request of this caller; `in-flight` and `slots`, the slots in use and all slots.
`Headgate-Delay` has the seconds by which this request was delayed, or has to be delayed by the
caller of the service.

Balancers that weigh their endpoints by load, such as Envoy's `client_side_weighted_round_robin`,
read the Open Request Cost Aggregation (ORCA) in `endpoint-load-metrics`: the share of the slots in
use, above 1 where requests wait for one, and the requests a second. It is written in JSON, because
versions of Envoy disagree on the plain text form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.responses.ratelimit_draft11 import quoted
from headgate.units import SECOND, bounded, milliseconds_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decision import Decision
    from headgate.limits import LeakyQueue
    from headgate.responses.answer import ResponseOptions


QUEUE: Final = "Headgate-Queue"
DELAY: Final = "Headgate-Delay"
ORCA: Final = "endpoint-load-metrics"

Lines = list[tuple[str, str]]

_LARGEST_DECIMAL_MS: Final = 10**15 - 1
"""Twelve digits before the point (RFC 9651, 3.3.2)."""


@dataclass(frozen=True, slots=True)
class Load:
    """The state of the queue of the rule *name*: figures that are None are unknown.

    *expected_wait_ns* is the wait of one more request of the same caller.
    """

    name: str
    waiting: int = 0
    expected_wait_ns: int | None = 0
    in_flight: int | None = None
    slots: int | None = None


def load_of_queue(name: str, limit: LeakyQueue, decision: Decision) -> Load:
    """Return the load of the queue of *limit* by a *decision*, this request included.

    It is as long as it takes until all have left, and one of them leaves now.
    """
    backlog_ns = decision.reset_after_ns
    units = -(-backlog_ns * limit.per_second // SECOND)
    return Load(name, max(units - 1, 0), backlog_ns)


def pressure_lines(loads: Sequence[Load], delayed_ns: int, options: ResponseOptions) -> Lines:
    """The headers of *loads*, and of the delay of the request."""
    lines: Lines = []
    if options.pressure:
        if loads:
            lines.append((QUEUE, ", ".join(map(_item, loads))))
        if delayed_ns > 0:
            lines.append((DELAY, decimal(delayed_ns)))
    return lines


def orca_line(loads: Sequence[Load], requests_per_second: float) -> tuple[str, str]:
    """The load of this process for balancers: of several rules that of the fullest."""
    used = [((load.in_flight or 0) + load.waiting) / load.slots for load in loads if load.slots]
    report: dict[str, object] = {}
    if used:
        report["application_utilization"] = round(max(used), 4)
    if requests_per_second > 0:
        report["rps_fractional"] = round(requests_per_second, 3)
    longest_ns = max((load.expected_wait_ns or 0 for load in loads), default=0)
    report["named_metrics"] = {
        "headgate_waiting": sum(load.waiting for load in loads),
        "headgate_wait_seconds": longest_ns / SECOND,
    }
    return ORCA, f"JSON {json.dumps(report, separators=(',', ':'))}"


def decimal(nanoseconds: int) -> str:
    """*nanoseconds* as a Decimal of RFC 9651: seconds, rounded up to milliseconds."""
    milliseconds = min(milliseconds_up(nanoseconds), _LARGEST_DECIMAL_MS)
    whole, rest = divmod(milliseconds, 1_000)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else f"{whole}.0"


def _item(load: Load) -> str:
    text = f"{quoted(load.name)};waiting={bounded(load.waiting)}"
    if load.expected_wait_ns is not None:
        text += f";wait={decimal(load.expected_wait_ns)}"
    if load.in_flight is not None:
        text += f";in-flight={bounded(load.in_flight)}"
    if load.slots is not None:
        text += f";slots={bounded(load.slots)}"
    return text


# The recent number of requests a second.


class Throughput:
    """Counts requests by the second; times are nanoseconds of any one clock.

    Threads may share one: a lost count now and then does not matter to a rate.
    """

    __slots__ = ("_before", "_count", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._count = 0
        self._before = 0

    def add(self, now_ns: int) -> None:
        """Count a request."""
        self._advance_to(now_ns // SECOND)
        self._count += 1

    def per_second(self, now_ns: int) -> float:
        """The rate, from the second before and this one, weighed by the part that has passed."""
        self._advance_to(now_ns // SECOND)
        passed = now_ns % SECOND / SECOND
        return self._before * (1 - passed) + self._count

    def _advance_to(self, second: int) -> None:
        if second == self._second:
            return
        self._before = self._count if second == self._second + 1 else 0
        self._second, self._count = second, 0
