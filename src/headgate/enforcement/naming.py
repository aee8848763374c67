"""From what a key function returns to the key of a counter.

A key function says whose counter it is: `"user-42"`, `42`, a UUID, or several of them as a tuple.
What it returns never collides with anything else, however odd it is: it is spelled as keys of rules
are (`headgate.identity`). Who is nobody (None or an empty text) is not let off: the caller's
address stands in, under a name that no key function can return.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final
from uuid import UUID

from headgate.errors import KeyInvalidError, OptionError
from headgate.identity import Identifier, hashed
from headgate.identity.spelling import spelled
from headgate.rules.model import AddressSource, Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from ipaddress import IPv4Network, IPv6Network

    from headgate.rules.request import Request

One = str | int | UUID
KeyValue = One | tuple[One | None, ...] | None
"""Whose counter it is; None: the caller did not say who it is."""

LONGEST_SHOWN: Final = 90
"""How long a name is that clients are told; there may be a number after it."""

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_WHO: Final = "expected text, a whole number, a UUID, a tuple of these, or None for the address"


def key_of(value: object, stand_in: Callable[[], str]) -> str:
    """The key that *value* stands for. *stand_in* is asked for that of who is nobody."""
    if isinstance(value, tuple):
        parts = [_spelled(part) for part in value]
        if not any(parts):
            return f"!{stand_in()}"
        return "&".join(part or f"!{stand_in()}" for part in parts)
    return _spelled(value) or f"!{stand_in()}"


def _spelled(value: object) -> str | None:
    if isinstance(value, str):
        return spelled(value) if value else None
    if value is None:
        return None
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return spelled(str(value))
    raise KeyInvalidError(f"the key function returned {value!r}; {_WHO}")


def shown_name(text: str) -> str:
    """*text*, the name of something in an app, as clients may be told it."""
    return _ODD.sub("-", text)[:LONGEST_SHOWN].strip("-.") or "limit"


def free_name(name: str, taken: Container[str | None]) -> str:
    """*name*, or with the first number from 2 after it that makes it one that is not *taken*."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


class RequestKey:
    """A key function of Headgate's own `Request`, whatever the requests of the framework are."""

    __slots__ = ("_find", "_name")

    def __init__(self, name: str, find: Callable[[Request], str | None]) -> None:
        self._name = name
        self._find = find

    def __call__(self, request: Request) -> str | None:
        return self._find(request)

    def __repr__(self) -> str:
        return self._name


def by_address(
    *,
    trusted_proxies: Iterable[str] = (),
    header: str = "x-forwarded-for",
    ipv4_prefix: int = 32,
    ipv6_prefix: int = 64,
) -> RequestKey:
    """A key function: the client's address.

    Headers are believed only as far as *trusted_proxies* (addresses or networks) sent them.
    A peer on a Unix socket is 127.0.0.1. Of IPv6, a /64 is one caller.
    """
    if isinstance(trusted_proxies, str):
        raise OptionError(
            f"trusted_proxies is {trusted_proxies!r}; expected a list, as ['10.0.0.0/8']"
        )
    source = AddressSource(
        trusted_proxies=tuple(_network(text) for text in trusted_proxies),
        ipv4_prefix=_prefix(ipv4_prefix, 32, "ipv4_prefix"),
        ipv6_prefix=_prefix(ipv6_prefix, 128, "ipv6_prefix"),
        header=header.lower(),
    )
    find = Identifier(Identity(address=source)).find

    def address(request: Request) -> str:
        return find(request).ip

    return RequestKey("by_address()", address)


def by_header(name: str, *, salt: bytes = b"", is_secret: bool = True) -> RequestKey:
    """A key function: the value of a header, hashed unless it is no secret.

    Who does not send it, or sends it empty, is counted by address.
    """
    field = name.lower()

    def value(request: Request) -> str | None:
        found = (request.header(field) or "").strip(" \t")
        if not found:
            return None
        return hashed(found, salt)[1:] if is_secret else found

    return RequestKey(f"by_header({name!r})", value)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise OptionError(
            f"trusted_proxies: {text!r} is no address or network; expected such as '10.0.0.0/8'"
        ) from error


def _prefix(length: int, most: int, name: str) -> int:
    if type(length) is not int or not 1 <= length <= most:
        raise OptionError(f"{name} is {length!r}; expected a whole number from 1 to {most}")
    return length
