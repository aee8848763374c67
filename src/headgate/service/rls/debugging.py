"""How a call was decided, for the client that brings a token: see `responses.debugging`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.tracing import traced
from headgate.responses.debugging import decision_line
from headgate.service import debugging
from headgate.service.rls import wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.responses.debugging import Traced
    from headgate.service.core import Core
    from headgate.service.rls.asked import Asked, Part
    from headgate.service.rls.steps import Said


def is_debugged(core: Core, asked: Asked) -> bool:
    """Whether the client of a call may hear how it was decided."""
    return any(
        line.debug is not None and debugging.is_debugged(core, line.debug) for line in asked.lines
    )


def traced_field(core: Core, parts: Sequence[Part], said: Said) -> bytes:
    """The header that tells it, as a field of the answer."""
    name, told = decision_line(_traced(core, parts, said))
    return wire.header(name.lower(), told)


def _traced(core: Core, parts: Sequence[Part], said: Said) -> Iterator[Traced]:
    revision = core.engine.in_force.policy.revision
    for part, decision in zip(parts, said, strict=True):
        if decision is None:
            continue
        for place, (one, check) in enumerate(zip(decision.limits, part.checks, strict=False), 1):
            yield traced(
                part.name if place == 1 else f"{part.name}/{place}",
                "shadow" if part.role in ("shadow", "hidden") else "enforce",
                one,
                key=core.show_key(check.key),
                counter=check.group,
                cost=check.cost,
                revision=revision,
            )
