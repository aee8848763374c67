"""Requests, and settings to find who sent them."""

from __future__ import annotations

from ipaddress import ip_network
from types import MappingProxyType

from headgate.engine.request import Request
from headgate.limits import parse_limits
from headgate.policy.model import (
    DEFAULT_SOURCES,
    AddressSource,
    Fallback,
    Identity,
    Match,
    Rule,
    Source,
)

PROXY = "10.0.0.1"


def behind(*networks: str, header: str = "x-forwarded-for") -> AddressSource:
    """Settings that believe the proxies of *networks*; without any, those of 10.0.0.0/8."""
    trusted = tuple(ip_network(network) for network in networks or ("10.0.0.0/8",))
    return AddressSource(trusted_proxies=trusted, header=header)


def sent(*lines: str, peer: str = PROXY, header: str = "X-Forwarded-For") -> Request:
    """A request with *lines* of *header*, from *peer*."""
    return Request(headers=tuple((header, line) for line in lines), peer=peer)


def asked(**headers: str) -> Request:
    """A request from 1.2.3.4 with *headers*, `_` for `-` in their names."""
    lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Request(headers=lines, peer="1.2.3.4")


def by(*parts: str) -> Rule:
    """A rule that counts by *parts*."""
    return Rule("r", Match(), parts, {None: parse_limits("1/s")})


def identity(*, fallback: Fallback = "ip", **sources: Source) -> Identity:
    """An identity with *sources* besides the usual ones."""
    return Identity(MappingProxyType({**DEFAULT_SOURCES, **sources}), fallback=fallback)
