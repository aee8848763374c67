"""Reading `identity`: how to tell who is asking."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, get_args

from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Table, shown
from headgate.policy.loader.scalars import Fields, entries, several
from headgate.policy.model import (
    BUILT_IN_PARTS,
    DEFAULT_SOURCES,
    AddressSource,
    Fallback,
    Identity,
    Source,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.policy.loader.diagnostics import Spot

KINDS: Final = ("header", "cookie", "attribute", "lookup")
SOURCE_FIELDS: Final = (*KINDS, "values", "default", "secret")
ADDRESS_FIELDS: Final = ("trusted_proxies", "ipv4_prefix", "ipv6_prefix", "header")
FALLBACKS: Final[tuple[Fallback, ...]] = get_args(Fallback)
RESERVED: Final = tuple(name for name in BUILT_IN_PARTS if name != "ip")

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
A_NAME: Final = "1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'"

_LONGEST_CHAIN: Final = 8

Network = IPv4Network | IPv6Network


def read_identity(spot: Spot) -> Identity:
    """What `identity` says. A source that is wrong is noted, and its name still counts as known."""
    if not isinstance(spot.node, Table):
        spot.expected("a mapping from names to where they are found")
        return Identity()
    found: dict[str, Source] = dict(DEFAULT_SOURCES)
    given: dict[str, Spot] = {}
    address, fallback = AddressSource(), Identity().fallback
    for child in spot.children():
        match name := child.name:
            case "ip":
                address = _address(child)
            case "fallback":
                fallback = _fallback(child) or fallback
            case _ if _is_free(child, name):
                given[name] = child
                found[name] = _source(child, name)
    _check_lookups(found, given)
    return Identity(MappingProxyType(found), address, fallback)


def _is_free(spot: Spot, name: str) -> bool:
    """Whether *name* can be that of a source."""
    key = spot.of_key()
    if name in RESERVED:
        key.wrong(f"{name!r} has a meaning of its own in key_by; expected another name")
    elif not NAME.fullmatch(name):
        key.wrong(f"{shown(name)} is not a name; expected {A_NAME}")
    else:
        return True
    return False


def _fallback(spot: Spot) -> Fallback | None:
    word = scalars.choice(spot, *FALLBACKS)
    return next((known for known in FALLBACKS if known == word), None)


def _source(spot: Spot, name: str) -> Source:
    default = DEFAULT_SOURCES.get(name, Source())
    fields = Fields.of(spot, SOURCE_FIELDS, "where it is found")
    if fields is None:
        return default
    kinds = fields.present(KINDS)
    if len(kinds) != 1:
        told = f"found {' and '.join(kinds)}" if kinds else "found none of them"
        spot.wrong(f"{told}, expected exactly one of {', '.join(KINDS)}")
    if ("values" in fields) != ("lookup" in fields):
        spot.wrong("lookup and values belong together: the source, and what to find for its values")
    return Source(
        header=fields.read("header", scalars.header_name, None),
        cookie=fields.read("cookie", _cookie, None),
        attribute=fields.read("attribute", scalars.word, None),
        lookup=fields.read("lookup", scalars.word, None),
        values=fields.read("values", _values, MappingProxyType({})),
        default=fields.read("default", scalars.word, None),
        secret=fields.read("secret", scalars.boolean, default.secret),
    )


def _cookie(spot: Spot) -> str | None:
    return scalars.token(spot, "the name of a cookie")


def _values(spot: Spot) -> Mapping[str, str] | None:
    """What to find for which value. The values may be secrets: messages number them instead."""
    found = {
        name: scalars.word(replace(child, key=None, number=number))
        for number, (name, child) in enumerate(entries(spot, "values"))
    }
    return MappingProxyType({name: value for name, value in found.items() if value is not None})


def _check_lookups(found: Mapping[str, Source], given: Mapping[str, Spot]) -> None:
    """Every lookup must lead to a source of another kind, over a few others if need be."""
    for name, spot in given.items():
        target = found[name].lookup
        if target is None:
            continue
        if target not in found:
            told = f"there is no source {shown(target)} to look up"
            spot.child("lookup").not_among(target, found, told)
        elif not _ends(found, name):
            told = f"looked up in a circle, or over more than {_LONGEST_CHAIN} others"
            spot.child("lookup").wrong(told)


def _ends(found: Mapping[str, Source], name: str) -> bool:
    """Whether the lookups that begin at *name* come to an end soon."""
    for _ in range(_LONGEST_CHAIN):
        target = found[name].lookup
        if target is None or target not in found:
            return True
        name = target
    return False


def _address(spot: Spot) -> AddressSource:
    fields = Fields.of(spot, ADDRESS_FIELDS, "how to find the address")
    if fields is None:
        return AddressSource()
    usual = AddressSource()
    return AddressSource(
        trusted_proxies=fields.read("trusted_proxies", _proxies, ()),
        ipv4_prefix=fields.read("ipv4_prefix", _ipv4_prefix, usual.ipv4_prefix),
        ipv6_prefix=fields.read("ipv6_prefix", _ipv6_prefix, usual.ipv6_prefix),
        header=fields.read("header", scalars.header_name, usual.header),
    )


def _ipv4_prefix(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, 32)


def _ipv6_prefix(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, 128)


def _proxies(spot: Spot) -> tuple[Network, ...] | None:
    return several(spot, _network, "an address or a network")


def _network(spot: Spot) -> Network | None:
    written = scalars.word(spot, "an address or a network such as 10.0.0.0/8")
    if written is None:
        return None
    try:
        network = ip_network(written)
    except ValueError:
        spot.wrong(f"{shown(written)} is not an address or a network", hint=_network_hint(written))
        return None
    if not network.prefixlen:
        spot.warn("every address is trusted: any caller can choose its own address")
    return network


def _network_hint(written: str) -> str:
    try:
        return f"did you mean '{ip_network(written, strict=False)}'?"
    except ValueError:
        return "expected one such as 10.0.0.0/8 or 2001:db8::1"
