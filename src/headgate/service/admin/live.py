"""The call that tells what the service is doing, for the page at `/` and `headgate top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.service.http.replies import JSON_LINE, NO_STORE, Reply

if TYPE_CHECKING:
    from headgate.service.admin.call import Call
    from headgate.service.live import Live


class LiveCalls:
    """What *live* sees."""

    def __init__(self, live: Live) -> None:
        self._live = live

    async def told(self, call: Call) -> Reply:
        """GET /live: of all workers of this node."""
        call.query()
        return Reply(200, [JSON_LINE, NO_STORE], await self._live.answer())
