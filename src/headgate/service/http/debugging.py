"""How a request was decided, for who brings a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.enforcement.asgi.sending import encoded
from headgate.engine.tracing import traced_lines
from headgate.responses.debugging import DEBUG
from headgate.service.debugging import is_debugged

if TYPE_CHECKING:
    from headgate.engine import Verdict
    from headgate.service.core import Core
    from headgate.service.http.replies import Reply, Scope

_FIELD: Final = DEBUG.lower().encode()


def debugged(core: Core, scope: Scope, verdict: Verdict, reply: Reply) -> Reply:
    """*reply* to the request of *scope*, with how it was decided if that may be told."""
    for name, value in scope["headers"]:
        if name == _FIELD and is_debugged(core, value.decode("latin-1")):
            ours = encoded(traced_lines([verdict], core.hash_key))
            reply.headers.extend(line for line in ours if line not in reply.headers)
            break
    return reply
