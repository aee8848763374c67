"""Whether Envoy has taken up what it was given: it says so in its counters only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.gateway.running.admin import AdminError

if TYPE_CHECKING:
    from headgate.gateway.running.admin import EnvoyAdmin

_TAKEN: Final = (".update_success", ".config_reload")
_REFUSED: Final = (".update_rejected", ".config_fail")
_PATTERN: Final = r"\.(update_success|config_reload|update_rejected|config_fail)$"
_PATIENCE: Final = 3.0
_LOOK: Final = 0.05

Counts = dict[str, int]


class Acceptance:
    """How Envoy stands to its files, asked before they are replaced and afterwards."""

    def __init__(self, admin: EnvoyAdmin, *, patience: float = _PATIENCE) -> None:
        self._admin = admin
        self._patience = patience

    async def counts(self) -> Counts:
        """How often Envoy has taken or refused each thing until now; nothing if it cannot be
        asked: one that is about to start reads the new files anyhow."""
        try:
            return await self._admin.stats(_PATTERN)
        except AdminError:
            return {}

    async def refused(self, before: Counts, replaced: int) -> tuple[str, ...]:
        """What Envoy has refused since *before*, after so many files were *replaced*.

        It is asked until it has taken as many things, or has refused one; or until it has had time
        enough, for some changes are none to Envoy.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience
        while True:
            now = await self.counts()
            grown = {name for name, count in now.items() if count > before.get(name, 0)}
            refused = sorted(name for name in grown if name.endswith(_REFUSED))
            if refused:
                return tuple(name.rpartition(".")[0] for name in refused)
            taken = {name.rpartition(".")[0] for name in grown if name.endswith(_TAKEN)}
            if len(taken) >= replaced or loop.time() >= end:
                return ()
            await asyncio.sleep(_LOOK)
