"""Checks before the start: programs, certificates, ports and upstreams."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.gateway.processes.certificates import check_certificates
from headgate.gateway.processes.envoy import envoy_program
from headgate.gateway.processes.logs import GatewayError
from headgate.service.sockets import listen_reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.config import Address
    from headgate.config.gateway import GatewaySettings, Upstream


# Envoy does not report a port in use: two of them may listen on one port and share its connections.
# So a gateway reserves its ports with a socket that is bound and does not listen.


def check_free(addresses: Iterable[Address], *, option: str) -> tuple[Address, ...]:
    """Check that *addresses* are free, and return them with a free port in the place of port 0.

    Raises `GatewayError` if an address is in use or not allowed.
    """
    with ExitStack() as briefly:
        return reserve_ports(addresses, option=option, held=briefly)


def reserve_ports(
    addresses: Iterable[Address], *, option: str, held: ExitStack
) -> tuple[Address, ...]:
    """Check *addresses* like `check_free`, and reserve the ports until *held* is closed.

    An Envoy of this user may share them.
    """
    return tuple(
        _checked_unix(one, option) if one.is_unix else _held(one, option, held) for one in addresses
    )


def _held(address: Address, option: str, held: ExitStack) -> Address:
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        probe = held.enter_context(socket.socket(family, kind, protocol))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)
        if hasattr(socket, "SO_REUSEPORT"):  # set after bind, which checks that the port is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        return replace(address, port=probe.getsockname()[1])
    except OSError as error:
        message = f"cannot listen at {address}: {listen_reason(error, address, option)}"
        raise GatewayError(message) from error


def _checked_unix(address: Address, option: str) -> Address:
    """Check a unix socket; a stale file, as a killed process leaves it, is fine."""
    path = Path(address.path)
    message = f"cannot listen at {address}"
    if path.exists() and not path.is_socket():
        raise GatewayError(f"{message}: a file that is not a socket is there")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise GatewayError(
            f"{message}: {path.parent} is not a directory that this user can write to"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with suppress(ConnectionRefusedError, FileNotFoundError):
            probe.connect(address.path)
            raise GatewayError(f"{message}: the socket is in use; choose another with {option}")
    return address


def preflight(settings: GatewaySettings, held: ExitStack) -> tuple[GatewaySettings, str]:
    """Return *settings* with real ports in the place of 0, and Envoy's path. Raises `GatewayError`.

    The ports are reserved until *held* is closed.
    """
    program = envoy_program(settings)
    check_certificates(settings)
    listen = reserve_ports(settings.listen, option="--listen", held=held)
    admin = settings.envoy_admin
    if admin is not None:
        (admin,) = check_free((admin,), option="--envoy-admin")
    return replace(settings, listen=listen, envoy_admin=admin), program


_TIMEOUT_S: Final = 2.0


async def unreachable_warnings(upstreams: Iterable[Upstream]) -> list[str]:
    """A warning for each of *upstreams* that accepts no connection now."""
    servers = {one.url: one for one in upstreams}
    found = await asyncio.gather(*map(_warning, servers.values()))
    return [message for message in found if message is not None]


async def _warning(upstream: Upstream) -> str | None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            if upstream.path:
                _, writer = await asyncio.open_unix_connection(upstream.path)
            else:
                _, writer = await asyncio.open_connection(upstream.host, upstream.port)
    except TimeoutError:
        reason = f"no connection within {_TIMEOUT_S:g} s"
    except OSError as error:
        reason = _reach_reason(error)
    else:
        writer.close()
        return None
    message = f"the upstream {upstream.url} is unreachable: {reason}"
    return f"{message}; requests to it get 503 until it is up"


def _reach_reason(error: OSError) -> str:
    """A short reason, also if several addresses were tried."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused"
    return error.strerror or str(error)
