"""One spelling for all spellings of a host, and the wildcards it falls under."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

_NAME = re.compile(r"[a-z0-9._-]*")
_LONGEST_NAME = 253


def normalised_host(raw: str) -> str:
    """*raw* in lower case, without a port, a user and a dot at the end.

    An IPv6 address is in its short form without brackets and zone; letters beyond ASCII are as the
    DNS has them (`xn--`). Never raises.
    """
    host = raw.strip().lower()
    if _NAME.fullmatch(host) is None:
        host = _without_port(host.rpartition("@")[2])
    if not host.isascii():
        host = _in_ascii(host)
    return host.rstrip(".")


def wildcards(host: str, deepest: int) -> list[str]:
    """The `*.` names with up to *deepest* labels that the normalised *host* falls under."""
    labels = host.rsplit(".", deepest)
    return ["*." + ".".join(labels[first:]) for first in range(1, len(labels))]


def _without_port(host: str) -> str:
    if host.startswith("["):
        return _short_address(host[1:].partition("]")[0])
    if host.count(":") > 1:
        return _short_address(host)
    return host.partition(":")[0]


def _short_address(text: str) -> str:
    try:
        return IPv6Address(text.partition("%")[0]).compressed
    except ValueError:
        return text


def _in_ascii(host: str) -> str:
    if len(host) > _LONGEST_NAME:
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host
