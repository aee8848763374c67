"""How a caller stands: every limit of it, without consuming any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.enforcement.status import Shown, looking_at, page_of, unknown
from headgate.errors import StoreError
from headgate.service.http.asked import TO_LOOK, read_asked
from headgate.service.http.documents import document_of
from headgate.service.http.original import Original, before_gateway, trail_in
from headgate.service.http.receiving import json_body_of
from headgate.service.http.replies import JSON_LINE, NO_STORE, Reply

if TYPE_CHECKING:
    from headgate.rules.request import Request
    from headgate.service.http.checking import Checking
    from headgate.service.http.options import HttpOptions
    from headgate.service.http.original import Peers
    from headgate.service.http.replies import Headers, Receive, Scope


class Standing:
    """`/v1/rate_limit`: of who asks, or of whom a body describes."""

    def __init__(self, checking: Checking, peers: Peers, options: HttpOptions) -> None:
        self._checking = checking
        self._peers = peers
        self._options = options

    async def of_this(self, scope: Scope, _receive: Receive) -> Reply:
        """The limits of the caller who sent this very request, through a gateway or not."""
        peer, is_gateway = self._peers.peer_of(scope)
        lines: Headers = list(scope["headers"])
        trail = trail_in(lines) if is_gateway else None
        if trail is not None:
            peer, trail = before_gateway(trail)
        host = next((value for name, value in lines if name == b"host"), b"")
        return await self._page(Original("GET", "/", host.decode("latin-1"), peer, lines, trail))

    async def of_described(self, scope: Scope, receive: Receive) -> Reply:
        """The limits of the caller that the body describes."""
        document = document_of(await json_body_of(scope, receive, self._options))
        return await self._page(read_asked(document, TO_LOOK).request)

    async def _page(self, request: Request) -> Reply:
        core = self._checking.core
        concerns = core.engine.in_force.engine.concerning(request)
        shown = [
            Shown(one.rule, one.limits, one.plan) for one in concerns if one.rule.headers == "on"
        ]
        looking = looking_at(shown)
        try:
            replies = await self._checking.within_deadline(core.engine.runner.store.run(looking))
        except StoreError:
            replies = unknown(looking)
        return Reply(200, [JSON_LINE, NO_STORE], page_of(shown, replies, core.clock()))
