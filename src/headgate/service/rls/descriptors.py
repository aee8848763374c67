"""What a call comes to before anything is asked: descriptors as lines, each with its parts.

A part is one rule, or one limit of a configuration, that one descriptor has to pass.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.decision import HeaderMode
    from headgate.engine.rule import CompiledRule
    from headgate.policy.envoy_config.model import Unit
    from headgate.service.rls.reading import Call, Charging, Descriptor, Reports
    from headgate.stores.operations import Check


Verb = Literal["take", "look", "report", "refund"]
"""Charge if it fits; see whether one would; record in full; give back."""

Role = Literal["decides", "quota", "shadow", "hidden"]
"""Whether a part denies a call; only together with all other quotas; never, though it is shown; or
never, and nobody hears of it."""

OnFailure = Literal["error", "fail_open", "fail_closed", "local"]


class Part(NamedTuple):
    """A limit that a descriptor has to pass.

    *name* is what Envoy is told it is called, *title* what clients are told. *checks* has the
    amounts. *blocked_ns* is how long its counter is blocked for; *closed* is the unit of a limit
    of 0, which has no counter.
    """

    checks: tuple[Check, ...]
    name: str
    title: str
    verb: Verb = "take"
    role: Role = "decides"
    on_failure: OnFailure = "fail_open"
    headers: HeaderMode = "on"
    blocked_ns: int | None = None
    closed: Unit | None = None
    rule: CompiledRule | None = None
    """The rule that it is, if it is one."""
    sheds: bool = False
    """Whether it denies for want of capacity."""
    counted_as: str = ""
    """What it is counted under, if it has no name: never anything that a call brings with it."""

    @property
    def is_question(self) -> bool:
        """Whether it asks for something, rather than telling."""
        return self.verb in ("take", "look")

    @property
    def is_refused(self) -> bool:
        """Whether it is denied without anybody being asked."""
        return self.closed is not None or (self.blocked_ns is not None and self.is_question)


class Line(NamedTuple):
    """A descriptor: the parts that it has to pass, none if nothing limits it."""

    parts: tuple[Part, ...] = ()
    is_unlimited: bool = False
    metadata: Mapping[str, object] = MappingProxyType({})
    is_report: bool = False
    """Whether it tells what a request has cost, rather than asking about one."""
    debug: str | None = None
    """What the client wants to hear by how it was decided, unchecked."""


class Asked(NamedTuple):
    """A call, ready to be asked: it may be asked again and again."""

    call: Call
    lines: tuple[Line, ...]
    parts: tuple[Part, ...]
    """Those of all lines, in their order."""
    charge: Charging = "all_or_nothing"

    @classmethod
    def of(cls, call: Call, lines: tuple[Line, ...], charge: Charging = "all_or_nothing") -> Asked:
        """What *lines*, those of *call*, come to."""
        if len(lines) == 1:
            return cls(call, lines, lines[0].parts, charge)
        return cls(call, lines, tuple([part for line in lines for part in line.parts]), charge)


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
