"""Addresses, as Envoy's configuration writes them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.settings.address import UNIX, Address, parse_address

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json

_LOCALHOST: Final = "localhost"
_PRIVATE: Final = 0o600


def place(text: str) -> Address:
    """What *text* names: the path of a socket, or `host:port`."""
    return parse_address(f"{UNIX}{text}" if text.startswith("/") else text)


def connecting(address: Address) -> Json:
    """An address to connect to."""
    if address.is_unix:
        return {"pipe": {"path": address.path}}
    return {"socket_address": {"address": address.host, "port_value": address.port}}


def listening(address: Address) -> Json:
    """An address to listen on. Raises `OptionError` if it is a name: Envoy looks none up for that.

    That of all addresses of IPv6 is for IPv6 alone, as it is for the service.
    """
    if address.host == _LOCALHOST:
        return connecting(Address("127.0.0.1", address.port))
    if address.host and not is_literal(address.host):
        told = "expected an address such as 127.0.0.1, 0.0.0.0 or [::]"
        raise OptionError(f"listen: {address.host} is a name; {told}")
    return connecting(address)


def private(address: Address) -> Json:
    """An address to listen on, where a socket is for its owner alone."""
    made = connecting(address)
    if "pipe" in made:
        made["pipe"]["mode"] = _PRIVATE
    return made


def is_literal(host: str) -> bool:
    """Whether *host* is an address already, and no name to be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
