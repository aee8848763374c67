"""What a call comes to before anything is asked: descriptors as lines, each with its parts.

A part is one rule, or one limit of a configuration, that one descriptor has to pass.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.envoy.model import Unit
    from headgate.rules.model import HeaderMode, Rule
    from headgate.service.rls.options import Charging
    from headgate.service.rls.reading import Call
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
    rule: Rule | None = None
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
