"""How a request was decided, for who brings a token: see `responses.debugging`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.engine.tracing import traced_line
from headgate.responses.debugging import DEBUG, DECISION, is_genuine

if TYPE_CHECKING:
    from headgate.engine import Verdict
    from headgate.service.core import Core
    from headgate.service.http.replies import Reply, Scope

_FIELD: Final = DEBUG.lower().encode()
_TOLD: Final = DECISION.lower().encode()


def is_debugged(core: Core, token: str) -> bool:
    """Whether *token* is one of this service's that is still good."""
    return is_genuine(token, core.secret, now_ns=core.clock())


def debugged(core: Core, scope: Scope, verdict: Verdict, reply: Reply) -> Reply:
    """*reply* to the request of *scope*, with how it was decided if that may be told."""
    for name, value in scope["headers"]:
        if name == _FIELD and is_debugged(core, value.decode("latin-1")):
            _, told = traced_line([verdict], core.show_key)
            reply.headers.append((_TOLD, told.encode("ascii")))
            break
    return reply
