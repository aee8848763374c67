"""A Redis cluster: slots and their owners, redirections, and the transports for them.

Requests of threads are carried out in rounds: all that are to be sent are grouped by node, written
to each node in one write, and read back; redirected requests go into the next round. In an event
loop each node has a connection that comes back, and the slot map says which to use.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

import hiredis

from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.runtime.drivers import adrive, drive
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.connect import ask_each, dial_server, server_at
from headgate.stores.redis.connection import ASKING, AsyncConnection, BlockingConnection, InFlight
from headgate.stores.redis.naming import CLUSTER_SLOTS, slot_of
from headgate.stores.redis.pool import Backoff, ConnectionPool, ReconnectingConnection
from headgate.stores.redis.request import Request, Transport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headgate.runtime.effects import Effects
    from headgate.stores.redis.connect import Endpoint
    from headgate.stores.redis.request import Reply
    from headgate.stores.redis.url import RedisURL

MOST_DETOURS: Final = 5
"""How often a request is sent again, other than after TRYAGAIN."""
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_MAP_SPACING: Final = 0.1  # seconds between two requests for the map
_ReplyError: Final = hiredis.ReplyError
_monotonic: Final = time.monotonic

SlotMap = list["Address | None"]
"""The primary of each slot."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """MOVED or, if *asking*, ASK: the request was not carried out, and belongs to *address*."""

    slot: int
    address: Address
    asking: bool


def redirection(text: str, asked: Address) -> Redirection | None:
    """Parse an error reply of *asked* such as `MOVED 3999 host:port`; None if it is malformed."""
    try:
        kind, slot, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        address = _address(host, int(port), asked)
        return Redirection(int(slot) % CLUSTER_SLOTS, address, kind == "ASK")
    except ValueError:
        return None


def owners(reply: Reply, asked: Address) -> SlotMap:
    """Return the primary of each slot, out of the reply of *asked* to CLUSTER SLOTS."""
    found: SlotMap = [None] * CLUSTER_SLOTS
    for first, last, address in _ranges(reply, asked):
        found[first : last + 1] = [address] * (last + 1 - first)
    return found


def _ranges(reply: Reply, asked: Address) -> Iterator[tuple[int, int, Address]]:
    for first, last, primary, *_replicas in reply:
        host, port = primary[:2]
        yield int(first), int(last), _address((host or b"").decode(), int(port), asked)


def _address(host: str, port: int, asked: Address) -> Address:
    """Return the address of a node; one that does not know its own host is where *asked* is."""
    host = host.removeprefix("[").removesuffix("]")
    return Address(asked.host if host in ("", "?") else host, port)


class Retry(Enum):
    """A way to go on at the same server, which has not carried the request out."""

    SEND_SCRIPT = 1  # with the script's text
    WAIT = 2  # the slot is being moved: send it in parts, or a little later


@dataclass(frozen=True, slots=True)
class Failure:
    """The request fails with *error*. If *is_stale*, find the server again."""

    error: StoreError
    is_stale: bool


Action = Retry | Redirection | Failure


def action_for(text: str, where: str, detours: int, *, node: Address | None = None) -> Action:
    """Return what to do after the error reply *text* of the server *where*.

    *detours* is how often the request has been sent again. *node* is the server's address if it is
    part of a cluster; without it MOVED and the like are errors.
    """
    code = text.partition(" ")[0]
    if detours < MOST_DETOURS:
        if code == "NOSCRIPT":
            return Retry.SEND_SCRIPT
        if node is not None:
            if code == "TRYAGAIN":
                return Retry.WAIT
            if code in ("MOVED", "ASK") and (other := redirection(text, node)):
                return other
    if node is not None and code in ("MOVED", "ASK"):
        lost = f"{where}: nodes of the cluster redirected a request {detours} times: {text}"
        return Failure(StoreError(lost, reason="cluster_down"), is_stale=True)
    error = errors.store_error(text, where)
    return Failure(error, is_stale=error.reason in ("readonly", "cluster_down"))


def pause(timeout: float, left: float) -> float:
    """Seconds to wait after TRYAGAIN: the longer it has been going on, the longer."""
    return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (timeout - left) / 4))


class Nodes:
    """The nodes of a cluster as far as known, and when to ask for the map again. No I/O.

    A caller that carries out `dial` reports when it begins and how it ended. Times are monotonic.
    """

    def __init__(self, url: RedisURL) -> None:
        self.owners: SlotMap = [None] * CLUSTER_SLOTS
        self.is_known = False
        self.is_stale = True
        self._url = url
        self._known: tuple[Address, ...] = url.addresses
        self._backoff = Backoff()
        self._not_before = 0.0

    def dial(self, deadline: float) -> Effects[SlotMap]:
        """Ask one node after the other for the map, until *deadline*."""
        nodes = [server_at(self._url, address) for address in self._known]
        asked, found = yield from ask_each(nodes, deadline, ("CLUSTER", "SLOTS"), _read_map)
        primaries = sorted({one for one in found if one is not None})
        self._known = tuple(dict.fromkeys((asked.address, *primaries, *self._url.addresses)))
        return found

    def refusal(self, now: float) -> StoreError | None:
        """Return why not to ask for the map at *now*, after that has failed; or None."""
        return self._backoff.refusal(now)

    def is_due(self, now: float) -> bool:
        """Return True if a new map is needed and may be asked for at *now*."""
        return self.is_stale and now >= self._not_before and self._backoff.refusal(now) is None

    def spacing(self, now: float) -> float:
        """Seconds until the map may be asked for again after *now*."""
        return max(self._not_before - now, 0.0)

    def begin(self, now: float) -> None:
        """Begin to ask. A map that is called stale from now on is the next one."""
        self.is_stale = False
        self._not_before = now + _MAP_SPACING

    def learned(self, found: SlotMap) -> None:
        """Use the map that was found."""
        self.owners = found
        self.is_known = True
        self._backoff.succeeded()

    def failed(self, error: StoreError, now: float) -> None:
        """Begin a pause: no node answered."""
        self.is_stale = True
        self._backoff.failed(error, now)

    def unowned(self, slot: int) -> StoreError:
        """The error of a request for *slot*, which no node serves."""
        return StoreError(f"no node of the cluster serves slot {slot}", reason="cluster_down")


def _read_map(asked: Endpoint, reply: Reply) -> SlotMap:
    try:
        found = owners(reply, asked.address)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{asked} gives no map of slots: {reply!r}") from error
    if not any(found):
        raise StoreError(f"{asked} knows of no slot that is served", reason="cluster_down")
    return found


@dataclass(frozen=True, slots=True)
class _Routed:
    """A request for the owner of its slot, or for *target* if it was redirected there."""

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
    pool: ConnectionPool
    connection: BlockingConnection
    group: list[_Routed]
    deadline: float


class ClusterTransport(Transport):
    """Blocking requests to the nodes of a cluster."""

    is_cluster = True

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._is_closed = False
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin without connections, locks and map, in a new transport or a forked process."""
        self._nodes = Nodes(self._url)
        self._pools: dict[Address, ConnectionPool] = {}
        self._lock = threading.Lock()
        self._asking_for_map = threading.Lock()
        self._map_until = 0.0

    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        if deadline is None:
            deadline = _monotonic() + self._url.timeout
        routed = [_Routed(request) for request in requests]
        while routed:
            if self._nodes.is_stale or not self._nodes.is_known:
                deadline = self._refresh(deadline)
            if any(one.waits for one in routed):
                routed = self._wait(routed, deadline)
            if _monotonic() >= deadline:
                self._fail(routed, errors.too_late(str(self._url), self._url.timeout))
                return
            routed, deadline = self._round(routed, deadline)
            if any(one.whole for one in routed):  # the script was unknown: nothing was carried out
                deadline = _monotonic() + self._url.timeout

    def owner_of(self, slot: int) -> str:
        address = self._nodes.owners[slot]
        return "" if address is None else _shown(address)

    def connecting_until(self, key: bytes) -> float:
        address = self._nodes.owners[slot_of(key)]
        pool = None if address is None else self._pools.get(address)
        return max(self._map_until, 0.0 if pool is None else pool.connecting_until)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            pools = list(self._pools.values())
        for pool in pools:
            pool.close()

    def _refresh(self, deadline: float) -> float:
        """Ask for the map, if it is time to and no other thread does; return the new deadline.

        The first map has the time of connecting; a later one is found within half the time left.
        """
        nodes, url = self._nodes, self._url
        is_first = not nodes.is_known  # then there is nothing to do but wait for it
        if not self._asking_for_map.acquire(timeout=url.connect_timeout if is_first else 0):
            return deadline
        try:
            now = _monotonic()
            if not nodes.is_due(now) or self._is_closed:
                return now + url.timeout if is_first else deadline
            nodes.begin(now)
            until = now + url.connect_timeout if is_first else now + (deadline - now) / 2
            self._map_until = until if is_first else 0.0
            try:
                nodes.learned(drive(nodes.dial(until)))
            except StoreError as error:
                nodes.failed(error, _monotonic())
                return deadline if not is_first else _monotonic() + url.timeout
            finally:
                self._map_until = 0.0
        finally:
            self._asking_for_map.release()
        self._forget(set(nodes.owners))
        return _monotonic() + url.timeout if is_first else deadline

    def _forget(self, known: set[Address | None]) -> None:
        with self._lock:
            gone = [self._pools.pop(one) for one in list(self._pools) if one not in known]
        for pool in gone:
            pool.close()

    def _round(self, routed: Iterable[_Routed], deadline: float) -> tuple[list[_Routed], float]:
        """Send *routed*, read the replies; return what to send again, and the new deadline.

        Nodes that are connected come first: one that has to be connected to may hang, and take all
        the time there is. No thread waits for a connection while it holds one, or threads could
        wait for each other.
        """
        groups: dict[Address, list[_Routed]] = {}
        for one in routed:
            address = one.target or self._owner(one.request)
            if address is not None:
                groups.setdefault(address, []).append(one)
        at_hand: list[tuple[Address, BlockingConnection]] = []
        for address in groups:
            connection = self._pool(address).acquire_idle()
            if connection is not None:
                at_hand.append((address, connection))
        again = self._exchange([(one, via, groups.pop(one)) for one, via in at_hand], deadline)
        for address, group in groups.items():
            try:
                connection, deadline = self._pool(address).acquire(deadline)
            except StoreError as error:
                self._fail(group, errors.unsent(error))
            else:
                again += self._exchange([(address, connection, group)], deadline)
        return again, deadline

    def _exchange(
        self, asked: list[tuple[Address, BlockingConnection, list[_Routed]]], deadline: float
    ) -> list[_Routed]:
        """Send to all before reading from any."""
        sent: deque[_Sent] = deque()
        again: list[_Routed] = []
        waiting = deque(asked)
        try:
            while waiting:
                sent.extend(self._send(*waiting.popleft(), deadline))
            while sent:
                again += self._receive(sent.popleft())
        except BaseException:
            for one in sent:
                one.pool.drop(one.connection)
            for address, connection, _ in waiting:
                self._pool(address).drop(connection)
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
        return errors.unsent(self._nodes.refusal(_monotonic()) or self._nodes.unowned(slot))

    def _send(
        self, address: Address, connection: BlockingConnection, group: list[_Routed], until: float
    ) -> Sequence[_Sent]:
        pool = self._pool(address)
        try:
            connection.send(b"".join(one.packed() for one in group), until)
        except BaseException as error:
            pool.drop(connection)
            if not isinstance(error, errors.DRIVER_ERRORS):
                raise
            self._fail(group, self._loss(error, connection))
            return ()
        return (_Sent(address, pool, connection, group, until),)

    def _receive(self, sent: _Sent) -> list[_Routed]:
        address, pool, connection, group, deadline = sent
        count = sum(1 + one.asking for one in group)
        try:
            replies = iter(connection.receive(count, deadline))
        except BaseException as error:
            pool.drop(connection)
            if not isinstance(error, errors.DRIVER_ERRORS):
                raise
            pool.renew()  # the other connections have likely failed too
            self._fail(group, self._loss(error, connection))
            return []
        pool.release(connection)
        again: list[_Routed] = []
        for one in group:
            if one.asking:
                next(replies)
            again += self._settle(address, one, next(replies))
        return again

    def _settle(self, address: Address, routed: _Routed, reply: Reply) -> Sequence[_Routed]:
        """Hand *reply* over, or return what to send instead."""
        if reply.__class__ is not _ReplyError:
            errors.deliver(routed.request, reply, str(address))
            return ()
        action = action_for(str(reply), str(address), routed.detours, node=address)
        if isinstance(action, Failure):
            routed.request.failed(action.error)
            if action.is_stale:
                self._nodes.is_stale = True
                self._pool(address).renew()
            return ()
        if isinstance(action, Redirection):
            if not action.asking:
                self._nodes.owners[action.slot] = action.address
                self._nodes.is_stale = True
            detours, asking = routed.detours + 1, action.asking
            return (_Routed(routed.request, action.address, detours, asking=asking),)
        if action is Retry.SEND_SCRIPT:
            return (replace(routed, target=address, detours=routed.detours + 1, whole=True),)
        parts = routed.request.parts()
        return [_Routed(part, waits=len(parts) == 1) for part in parts]

    def _wait(self, routed: Sequence[_Routed], deadline: float) -> list[_Routed]:
        """Wait a little after TRYAGAIN, or give up those that would be too late."""
        left = max(deadline - _monotonic(), 0.0)
        wait = pause(self._url.timeout, left)
        if wait < left:
            time.sleep(wait)
            return [replace(one, waits=False) for one in routed]
        error = errors.store_error("TRYAGAIN", str(self._url))
        errors.fail_all((one.request for one in routed if one.waits), error)
        return [one for one in routed if not one.waits]

    def _loss(self, error: BaseException, connection: BlockingConnection) -> StoreError:
        if self._is_closed:
            return errors.closed(str(self._url), is_undone=False)
        return errors.loss(error, connection.where, self._url.timeout)

    def _fail(self, group: Iterable[_Routed], error: StoreError) -> None:
        self._nodes.is_stale = True
        errors.fail_all((one.request for one in group), error)

    def _pool(self, address: Address) -> ConnectionPool:
        with self._lock:
            pool = self._pools.get(address)
            if pool is None:
                dialer = dial_server(server_at(self._url, address))
                pool = self._pools[address] = ConnectionPool(dialer, str(address), self._url)
                if self._is_closed:
                    pool.close()
            return pool


@lru_cache(maxsize=256)
def _shown(address: Address) -> str:
    return str(address)


class ClusterConnections:
    """The connections of one event loop to the nodes of the cluster that *url* names."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._loop = asyncio.get_running_loop()
        self._nodes = Nodes(url)
        self._links: dict[Address, ReconnectingConnection] = {}
        self._by_slot: list[ReconnectingConnection | None] = [None] * CLUSTER_SLOTS
        self._waiting: list[InFlight] = []  # for the map
        self._pausing: dict[InFlight, asyncio.TimerHandle] = {}  # after TRYAGAIN
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
        """Return the address of the node that serves *slot*; "" if that is not known."""
        link = self._by_slot[slot]
        return "" if link is None else link.where

    async def aclose(self) -> None:
        """Drop all connections, and fail what is in flight."""
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

    def _route(self, pending: InFlight) -> None:
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
        """Ask for the map, if that is not in progress and it is time to; else a little later."""
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
        nodes, url = self._nodes, self._url
        error: StoreError | None = None
        try:
            until = _monotonic() + url.connect_timeout
            found = await adrive(nodes.dial(until))
        except StoreError as caught:
            error = caught
            nodes.failed(error, _monotonic())
        else:
            nodes.learned(found)
            self._adopt(found)
        finally:
            self._asking = None
        waiting, self._waiting = self._waiting, []
        deadline = _monotonic() + url.timeout
        for request, _, detours in waiting:
            slot = slot_of(request.key)
            if self._by_slot[slot] is not None:
                self._route((request, deadline, detours))
            else:
                errors.fail_all((request,), errors.unsent(error or nodes.unowned(slot)))

    def _adopt(self, found: SlotMap) -> None:
        known = {address for address in found if address is not None}
        links = {address: self._link_to(address) for address in known}
        self._by_slot[:] = [None if one is None else links[one] for one in found]
        for address, link in list(self._links.items()):
            if address not in known:
                link.renew()  # it closes when all that is in flight has been answered
                if link.is_idle:
                    del self._links[address]

    def _link_to(self, address: Address) -> ReconnectingConnection:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = ReconnectingConnection(
                dial_server(server_at(self._url, address)),
                partial(self._on_error_reply, address),
                str(address),
                self._url,
                on_trouble=self._want_map,
            )
        return link

    def _on_error_reply(
        self,
        address: Address,
        link: ReconnectingConnection,
        via: AsyncConnection,
        pending: InFlight,
        text: str,
    ) -> None:
        request, deadline, detours = pending
        action = action_for(text, via.where, detours, node=address)
        if isinstance(action, Failure):
            request.failed(action.error)
            if action.is_stale:
                link.renew()
                self._want_map()
        elif isinstance(action, Redirection):
            self._redirect((request, deadline, detours + 1), action)
        elif action is Retry.SEND_SCRIPT:
            # After a redirection the node may be one that needs ASKING.
            packed, deadline = request.packed_whole(), _monotonic() + self._url.timeout
            via.forward((request, deadline, detours + 1), packed, asking=detours > 0)
        else:
            self._try_again(pending, text, via.where)

    def _redirect(self, pending: InFlight, to: Redirection) -> None:
        link = self._link_to(to.address)
        if not to.asking:
            self._by_slot[to.slot] = link
            self._want_map()
        link.forward(pending, pending[0].packed(), asking=to.asking)

    def _try_again(self, pending: InFlight, text: str, where: str) -> None:
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

    def _resume(self, pending: InFlight) -> None:
        del self._pausing[pending]
        self._route(pending)
