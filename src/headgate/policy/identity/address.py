"""An address: reading what others wrote, and which addresses count as one caller.

There is one value for one address, however it was spelled: IPv4-mapped IPv6 (`::ffff:1.2.3.4`) is
the IPv4 address, and zones (`fe80::1%eth0`) are dropped, as they mean something on one host only.
6to4, NAT64 and Teredo addresses are not unwrapped: the sender chooses the IPv4 address inside, and
could take the place of any other caller.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.engine.request import Request
    from headgate.policy.model import AddressSource

    Hop = tuple[IPv4Address | IPv6Address | None, bool, str]
    """An address, true if it is a trusted proxy, and the addresses that are one caller with it."""


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LONGEST_TEXT: Final = 128
"""Longer texts are no addresses; an IPv6 address with brackets, zone and port is far below."""

MAX_CACHED: Final = 4096
"""Texts and groups of addresses in each cache: callers come back."""

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


@lru_cache(maxsize=MAX_CACHED)
def _grouped(address: Address, prefix: int) -> str:
    if prefix == address.max_prefixlen:
        return str(address)
    hidden = address.max_prefixlen - prefix
    return f"{type(address)(int(address) >> hidden << hidden)}/{prefix}"


class Proxies:
    """The trusted proxies, as a set for each prefix length."""

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


# The address of the client behind trusted proxies.
#
# A proxy that forwards a request adds, at the right end of a header, the address it was sent the
# request from. So the header is a trail, and the trusted proxies decide how far left it can be
# followed:
#
#     X-Forwarded-For: 6.6.6.6, 203.0.113.7, 10.0.0.2      sent by the peer 10.0.0.1
#                      \_____/  \_________/  \______/
#                         |          |           written by 10.0.0.1, which is trusted
#                         |          written by 10.0.0.2, which is trusted: the client
#                         written by 203.0.113.7, which is not: anything may stand here
#
# Nothing left of the first address that is no trusted proxy is looked at, so nothing that a client
# sends changes who it is. An entry that is no address (`unknown`, `_hidden`, an empty one) ends the
# walk too: the last address that was sure, a trusted proxy's, then stands for the client. If all
# are trusted it is the leftmost.


MOST_ENTRIES: Final = 64
"""Entries of a header that are read, from the right."""

LONGEST_FORWARDED: Final = 8192
"""Characters of a `Forwarded` header that are read, from the right."""

_BLANKS: Final = " \t"
_MARK: Final = re.compile(r'\\+"?|"|,')
_PARAMETER: Final = re.compile(
    r"""[ \t]* (?P<name> [!#$%&'*+.^_`|~0-9A-Za-z-]+ )
        [ \t]*=[ \t]* (?: "(?P<quoted> (?: [^"\\] | \\. )* )" | (?P<token> [^\s";,]* ) )
        [ \t]* (?: ; | $ )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def peer_address(request: Request) -> Address | None:
    """The address of the other end of the connection; None if it has none, as a Unix socket."""
    return read_address(request.peer.strip(_BLANKS))


def client_address(request: Request, settings: AddressSource) -> Address | None:
    """The address of the client that sent *request*, as far as it is sure; None if there is none.

    That is the peer's, unless it is a trusted proxy: then the first from the right in the header
    that is not. Never raises, whatever is in the header.
    """
    return Trail(settings).client(request)


class Trail:
    """`client_address` with the settings prepared, for many requests."""

    __slots__ = ("_cached_hop", "_entries", "_proxies", "header")

    def __init__(self, settings: AddressSource) -> None:
        self.header: Final = settings.header.lower()
        self._proxies = Proxies(settings.trusted_proxies)
        self._entries = _forwarded if self.header == "forwarded" else _listed
        # Not of a method: a cycle would keep a replaced policy until the next collection.
        read = partial(_read_hop, settings, self._proxies)
        self._cached_hop = lru_cache(maxsize=MAX_CACHED)(read)

    def client(self, request: Request) -> Address | None:
        """The address of the client that sent *request*, as far as it is sure."""
        return self._client(request)[0]

    def client_key(self, request: Request) -> str:
        """Those who count as one caller with it, as text; "" if there is no address."""
        return self._client(request)[2]

    def trusts(self, address: Address) -> bool:
        """True if *address* is that of a trusted proxy."""
        return address in self._proxies

    def _client(self, request: Request) -> Hop:
        peer = self._hop(request.peer.strip(_BLANKS))
        if not peer[1]:
            return peer
        lines = request.header_lines(self.header)
        return self._walk(peer, self._entries(",".join(lines))) if lines else peer

    def _walk(self, sure: Hop, entries: Iterable[str]) -> Hop:
        for entry in entries:
            hop = self._hop(entry)
            if hop[0] is None:
                return sure
            if not hop[1]:
                return hop
            sure = hop
        return sure

    def _hop(self, text: str) -> Hop:
        return self._cached_hop(text) if len(text) <= LONGEST_TEXT else _NO_HOP


_NO_HOP: Final[Hop] = (None, False, "")


def _read_hop(settings: AddressSource, proxies: Proxies, text: str) -> Hop:
    address = read_address(text)
    if address is None:
        return _NO_HOP
    return address, address in proxies, address_key(address, settings)


def _listed(text: str) -> Iterator[str]:
    """The entries of `X-Forwarded-For` and the like, from the right."""
    entries = text.rsplit(",", MOST_ENTRIES)
    for entry in reversed(entries[-MOST_ENTRIES:]):
        yield _unquoted(entry.strip(_BLANKS))


def _unquoted(entry: str) -> str:
    quoted = len(entry) > 1 and entry[0] == entry[-1] == '"'
    return entry[1:-1] if quoted else entry


def _forwarded(text: str) -> Iterator[str]:
    """The `for` of the elements of `Forwarded` (RFC 7239), from the right; "" if there is none."""
    return map(_for, islice(_elements(text), MOST_ENTRIES))


def _elements(text: str) -> Iterator[str]:
    """The elements of *text* from the right, parted at commas outside of quotes.

    Read from the right, because a quote that a client left open would swallow, from the left, what
    the proxies added. Seen from its closing quote, a quoted text begins at the nearest quote that
    is not escaped, whatever stands before it. What was cut off or has half its quotes is left out.
    """
    seen = text[-LONGEST_FORWARDED:]
    end, quoted = len(seen), False
    for mark in reversed(list(_MARK.finditer(seen))):
        if mark[0][-1] == '"':
            escaped = len(mark[0]) % 2 == 0
            quoted = escaped if quoted else True
        elif mark[0] == "," and not quoted:
            yield seen[mark.end() : end]
            end = mark.start()
    if not quoted and len(seen) == len(text):
        yield seen[:end]


def _for(element: str) -> str:
    """The `for` of *element*; "" if there is none, or more than one, or it is malformed."""
    found, place = None, 0
    while place < len(element):
        parameter = _PARAMETER.match(element, place)
        if parameter is None:
            return ""
        place = parameter.end()
        if parameter["name"].lower() == "for":
            if found is not None:
                return ""
            found = parameter
    return "" if found is None else _value(found)


def _value(parameter: re.Match[str]) -> str:
    quoted: str | None = parameter["quoted"]
    return parameter["token"] if quoted is None else _ESCAPED.sub(r"\1", quoted)
