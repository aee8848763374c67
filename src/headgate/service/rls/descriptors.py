"""Descriptors as lines: each has parts to pass, which are rules, or limits of a configuration."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.calls import CallPlan
from headgate.engine.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.calls import Part, Verb
    from headgate.engine.request import Request
    from headgate.llm.protocol import Protocol
    from headgate.llm.usage import Usage
    from headgate.service.rls.requests import Call, Charging, Descriptor, Reports


MAX_SHOWN: Final = 16
"""Limits that headers show: those of a call with a thousand descriptors would be too long."""


class Line(NamedTuple):
    """A descriptor: the parts that it has to pass, none if nothing limits it."""

    parts: tuple[Part, ...] = ()
    is_unlimited: bool = False
    metadata: Mapping[str, object] = MappingProxyType({})
    is_report: bool = False
    """True if it reports the cost of a request."""
    debug: str | None = None
    """The debug token of the client, unchecked."""
    plan: Plan | None = None
    """The plan of the parts, if it exists already."""
    protocol: Protocol | None = None
    """The protocol of a call of a language model."""
    is_held: bool = False
    """True if amounts or slots of *plan* are held until the request is over."""
    end: RequestEnd | None = None
    """The end of a request that it reports."""


class RequestEnd(NamedTuple):
    """The end of a *request*, for which the *reservation* with that id was made.

    *usage* is that of its response, if that is known; it *is_final* if it is all. *status* is that
    of the response.
    """

    request: Request
    reservation: str | None = None
    usage: Usage | None = None
    is_final: bool = False
    status: int | None = None


class PlannedCall(NamedTuple):
    """A call with its plan, by which it can be decided any number of times."""

    call: Call
    lines: tuple[Line, ...]
    plan: CallPlan
    debug_tokens: tuple[str, ...] = ()
    shown: tuple[tuple[int, Part], ...] = ()
    """The parts that decide, with their places, if the reply to an allowed call shows all of them,
    in one status, and nothing else."""
    is_configured: bool = False
    """True if the configuration of envoyproxy/ratelimit decides the call."""
    protocol: Protocol | None = None
    """The protocol of a call of a language model, whose clients expect replies of their own."""
    is_held: bool = False
    """True if amounts or slots of the plan are held until the request is over: the call must not be
    decided twice."""
    end: RequestEnd | None = None
    """The end of a request that the call reports, once."""

    @classmethod
    def of(
        cls,
        call: Call,
        lines: tuple[Line, ...],
        revision: int,
        charge: Charging = "all_or_nothing",
    ) -> PlannedCall:
        """The call that *lines*, those of *call*, make together."""
        plan, parts = lines[0].plan, lines[0].parts
        if len(lines) > 1:
            plan, parts = None, tuple([part for line in lines for part in line.parts])
        if not parts and all(line.is_report for line in lines):
            plan = Plan(revision, (), is_recorded=False)
        plan_of_call = CallPlan(revision, parts, each_alone=charge == "always", plan=plan)
        tokens = tuple([line.debug for line in lines if line.debug is not None])
        first = lines[0]
        if first.protocol is not None or first.is_held or first.is_report:
            end = next((line.end for line in lines if line.end is not None), None)
            more = first.protocol, first.is_held, end
            return cls(call, lines, plan_of_call, tokens, (), False, *more)  # noqa: FBT003
        return cls(call, lines, plan_of_call, tokens, _all_shown(parts) if len(lines) == 1 else ())

    @property
    def is_once(self) -> bool:
        """True if the call belongs to one request, so that no other may use its plan."""
        return self.is_held or self.end is not None


def _all_shown(parts: tuple[Part, ...]) -> tuple[tuple[int, Part], ...]:
    shown = []
    for place, part in enumerate(parts):
        if part.verb != "take" or part.role not in ("decides", "hidden") or part.closed is not None:
            return ()
        if part.role == "decides":
            if part.planned.rule.headers != "on":
                return ()
            shown.append((place, part))
    is_unique = len({part.title for _, part in shown}) == len(shown) <= MAX_SHOWN
    return tuple(shown) if is_unique else ()


# The amount of a descriptor.
#
# - none: the cost that the rule declares, 1 by default;
# - `hits_addend` of the call, if it is not 0: the amount of the descriptors without one;
# - `hits_addend` of the descriptor: its amount. An explicit 0 consumes nothing, and is denied if
#   nothing is left;
# - `is_negative_hits`: the amount is refunded.
#
# Where the cost is known only afterwards, a gateway calls twice: with an explicit 0 before, and
# with the real amount when the stream is done. That second call is a report, charged in full even
# beyond the limit. Nothing on the wire distinguishes it from a request. With `auto`, the amounts of
# a limit for which a 0 was seen are reports from then on. Each process learns that by itself; where
# calls are spread over many processes, use `always`.


if TYPE_CHECKING:
    Topic = tuple[str, ...]
    """A limit: the id of a rule, or a place in a configuration."""

MAX_TOPICS: Final = 4096
"""Limits with reports that are known; the oldest is dropped, until the next 0 for it."""


class Amounts:
    """The meaning of amounts under the option *reports*, and the limits known to have reports."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._topics: dict[Topic, None] = {}
        self.version = 0
        """Grows when the meaning of an amount may have changed."""

    def verb(self, descriptor: Descriptor, topic: Topic) -> Verb:
        """The verb of *descriptor* for the limit *topic*."""
        if descriptor.is_refund:
            return "refund"
        if descriptor.hits is None:
            return "take"
        if descriptor.hits == 0:
            self._learn(topic)
            return "look"
        is_report = self._reports == "always" or topic in self._topics
        return "report" if is_report else "take"

    def _learn(self, topic: Topic) -> None:
        if self._reports != "auto" or topic in self._topics:
            return
        if len(self._topics) >= MAX_TOPICS:
            del self._topics[next(iter(self._topics))]
        self._topics[topic] = None
        self.version += 1


def amount_of(descriptor: Descriptor, hits: int | None) -> int | None:
    """The amount of *descriptor* in a call with *hits*; None if neither has one.

    A look, with an explicit 0, is for 1 unit.
    """
    if descriptor.hits is None:
        return hits
    return descriptor.hits or (0 if descriptor.is_refund else 1)
