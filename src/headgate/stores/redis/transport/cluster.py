"""A cluster, for callers that may block.

Requests are carried out in rounds: all that are to be sent are grouped by node, written to each
node in one write, and read back. What a node sends elsewhere is for the next round.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.stores.redis import errors
from headgate.stores.redis.request import Request, Transport
from headgate.stores.redis.transport.async_connection import ASKING, Owner, Pending, Wire, wire_on
from headgate.stores.redis.transport.blocking_connection import Lane, lane_on
from headgate.stores.redis.transport.cluster_map import Nodes, SlotMap
from headgate.stores.redis.transport.connect import door_to, open_async, open_blocking
from headgate.stores.redis.transport.connection_pool import Lanes
from headgate.stores.redis.transport.reconnecting import Link
from headgate.stores.redis.transport.redirection import (
    SLOTS,
    Redirection,
    Refusal,
    Remedy,
    judge,
    pause,
    slot_of,
)
from headgate.stores.redis.transport.sentinel import carry_out, carry_out_async

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.server_urls import Address
    from headgate.stores.redis.request import Reply
    from headgate.stores.redis.url import RedisURL


_ReplyError: Final = hiredis.ReplyError


@dataclass(frozen=True, slots=True)
class _Errand:
    """A request on its way: to the owner of its slot, or to *target* if it was sent there."""

    request: Request
    target: Address | None = None
    detours: int = 0
    asking: bool = False
    whole: bool = False
    waits: bool = False

    def packed(self) -> bytes:
        command = self.request.packed_whole() if self.whole else self.request.packed()
        return ASKING.packed() + command if self.asking else command


class _Sent(NamedTuple):
    address: Address
    lanes: Lanes
    lane: Lane
    errands: list[_Errand]


class ClusterTransport(Transport):
    """Blocking requests to the nodes of a cluster."""

    is_cluster = True

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._is_closed = False
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """At first and after a fork: no connection, no lock, and nothing known."""
        self._nodes = Nodes(self._url)
        self._lanes: dict[Address, Lanes] = {}
        self._lock = threading.Lock()
        self._asking_for_map = threading.Lock()

    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        """Send all *requests* and wait until each is answered or has failed."""
        if deadline is None:
            deadline = time.monotonic() + self._url.timeout
        errands = [_Errand(request) for request in requests]
        while errands:
            if self._nodes.is_stale or not self._nodes.is_known:
                self._refresh(deadline)
            if any(errand.waits for errand in errands):
                errands = self._wait(errands, deadline)
            if time.monotonic() >= deadline:
                self._lose(errands, errors.too_late(str(self._url), self._url.timeout))
                return
            errands = self._round(errands, deadline)

    def owner_of(self, slot: int) -> str:
        """The address of the node that serves *slot*; "" if that is not known."""
        address = self._nodes.owners[slot]
        return "" if address is None else _shown(address)

    def close(self) -> None:
        """Drop all connections. Requests from now on fail."""
        with self._lock:
            self._is_closed = True
            lanes = list(self._lanes.values())
        for each in lanes:
            each.close()

    def _refresh(self, deadline: float) -> None:
        """Ask for the map, if it is time to and no other thread does."""
        nodes = self._nodes
        is_first = not nodes.is_known  # then there is nothing to do but wait for it
        if not self._asking_for_map.acquire(timeout=_left(deadline) if is_first else 0):
            return
        try:
            now = time.monotonic()
            if not nodes.is_due(now) or self._is_closed:
                return
            nodes.begin(now)
            try:
                until = deadline if is_first else now + (deadline - now) / 2
                nodes.learned(carry_out(nodes.plan(), until))
            except StoreError as error:
                nodes.failed(error, time.monotonic())
                return
        finally:
            self._asking_for_map.release()
        self._forget(set(nodes.owners))

    def _forget(self, owners: set[Address | None]) -> None:
        with self._lock:
            gone = [self._lanes.pop(one) for one in list(self._lanes) if one not in owners]
        for lanes in gone:
            lanes.close()

    def _round(self, errands: Iterable[_Errand], deadline: float) -> list[_Errand]:
        """Send *errands*, read the replies, and return what is to be sent again.

        Those nodes come first to which there is a connection: one that has to be connected to may
        be hung, and take all the time there is. Nobody waits for a connection while holding one,
        or threads could wait for each other.
        """
        groups: dict[Address, list[_Errand]] = {}
        for errand in errands:
            address = errand.target or self._owner(errand.request)
            if address is not None:
                groups.setdefault(address, []).append(errand)
        at_hand: list[tuple[Address, Lane]] = []
        for address in groups:
            lane = self._lanes_to(address).take_idle()
            if lane is not None:
                at_hand.append((address, lane))
        again = self._converse([(one, lane, groups.pop(one)) for one, lane in at_hand], deadline)
        for address, group in groups.items():
            try:
                lane = self._lanes_to(address).take(deadline)
            except StoreError as error:
                self._lose(group, errors.unsent(error))
            else:
                again += self._converse([(address, lane, group)], deadline)
        return again

    def _converse(
        self, asked: list[tuple[Address, Lane, list[_Errand]]], deadline: float
    ) -> list[_Errand]:
        """Send to all before reading from any."""
        sent: deque[_Sent] = deque()
        again: list[_Errand] = []
        waiting = deque(asked)
        try:
            while waiting:
                sent.extend(self._send(*waiting.popleft(), deadline))
            while sent:
                again += self._receive(sent.popleft(), deadline)
        except BaseException:
            for one in sent:
                one.lanes.drop(one.lane)
            for address, lane, _ in waiting:
                self._lanes_to(address).drop(lane)
            raise
        return again

    def _owner(self, request: Request) -> Address | None:
        slot = slot_of(request.key)
        address = self._nodes.owners[slot]
        if address is None or self._is_closed:
            request.failed(self._trouble(slot))
            return None
        return address

    def _trouble(self, slot: int) -> StoreError:
        if self._is_closed:
            return errors.closed(str(self._url))
        self._nodes.is_stale = True
        return errors.unsent(self._nodes.refusal(time.monotonic()) or self._nodes.unowned(slot))

    def _send(
        self, address: Address, lane: Lane, errands: list[_Errand], deadline: float
    ) -> Sequence[_Sent]:
        lanes = self._lanes_to(address)
        try:
            lane.send(b"".join(errand.packed() for errand in errands), deadline)
        except BaseException as error:
            lanes.drop(lane)
            if not isinstance(error, errors.DRIVER_ERRORS):
                raise
            self._lose(errands, self._loss(error, lane))
            return ()
        return (_Sent(address, lanes, lane, errands),)

    def _receive(self, sent: _Sent, deadline: float) -> list[_Errand]:
        address, lanes, lane, errands = sent
        count = sum(1 + errand.asking for errand in errands)
        try:
            replies = iter(lane.receive(count, deadline))
        except BaseException as error:
            lanes.drop(lane)
            if not isinstance(error, errors.DRIVER_ERRORS):
                raise
            lanes.renew()  # what befell one is likely to befall the others
            self._lose(errands, self._loss(error, lane))
            return []
        lanes.give(lane)
        again: list[_Errand] = []
        for errand in errands:
            if errand.asking:
                next(replies)
            again += self._settle(address, errand, next(replies))
        return again

    def _settle(self, address: Address, errand: _Errand, reply: Reply) -> Sequence[_Errand]:
        """Hand *reply* over, or say what to send instead."""
        if reply.__class__ is not _ReplyError:
            errors.deliver(errand.request, reply, str(address))
            return ()
        verdict = judge(str(reply), str(address), errand.detours, node=address)
        if isinstance(verdict, Refusal):
            errand.request.failed(verdict.error)
            if verdict.is_stale:
                self._nodes.is_stale = True
                self._lanes_to(address).renew()
            return ()
        if isinstance(verdict, Redirection):
            return (self._redirected(errand, verdict),)
        if verdict is Remedy.SEND_WHOLE:
            return (replace(errand, target=address, detours=errand.detours + 1, whole=True),)
        parts = errand.request.parts()
        return [_Errand(part, waits=len(parts) == 1) for part in parts]

    def _redirected(self, errand: _Errand, to: Redirection) -> _Errand:
        if not to.asking:
            self._nodes.owners[to.slot] = to.address
            self._nodes.is_stale = True
        return _Errand(errand.request, to.address, errand.detours + 1, asking=to.asking)

    def _wait(self, errands: Sequence[_Errand], deadline: float) -> list[_Errand]:
        """After TRYAGAIN: wait a little, or give up those that would be too late."""
        left = _left(deadline)
        wait = pause(self._url.timeout, left)
        if wait < left:
            time.sleep(wait)
            return [replace(errand, waits=False) for errand in errands]
        error = errors.store_error("TRYAGAIN", str(self._url))
        errors.fail_all((errand.request for errand in errands if errand.waits), error)
        return [errand for errand in errands if not errand.waits]

    def _loss(self, error: BaseException, lane: Lane) -> StoreError:
        if self._is_closed:
            return errors.closed(str(self._url), is_undone=False)
        return errors.loss(error, lane.where, self._url.timeout)

    def _lose(self, group: Iterable[_Errand], error: StoreError) -> None:
        self._nodes.is_stale = True
        errors.fail_all((errand.request for errand in group), error)

    def _lanes_to(self, address: Address) -> Lanes:
        with self._lock:
            lanes = self._lanes.get(address)
            if lanes is None:
                lanes = self._lanes[address] = self._new_lanes(address)
                if self._is_closed:
                    lanes.close()
            return lanes

    def _new_lanes(self, address: Address) -> Lanes:
        url = self._url
        door, plain = door_to(url, address), url.options.plain_link

        def dial(deadline: float) -> Lane:
            connection, _ = open_blocking(door, deadline, plain=plain)
            return lane_on(connection, str(door), url.timeout, plain=plain)

        return Lanes(dial, str(door), most=url.options.connections, timeout=url.timeout)


@lru_cache(maxsize=256)
def _shown(address: Address) -> str:
    return str(address)


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


# A cluster in one event loop: a link to each primary, and the map that says which to use.


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
        errors.fail_all((request for request, _, _ in waiting), errors.closed(str(self._url)))
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
        error = errors.unsent(self._nodes.refusal(_monotonic()) or self._nodes.unowned(slot))
        self._loop.call_soon(
            pending[0].failed, errors.closed(str(self._url)) if self._is_closed else error
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
                errors.fail_all((pending[0],), errors.unsent(error or nodes.unowned(slot)))

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
            request.failed(errors.store_error(text, where))
            return
        self._pausing[pending] = self._loop.call_later(wait, self._resume, pending)

    def _resume(self, pending: Pending) -> None:
        del self._pausing[pending]
        self._route(pending)
