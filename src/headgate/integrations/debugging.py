"""Who may hear how a request was decided, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.engine.tracing import traced_lines, traced_turn
from headgate.errors import OptionError
from headgate.policy.identity.parts import hashed_key
from headgate.responses import expose_headers, merged
from headgate.responses.debug import DEBUG, DECISION, is_genuine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.clock import Clock
    from headgate.engine.request import Request
    from headgate.integrations.gate import Gate, Lines
    from headgate.integrations.passage import Passage
    from headgate.responses import ResponseOptions


FIELD: Final = DEBUG.lower()


class Debugging:
    """Tokens are signed with *secret*; keys are told hashed with *salt*."""

    def __init__(self, secret: bytes, salt: bytes) -> None:
        if not isinstance(secret, bytes):
            kind = type(secret).__name__
            raise OptionError(f"debug_secret is a {kind}; expected bytes, such as b'...'")
        self._secret = secret
        self._salt = salt

    def is_for(self, request: Request, clock: Clock) -> bool:
        """Whether *request* has a token that is good."""
        token = request.header(FIELD)
        return token is not None and is_genuine(token, self._secret, now_ns=clock())

    def show_key(self, key: str) -> str:
        """*key* as it is told."""
        return hashed_key(key, self._salt)


def is_debugged(gate: Gate, request: Request) -> bool:
    """Whether the response to *request* is to tell how it was decided."""
    return gate.debugging is not None and gate.debugging.is_for(request, gate.now_ns)


def debug_lines(gate: Gate, passage: Passage) -> Lines:
    """What a response tells of how its request was decided: nothing, to nearly all."""
    if not passage.is_debugged or gate.debugging is None:
        return []
    verdicts = [grant.verdict for grant in passage.grants]
    if passage.refusal is not None:
        verdicts.append(passage.refusal)
    show_key = gate.debugging.show_key
    turns = [
        traced_turn(queueing, grant.verdict.revision, show_key)
        for grant in passage.grants
        if grant.turns
        for queueing in grant.entry.plan.queues
    ]
    return traced_lines(verdicts, show_key, turns)


# What a response says, with what Headgate has to say.


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
