"""Where in a cluster a key lives: its slot, who owns the slot, and what redirections mean."""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from headgate.errors import StoreError
from headgate.server_urls import Address
from headgate.stores.redis import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.redis.request import Reply


SLOTS: Final = 16_384


def slot_of(key: bytes) -> int:
    """The slot of *key*: of what stands between its first { and the next }, if anything does."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


@dataclass(frozen=True, slots=True)
class Redirection:
    """MOVED or, if *asking*, ASK: the request was not carried out, and belongs to *address*."""

    slot: int
    address: Address
    asking: bool


def redirection(text: str, asked: Address) -> Redirection | None:
    """What an error reply from *asked* says: `MOVED 3999 host:port`; None if it makes no sense."""
    try:
        kind, slot, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        address = _address(host, int(port), asked)
        return Redirection(int(slot) % SLOTS, address, kind == "ASK")
    except ValueError:
        return None


def owners(reply: Reply, asked: Address) -> list[Address | None]:
    """The primary of each slot, out of the answer of *asked* to CLUSTER SLOTS."""
    found: list[Address | None] = [None] * SLOTS
    for first, last, address in _ranges(reply, asked):
        found[first : last + 1] = [address] * (last + 1 - first)
    return found


def _ranges(reply: Reply, asked: Address) -> Iterator[tuple[int, int, Address]]:
    for first, last, primary, *_replicas in reply:
        host, port = primary[:2]
        yield int(first), int(last), _address((host or b"").decode(), int(port), asked)


def _address(host: str, port: int, asked: Address) -> Address:
    """A node that does not know its own host is where the one is that was asked."""
    host = host.removeprefix("[").removesuffix("]")
    return Address(asked.host if host in ("", "?") else host, port)


# What to do about a request that a server has answered with an error. No I/O.


MOST_DETOURS: Final = 5
"""How often a request is sent again, other than after TRYAGAIN."""

_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1


class Remedy(Enum):
    """Ways to go on at the same server, which has not carried the request out."""

    SEND_WHOLE = 1  # with the script's text
    WAIT = 2  # the slot is on the move: in parts, or a little later


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request fails with *error*. If *is_stale*, find out anew where the server is."""

    error: StoreError
    is_stale: bool


Verdict = Remedy | Redirection | Refusal


def judge(text: str, where: str, detours: int, *, node: Address | None = None) -> Verdict:
    """What to do after the error reply *text* of the server that is called *where*.

    *detours* is how often the request has been sent again. *node* is the server's address if it is
    part of a cluster that we know of; without it MOVED and the like are errors.
    """
    code = text.partition(" ")[0]
    if detours < MOST_DETOURS:
        if code == "NOSCRIPT":
            return Remedy.SEND_WHOLE
        if node is not None:
            if code == "TRYAGAIN":
                return Remedy.WAIT
            if code in ("MOVED", "ASK") and (other := redirection(text, node)):
                return other
    if node is not None and code in ("MOVED", "ASK"):
        lost = f"{where}: nodes of the cluster sent a request on {detours} times: {text}"
        return Refusal(StoreError(lost, reason="cluster_down"), is_stale=True)
    error = errors.store_error(text, where)
    return Refusal(error, is_stale=error.reason in ("readonly", "cluster_down"))


def pause(timeout: float, left: float) -> float:
    """Seconds to wait after TRYAGAIN: the longer it has been going on, the longer."""
    return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (timeout - left) / 4))
