"""The end of Envoy without cutting anything off.

    fail health checks ---> linger ---> stop listening ---> requests under way finish ---> ended

From the first moment every response closes its connection, so that clients go elsewhere. Who keeps
a connection without a request on it finds it closed at the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.gateway.running.admin import EnvoyAdmin

_ACTIVE: Final = r"^http\..*downstream_(rq|cx)_active$"
_REQUESTS: Final = "downstream_rq_active"
_ADMIN: Final = "http.admin."
_LOOK: Final = 0.05
_QUIET_LOOKS: Final = 2
_QUIET_LOOKS_WITH_CONNECTIONS: Final = 10
"""How often in a row nothing must be under way: a request may be between two, or about to come on a
connection that was just made."""


async def drain(admin: EnvoyAdmin, *, linger: float, grace: float) -> bool:
    """Bring all requests to their end; whether none is under way after *grace* seconds.

    *linger* is for how many seconds new connections are still taken. Raises `AdminError` if Envoy
    does not answer.
    """
    await admin.post("/healthcheck/fail")
    await asyncio.sleep(linger)
    await admin.post("/drain_listeners")
    return await _until_quiet(admin, grace)


async def _until_quiet(admin: EnvoyAdmin, grace: float) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    quiet, enough = 0, _QUIET_LOOKS
    while quiet < enough:
        found = await admin.stats(_ACTIVE)
        active = {name: n for name, n in found.items() if n and not name.startswith(_ADMIN)}
        under_way = any(name.endswith(_REQUESTS) for name in active)
        enough = _QUIET_LOOKS_WITH_CONNECTIONS if active else _QUIET_LOOKS
        quiet = 0 if under_way else quiet + 1
        if under_way and loop.time() >= end:
            return False
        await asyncio.sleep(_LOOK)
    return True
