"""How a call was decided, for the client that brings a token: see `responses.debugging`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.engine.tracing import traced
from headgate.responses.debugging import NO_STORE, decision_lines
from headgate.service import debugging
from headgate.service.rls import wire
from headgate.service.rls.asking import is_passing

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


def traced_fields(core: Core, parts: Sequence[Part], said: Said) -> bytes:
    """The headers that tell it, as fields of the answer. A refusal is kept by nobody anyhow."""
    lines = decision_lines(_traced(core, parts, said))
    if not is_passing(parts, said):
        lines.remove(NO_STORE)
    return b"".join([wire.header(name.lower(), value) for name, value in lines])


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
                key=core.hash_key(check.key),
                counter=check.group,
                cost=check.cost,
                revision=revision,
            )
