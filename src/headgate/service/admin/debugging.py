"""Tokens by which a request may hear how it was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.responses.debugging import DEBUG, DECISION, LONGEST_TTL_S, debug_token
from headgate.service.http.asked import Flaws, invalid
from headgate.service.http.replies import Flaw, Reply, json_reply

if TYPE_CHECKING:
    from headgate.service.admin.call import Call
    from headgate.service.core import Core

_USUAL_S: Final = 900


class DebugCalls:
    """Makes them, signed with the secret of *core*: all replicas with the same one take them."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def made(self, call: Call) -> Reply:
        """POST /debug-tokens: `ttl` is how many seconds it is good for, 15 minutes if not said."""
        call.query()
        document = await call.document_if_any()
        flaws = Flaws()
        for name in document:
            if name != "ttl":
                flaws.append(Flaw(name[:40], "no such field", "expected ttl"))
        ttl_s = document.get("ttl", _USUAL_S)
        if type(ttl_s) is not int or not 1 <= ttl_s <= LONGEST_TTL_S:
            flaws.add("ttl", ttl_s, f"whole seconds from 1 to {LONGEST_TTL_S}")
        if flaws:
            raise invalid(flaws)
        await call.begin(f"make a debug token that is good for {ttl_s} s")
        token, ends = debug_token(self._core.secret, now_ns=self._core.clock(), ttl_s=int(ttl_s))
        call.outcome = "changed"
        told = {"token": token, "expires": ends, "header": DEBUG, "answered_in": DECISION}
        return json_reply(told)
