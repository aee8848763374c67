"""Descriptors as lines: each has parts to pass, which are rules, or limits of a configuration."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.engine.calls import CallPlan
from headgate.engine.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.calls import Part, Verb
    from headgate.service.rls.reading import Call, Charging, Descriptor, Reports


class Line(NamedTuple):
    """A descriptor: the parts that it has to pass, none if nothing limits it."""

    parts: tuple[Part, ...] = ()
    is_unlimited: bool = False
    metadata: Mapping[str, object] = MappingProxyType({})
    is_report: bool = False
    """Whether it tells what a request has cost, rather than asking about one."""
    debug: str | None = None
    """The token by which the client may read how it was decided, unchecked."""
    plan: Plan | None = None
    """The plan of the parts, if it exists already."""


class Asked(NamedTuple):
    """A call, ready to be decided, any number of times."""

    call: Call
    lines: tuple[Line, ...]
    plan: CallPlan

    @classmethod
    def of(
        cls,
        call: Call,
        lines: tuple[Line, ...],
        revision: int,
        charge: Charging = "all_or_nothing",
    ) -> Asked:
        """The call that *lines*, those of *call*, make together."""
        plan, parts = lines[0].plan, lines[0].parts
        if len(lines) > 1:
            plan, parts = None, tuple([part for line in lines for part in line.parts])
        if not parts and all(line.is_report for line in lines):
            plan = Plan(revision, (), is_recorded=False)
        return cls(call, lines, CallPlan(revision, parts, each_alone=charge == "always", plan=plan))


# What the hits of a descriptor mean.
#
# - nothing said: as many as the rule says, which is 1 if it does not;
# - `hits_addend` of the call, if it is not 0: that many, for the descriptors that do not say;
# - `hits_addend` of the descriptor: that many. An explicit 0 consumes nothing, and is refused if
#   nothing is left;
# - `is_negative_hits`: the amount is given back.
#
# Where the cost is known only afterwards, a gateway asks twice: with an explicit 0 before, and with
# the real amount when the stream is done. That second call reports; it must be counted in full even
# beyond the limit, or nobody would ever pay. Nothing on the wire says which is which. With `auto`,
# a limit for which a 0 was seen is one of those, and from then on the amounts that descriptors give
# for it are reports. Each process learns for itself; where calls are spread over many, `always` is
# surer.


if TYPE_CHECKING:
    Topic = tuple[str, ...]
    """What a limit is called here: the id of a rule, or where in a configuration it is."""

MOST_LEARNT: Final = 4096
"""How many limits are remembered; the oldest is forgotten, until the next 0 for it."""


class Amounts:
    """What amounts mean under the option *reports*, and what was learnt about it."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._learnt: dict[Topic, None] = {}
        self.version = 0
        """Grows whenever the same amount may mean something else than before."""

    def verb(self, descriptor: Descriptor, topic: Topic) -> Verb:
        """What *descriptor* wants of the limit that *topic* names."""
        if descriptor.is_refund:
            return "refund"
        if descriptor.hits is None:
            return "take"
        if descriptor.hits == 0:
            self._learn(topic)
            return "look"
        is_report = self._reports == "always" or topic in self._learnt
        return "report" if is_report else "take"

    def _learn(self, topic: Topic) -> None:
        if self._reports != "auto" or topic in self._learnt:
            return
        if len(self._learnt) >= MOST_LEARNT:
            del self._learnt[next(iter(self._learnt))]
        self._learnt[topic] = None
        self.version += 1


def amount_of(descriptor: Descriptor, hits: int | None) -> int | None:
    """How many *descriptor* asks for in a call with *hits*; None if nobody says.

    To see whether anything is left, one is asked for.
    """
    if descriptor.hits is None:
        return hits
    return descriptor.hits or (0 if descriptor.is_refund else 1)
