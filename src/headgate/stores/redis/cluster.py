"""A Redis cluster: slots and their owners, redirections, and reactions to error replies. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.connect import Backoff, ask_each, server_at
from headgate.stores.redis.naming import CLUSTER_SLOTS

if TYPE_CHECKING:
    from headgate.runtime.effects import Effects
    from headgate.stores.redis.connect import Endpoint
    from headgate.stores.redis.requests import Reply
    from headgate.stores.redis.url import RedisURL

MOST_DETOURS: Final = 5
"""Times that a request is sent again, other than after TRYAGAIN."""
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_MAP_SPACING: Final = 0.1  # seconds between two requests for the map

SlotMap = list["Address | None"]
"""The primary of each slot."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """MOVED or, if *asking*, ASK: the request was not executed, and belongs to *address*."""

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
    for first, last, (host, port, *_), *_replicas in reply:
        address = _address((host or b"").decode(), int(port), asked)
        found[int(first) : int(last) + 1] = [address] * (int(last) + 1 - int(first))
    return found


def _address(host: str, port: int, asked: Address) -> Address:
    """Return the address of a node; one that does not know its own host is where *asked* is."""
    host = host.removeprefix("[").removesuffix("]")
    return Address(asked.host if host in ("", "?") else host, port)


class Retry(Enum):
    """A retry at the same server, which has not executed the request."""

    SEND_SCRIPT = 1  # with the script's text
    WAIT = 2  # the slot is being moved: send it in parts, or a little later


@dataclass(frozen=True, slots=True)
class Failure:
    """The request fails with *error*. If *is_stale*, find the server again."""

    error: StoreError
    is_stale: bool


Action = Retry | Redirection | Failure


def action_for(text: str, where: str, detours: int, *, node: Address | None = None) -> Action:
    """Return the reaction to the error reply *text* of the server *where*.

    *detours* counts the times that the request has been sent again. *node* is the server's address
    if it is part of a cluster; without it MOVED and the like are errors.
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
    """Return the seconds to wait after TRYAGAIN: the more, the longer it has been going on."""
    return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (timeout - left) / 4))


class Nodes:
    """The nodes of a cluster as far as known, and the time to ask for the map again.

    A caller that performs `dial` reports its beginning and its end. Times are monotonic.
    """

    def __init__(self, url: RedisURL) -> None:
        self.owners: SlotMap = [None] * (CLUSTER_SLOTS if url.is_cluster else 0)
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

    def is_due(self, now: float) -> bool:
        """Return True if a new map is needed and may be asked for at *now*."""
        return self.is_stale and now >= self._not_before and self._backoff.pause_error(now) is None

    def spacing(self, now: float) -> float:
        """Return the seconds from *now* until the map may be asked for again."""
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

    def unserved(self, slot: int, now: float) -> StoreError:
        """Return the error of a request for *slot*, whose node is not known: it was not sent."""
        text = f"no node of the cluster serves slot {slot}"
        unowned = StoreError(text, reason="cluster_down", is_undone=True)
        return self._backoff.pause_error(now) or unowned


def _read_map(asked: Endpoint, reply: Reply) -> SlotMap:
    try:
        found = owners(reply, asked.address)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{asked} gives no map of slots: {reply!r}") from error
    if not any(found):
        raise StoreError(f"{asked} knows of no slot that is served", reason="cluster_down")
    return found
