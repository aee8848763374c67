"""A cluster in one event loop: a link to each primary, and the map that says which to use."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.stores.redis import faults
from headgate.stores.redis.transport.connecting import door_to, open_async
from headgate.stores.redis.transport.discovery import carry_out_async
from headgate.stores.redis.transport.link import Link
from headgate.stores.redis.transport.nodes import Nodes, SlotMap
from headgate.stores.redis.transport.slots import SLOTS, Redirection, slot_of
from headgate.stores.redis.transport.verdict import Refusal, Remedy, judge, pause
from headgate.stores.redis.transport.wire import Owner, Pending, Wire, wire_on

if TYPE_CHECKING:
    from headgate.server_urls import Address
    from headgate.stores.redis.request import Request
    from headgate.stores.redis.url import RedisURL

_monotonic: Final = time.monotonic


class ClusterSite:
    """The links to the nodes of the cluster that *url* names."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._nodes = Nodes(url)
        self._links: dict[Address, Link] = {}
        self._by_slot: list[Link | None] = [None] * SLOTS
        self._waiting: list[Pending] = []  # for the map
        self._pausing: dict[Pending, asyncio.TimerHandle] = {}  # after TRYAGAIN
        self._asking: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._is_closed = False

    def submit(self, request: Request) -> None:
        """Send *request* to the node that owns its slot."""
        link = self._by_slot[slot_of(request.key)]
        if link is not None:
            link.submit(request)
        else:
            self._route((request, _monotonic() + self._url.timeout, 0))

    def owner_of(self, slot: int) -> str:
        """The address of the node that serves *slot*; "" if that is not known."""
        link = self._by_slot[slot]
        return "" if link is None else link.where

    async def aclose(self) -> None:
        """Drop all connections, and fail what is on its way."""
        self._is_closed = True
        if self._later is not None:
            self._later.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        for timer in self._pausing.values():
            timer.cancel()
        waiting = [*self._waiting, *self._pausing]
        self._waiting.clear()
        self._pausing.clear()
        faults.fail_all((request for request, _, _ in waiting), faults.closed(str(self._url)))
        for link in list(self._links.values()):
            await link.aclose()

    def _route(self, pending: Pending) -> None:
        """Send a request that has a deadline already, now or when the map is known."""
        slot = slot_of(pending[0].key)
        link = self._by_slot[slot]
        if link is not None:
            link.forward(pending, pending[0].packed())
            return
        self._want_map()
        if self._asking is not None:
            self._waiting.append(pending)
            return
        error = faults.unsent(self._nodes.refusal(_monotonic()) or self._nodes.unowned(slot))
        self._loop.call_soon(
            pending[0].failed, faults.closed(str(self._url)) if self._is_closed else error
        )

    def _want_map(self) -> None:
        """Ask for the map, if nobody does and it is time to; else as soon as it is."""
        nodes, now = self._nodes, _monotonic()
        nodes.is_stale = True
        if self._is_closed or self._asking is not None:
            return
        if nodes.is_due(now):
            nodes.begin(now)
            self._asking = self._loop.create_task(self._ask_for_map())
        elif self._later is None and (wait := nodes.spacing(now)):
            self._later = self._loop.call_later(wait, self._want_map_again)

    def _want_map_again(self) -> None:
        self._later = None
        if self._nodes.is_stale:
            self._want_map()

    async def _ask_for_map(self) -> None:
        nodes = self._nodes
        error: StoreError | None = None
        try:
            found = await carry_out_async(nodes.plan(), _monotonic() + self._url.timeout)
        except StoreError as caught:
            error = caught
            nodes.failed(error, _monotonic())
        else:
            nodes.learned(found)
            self._adopt(found)
        finally:
            self._asking = None
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            slot = slot_of(pending[0].key)
            if self._by_slot[slot] is not None:
                self._route(pending)
            else:
                faults.fail_all((pending[0],), faults.unsent(error or nodes.unowned(slot)))

    def _adopt(self, found: SlotMap) -> None:
        owners = {address for address in found if address is not None}
        links = {address: self._link_to(address) for address in owners}
        self._by_slot[:] = [None if one is None else links[one] for one in found]
        for address, link in list(self._links.items()):
            if address not in owners:
                link.renew()  # it is closed when it has been answered all it was asked
                if link.is_idle:
                    del self._links[address]

    def _link_to(self, address: Address) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(
                partial(self._dial, address),
                partial(self._judge, address),
                str(address),
                self._url.timeout,
                on_trouble=self._want_map,
            )
        return link

    async def _dial(self, address: Address, owner: Owner) -> Wire:
        url = self._url
        connection, _ = await open_async(door_to(url, address))
        return wire_on(connection, owner, str(address), url.timeout, plain=url.options.plain_link)

    def _judge(self, address: Address, link: Link, wire: Wire, pending: Pending, text: str) -> None:
        """Go on with a request that *address* has answered with an error."""
        request, deadline, detours = pending
        verdict = judge(text, wire.where, detours, node=address)
        if isinstance(verdict, Refusal):
            request.failed(verdict.error)
            if verdict.is_stale:
                link.renew()
                self._want_map()
        elif isinstance(verdict, Redirection):
            self._redirect((request, deadline, detours + 1), verdict)
        elif verdict is Remedy.SEND_WHOLE:
            # After a redirection the node may be one that has to be asked for leave.
            packed = request.packed_whole()
            wire.forward((request, deadline, detours + 1), packed, asking=detours > 0)
        else:
            self._try_again(pending, text, wire.where)

    def _redirect(self, pending: Pending, to: Redirection) -> None:
        link = self._link_to(to.address)
        if not to.asking:
            self._by_slot[to.slot] = link
            self._want_map()
        link.forward(pending, pending[0].packed(), asking=to.asking)

    def _try_again(self, pending: Pending, text: str, where: str) -> None:
        request, deadline, detours = pending
        parts = request.parts()
        if len(parts) > 1:
            for part in parts:
                self._route((part, deadline, detours))
            return
        left = deadline - _monotonic()
        wait = pause(self._url.timeout, left)
        if wait >= left:
            request.failed(faults.store_error(text, where))
            return
        self._pausing[pending] = self._loop.call_later(wait, self._resume, pending)

    def _resume(self, pending: Pending) -> None:
        del self._pausing[pending]
        self._route(pending)
