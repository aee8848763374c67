"""A Redis cluster: slots and their owners, redirections, and reactions to error replies. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.connect import Backoff, ask_each, server_at
from headgate.stores.redis.naming import CLUSTER_SLOTS

if TYPE_CHECKING:
    from headgate.runtime.effects import Effects
    from headgate.stores.redis.connect import Endpoint
    from headgate.stores.redis.requests import Reply, Request
    from headgate.stores.redis.url import RedisURL

MOST_DETOURS: Final = 5
"""Times that a request is sent again, other than after TRYAGAIN."""
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_MAP_SPACING: Final = 0.1  # seconds between two requests for the map

SlotMap = list["Address | None"]
"""The primary of each slot."""


def redirection(text: str, asked: Address) -> tuple[int, Address] | None:
    """Return slot and node of a reply of *asked* such as `MOVED 3999 host:port`, or of ASK."""
    try:
        code, slot, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        found = int(slot) % CLUSTER_SLOTS, _address(host, int(port), asked)
    except ValueError:
        return None
    return found if code in ("MOVED", "ASK") else None


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


@dataclass(slots=True)
class Attempt:
    """A request to be sent to *target*, or else to the owner of its slot."""

    request: Request
    target: Address | None = None
    detours: int = 0
    """Times that it has been sent again, other than after TRYAGAIN."""
    asking: bool = False
    """True if ASKING precedes it."""
    is_whole: bool = False
    """True if it is sent with the script's text."""
    waits: bool = False
    """True if it is sent a little later."""

    def packed(self) -> bytes:
        """Return the command."""
        return self.request.packed_whole() if self.is_whole else self.request.packed()


@dataclass(frozen=True, slots=True)
class Failure:
    """A request fails with *error*. If *is_stale*, find the server again."""

    error: StoreError
    is_stale: bool


def pause(timeout: float, left: float) -> float:
    """Return the seconds to wait after TRYAGAIN: the more, the longer it has been going on."""
    return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (timeout - left) / 4))


class Nodes:
    """The nodes of a cluster as far as known, and the time to ask for the map again.

    The map of a single server is empty. A caller that performs `dial` reports its beginning and its
    end. Times are monotonic.
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

    def owner_of(self, slot: int) -> str:
        """Return the address of the node that serves *slot*; "" if that is not known."""
        address = self.owners[slot] if self.owners else None
        return "" if address is None else _shown(address)

    def react(
        self, sent: Attempt, asked: Address, where: str, text: str
    ) -> Failure | list[Attempt]:
        """Return what to send after the error reply *text* of the server *asked*, or the failure.

        The server has not executed a request that is sent again. *where* is its name in messages.
        """
        request, code = sent.request, text.partition(" ")[0]
        if sent.detours < MOST_DETOURS:
            again = Attempt(request, asked, sent.detours + 1)
            if code == "NOSCRIPT":
                # After a redirection the node may be one that needs ASKING.
                return [replace(again, asking=sent.detours > 0, is_whole=True)]
            if self.owners and code == "TRYAGAIN":
                parts = request.parts()
                return [Attempt(part, None, sent.detours, waits=len(parts) == 1) for part in parts]
            if self.owners and (found := redirection(text, asked)):
                slot, address = found
                if code == "MOVED":
                    self.owners[slot] = address
                    self.is_stale = True
                return [replace(again, target=address, asking=code == "ASK")]
        if self.owners and code in ("MOVED", "ASK"):
            lost = (
                f"{where}: nodes of the cluster redirected a request {sent.detours} times: {text}"
            )
            return Failure(StoreError(lost, reason="cluster_down"), is_stale=True)
        error = errors.store_error(text, where)
        return Failure(error, is_stale=error.reason in ("readonly", "cluster_down"))

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


@lru_cache(maxsize=256)
def _shown(address: Address) -> str:
    return str(address)


def _read_map(asked: Endpoint, reply: Reply) -> SlotMap:
    try:
        found = owners(reply, asked.address)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{asked} gives no map of slots: {reply!r}") from error
    if not any(found):
        raise StoreError(f"{asked} knows of no slot that is served", reason="cluster_down")
    return found
