"""Where in a cluster a key lives: its slot, who owns the slot, and what redirections mean."""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.server_urls import Address

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
