"""Who may hear how a request was decided, and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.engine.tracing import traced_lines, traced_turn
from headgate.errors import OptionError
from headgate.identity.showing import hashed_key
from headgate.responses.debugging import DEBUG, is_genuine

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.enforcement.gate import Gate, Lines
    from headgate.enforcement.passage import Passage
    from headgate.rules.request import Request

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
