"""One server, or the primary that Sentinels name, in one event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.stores.redis.transport.link import Link
from headgate.stores.redis.transport.verdict import MOST_DETOURS, Refusal, judge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.stores.redis.transport.wire import Owner, Pending, Wire


class SoloSite:
    """The one link to the server that *dial* connects to."""

    def __init__(
        self, dial: Callable[[Owner], Awaitable[Wire]], where: str, timeout: float
    ) -> None:
        self._link = Link(dial, self._judge, where, timeout)
        self.submit = self._link.submit
        self.aclose = self._link.aclose

    def owner_of(self, slot: int) -> str:
        """There are no slots."""
        return ""

    def _judge(self, link: Link, wire: Wire, pending: Pending, text: str) -> None:
        request, deadline, detours = pending
        verdict = judge(text, wire.where, detours)
        if not isinstance(verdict, Refusal):
            wire.forward((request, deadline, MOST_DETOURS), request.packed_whole())
            return
        request.failed(verdict.error)
        if verdict.is_stale:
            link.renew()
