"""An address: reading what others wrote, and which addresses count as one caller.

There is one value for one address, however it was spelled: IPv4-mapped IPv6 (`::ffff:1.2.3.4`) is
the IPv4 address, and zones (`fe80::1%eth0`) are dropped, as they mean something on one host only.
6to4, NAT64 and Teredo addresses are left alone: the IPv4 address inside is chosen by whoever sends
it, so to unwrap it would let a caller take anybody's place.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.rules.model import AddressSource

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_TEXT: Final = 128
"""Longer texts are no addresses; an IPv6 address with brackets, zone and port is far below."""

REMEMBERED: Final = 4096
"""How many addresses are remembered as grouped: callers come back."""

_WITH_PORT: Final = re.compile(
    r"(?: \[ (?P<six> [^\[\]]* ) \] | (?P<four> [0-9.]+ ) )"
    r"(?: : (?: [0-9]{1,5} | _[A-Za-z0-9._-]+ ) )?",
    re.VERBOSE,
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")


def read_address(text: str) -> Address | None:
    """The address that *text* is, with or without brackets, port and zone; None if it is none."""
    if len(text) > LONGEST_TEXT:
        return None
    parts = _WITH_PORT.fullmatch(text)
    try:
        if parts is None:
            return _six(text)
        if parts["four"] is not None:
            return IPv4Address(parts["four"])
        return _six(parts["six"])
    except AddressValueError:
        return None


def _six(text: str) -> Address:
    address = IPv6Address(text.partition("%")[0])
    mapped = address.ipv4_mapped
    return address if mapped is None else mapped


def address_key(address: Address, settings: AddressSource) -> str:
    """Those who count as one caller with *address*, as text: `1.2.3.4`, `2001:db8:1:2::/64`."""
    if isinstance(address, IPv4Address):
        return _grouped(address, settings.ipv4_prefix)
    return _grouped(address, settings.ipv6_prefix)


@lru_cache(maxsize=REMEMBERED)
def _grouped(address: Address, prefix: int) -> str:
    if prefix == address.max_prefixlen:
        return str(address)
    hidden = address.max_prefixlen - prefix
    return f"{type(address)(int(address) >> hidden << hidden)}/{prefix}"


class Proxies:
    """The proxies that are believed. Whether an address is one takes a set for each prefix length,
    not a look at each network."""

    __slots__ = ("_prefixes",)

    def __init__(self, networks: Iterable[Network]) -> None:
        prefixes: dict[tuple[int, int], set[int]] = {}
        for network in map(_plain, networks):
            hidden = network.max_prefixlen - network.prefixlen
            group = prefixes.setdefault((network.version, hidden), set())
            group.add(int(network.network_address) >> hidden)
        self._prefixes = prefixes

    def __contains__(self, address: Address) -> bool:
        version, number = address.version, int(address)
        return any(
            number >> hidden in group
            for (other, hidden), group in self._prefixes.items()
            if other == version
        )


def _plain(network: Network) -> Network:
    """*network*, and of IPv4-mapped IPv6 the IPv4 network: that is what addresses are read as."""
    if isinstance(network, IPv4Network) or not network.subnet_of(_MAPPED):
        return network
    first = IPv4Address(int(network.network_address) & 0xFFFF_FFFF)
    return IPv4Network((first, network.prefixlen - _MAPPED.prefixlen))
