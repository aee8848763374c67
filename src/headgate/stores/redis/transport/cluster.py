"""A cluster, for callers that may block.

Requests are carried out in rounds: all that are to be sent are grouped by node, written to each
node in one write, and read back. What a node sends elsewhere is for the next round.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import hiredis

from headgate.errors import StoreError
from headgate.stores.redis import faults
from headgate.stores.redis.forking import watch_forks
from headgate.stores.redis.request import Request, Transport
from headgate.stores.redis.transport.connecting import door_to, open_blocking
from headgate.stores.redis.transport.discovery import carry_out
from headgate.stores.redis.transport.lane import Lane, lane_on
from headgate.stores.redis.transport.lanes import Lanes
from headgate.stores.redis.transport.nodes import Nodes
from headgate.stores.redis.transport.slots import Redirection, slot_of
from headgate.stores.redis.transport.verdict import Refusal, Remedy, judge, pause
from headgate.stores.redis.transport.wire import ASKING

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
        self.begin_anew()
        watch_forks(self)

    def begin_anew(self) -> None:
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
                self._lose(errands, faults.too_late(str(self._url), self._url.timeout))
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
                self._lose(group, faults.unsent(error))
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
            return faults.closed(str(self._url))
        self._nodes.is_stale = True
        return faults.unsent(self._nodes.refusal(time.monotonic()) or self._nodes.unowned(slot))

    def _send(
        self, address: Address, lane: Lane, errands: list[_Errand], deadline: float
    ) -> Sequence[_Sent]:
        lanes = self._lanes_to(address)
        try:
            lane.send(b"".join(errand.packed() for errand in errands), deadline)
        except BaseException as error:
            lanes.drop(lane)
            if not isinstance(error, faults.DRIVER_ERRORS):
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
            if not isinstance(error, faults.DRIVER_ERRORS):
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
            faults.deliver(errand.request, reply, str(address))
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
        error = faults.store_error("TRYAGAIN", str(self._url))
        faults.fail_all((errand.request for errand in errands if errand.waits), error)
        return [errand for errand in errands if not errand.waits]

    def _loss(self, error: BaseException, lane: Lane) -> StoreError:
        if self._is_closed:
            return faults.closed(str(self._url), is_undone=False)
        return faults.loss(error, lane.where, self._url.timeout)

    def _lose(self, group: Iterable[_Errand], error: StoreError) -> None:
        self._nodes.is_stale = True
        faults.fail_all((errand.request for errand in group), error)

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
