"""Who may hear how a request was decided: see `responses.debugging`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.responses.debugging import is_genuine

if TYPE_CHECKING:
    from headgate.service.core import Core


def is_debugged(core: Core, token: str) -> bool:
    """Whether *token* is one of this service's that is still good."""
    return is_genuine(token, core.secret, now_ns=core.clock())
