"""What a response says, with what Headgate has to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.responses import expose_headers, merged
from headgate.responses.debugging import DECISION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.enforcement.gate import Gate, Lines
    from headgate.enforcement.passage import Passage
    from headgate.responses import ResponseOptions

ALLOW_ORIGIN: Final = "access-control-allow-origin"
EXPOSE: Final = "Access-Control-Expose-Headers"


def with_limits(
    lines: Sequence[tuple[str, str]], gate: Gate, passage: Passage, status: int
) -> Lines:
    """The header *lines* of a response with *status*, with those about limits."""
    ours = gate.headers(passage, status)
    if not ours:
        return list(lines)
    everything = merged(lines, ours)
    is_shared = passage.is_cross_origin or any(name.lower() == ALLOW_ORIGIN for name, _ in lines)
    return with_exposed(everything, gate.responses) if is_shared else everything


def with_exposed(lines: Lines, options: ResponseOptions) -> Lines:
    """*lines* with ours named among those that scripts of other origins may read.

    What is named already stays named. It is done for every request that has an `Origin`: whether
    another origin may read anything at all is said by somebody else, perhaps later.
    """
    exposing = [value for name, value in lines if name.lower() == EXPOSE.lower()]
    named = [word.strip() for value in exposing for word in value.split(",") if word.strip()]
    known = {word.lower() for word in named}
    sent = {name.lower() for name, _ in lines}
    ours = [name for name in (*expose_headers(options), DECISION) if name.lower() in sent]
    added = [name for name in ours if name.lower() not in known]
    if not added:
        return lines
    rest = [(name, value) for name, value in lines if name.lower() != EXPOSE.lower()]
    return [*rest, (EXPOSE, ", ".join(named + added))]
