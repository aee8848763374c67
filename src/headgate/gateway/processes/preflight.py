"""What is looked at before anything is started, so that what is wrong is one clear line."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.gateway.processes.certificates import check_certificates
from headgate.gateway.processes.envoy import envoy_program
from headgate.gateway.processes.logs import GatewayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.config import Address
    from headgate.config.gateway import Upstream
    from headgate.gateway.processes.options import ServiceTerms, Terms


# Whether an address is free, before anything is started; and if not, who has it.
#
# Envoy would not tell: two of them may listen at one port, and share its connections. So the ports
# of a gateway are held, by a socket that is bound and does not listen, for as long as it runs.


_LISTENING: Final = "0A"
"""How Linux writes that a socket listens."""

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def check_free(addresses: Iterable[Address], *, what: str) -> tuple[Address, ...]:
    """*addresses*, each with a port that is free; port 0 with the one that it was given.

    Raises `GatewayError` if somebody listens there, or nobody may.
    """
    with ExitStack() as for_a_moment:
        return hold_free(addresses, what=what, held=for_a_moment)


def hold_free(addresses: Iterable[Address], *, what: str, held: ExitStack) -> tuple[Address, ...]:
    """As `check_free`; until *held* is closed nobody else gets the ports, of those that look
    whether they are free. An Envoy of ours may share them."""
    return tuple(
        _checked_unix(one, what) if one.is_unix else _held(one, what, held) for one in addresses
    )


def _held(address: Address, what: str, held: ExitStack) -> Address:
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, where = found[0]
        probe = held.enter_context(socket.socket(family, kind, protocol))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)
        if hasattr(socket, "SO_REUSEPORT"):  # from now on: it was to be free until now
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        return replace(address, port=probe.getsockname()[1])
    except OSError as error:
        told = f"cannot listen at {address} ({what}): {_reason(error, address)}"
        raise GatewayError(told) from error


def _checked_unix(address: Address, what: str) -> Address:
    """A socket that nobody listens at any more, as a killed process leaves it, is no hindrance."""
    path = Path(address.path)
    told = f"cannot listen at {address} ({what})"
    if path.exists() and not path.is_socket():
        raise GatewayError(f"{told}: there is a file that is not a socket")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise GatewayError(f"{told}: {path.parent} is no directory that this user may write to")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        with suppress(ConnectionRefusedError, FileNotFoundError):
            probe.connect(address.path)
            raise GatewayError(f"{told}: the address is in use; stop what listens there")
    return address


def _reason(error: OSError, address: Address) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = holder_of(address.port)
        by = f" by {holder}" if holder else ""
        return f"the address is in use{by}; stop what listens there, or choose another"
    if error.errno == errno.EACCES:
        return "permission denied; ports below 1024 need CAP_NET_BIND_SERVICE"
    return error.strerror or str(error)


def holder_of(port: int) -> str | None:
    """The process that listens at *port*, if this user can see it: its name and id."""
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with suppress(OSError):
            if any(str(one.readlink()) in inodes for one in process.joinpath("fd").iterdir()):
                name = process.joinpath("comm").read_text("utf-8", "replace").strip()
                return f"{name} (process {process.name})"
    return None


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen at *port*."""
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text("ascii", "replace").splitlines()[1:]:
                fields = line.split()
                own = fields[1].rpartition(":")[2]
                if fields[3] == _LISTENING and int(own, 16) == port:
                    yield fields[9]


def preflight(terms: Terms, held: ExitStack) -> tuple[Terms, str]:
    """*terms* with ports in the place of 0, and Envoy's program. Raises `HeadgateError`.

    The gateway's ports are its own until *held* is closed.
    """
    program = envoy_program(terms.gateway)
    check_certificates(terms.gateway)
    settings = terms.gateway
    listen = hold_free(settings.listen, what="the gateway", held=held)
    admin = settings.envoy_admin
    if admin is not None:
        (admin,) = check_free((admin,), what="envoy_admin")
    gateway = replace(settings, listen=listen, envoy_admin=admin)
    return replace(terms, gateway=gateway, service=_service(terms.service)), program


def _service(terms: ServiceTerms) -> ServiceTerms:
    http = check_free(terms.http, what="http, the service")
    grpc = check_free(terms.grpc, what="grpc, the service")
    config = {**terms.config, "http": [*map(str, http)] or "off"}
    return replace(terms, http=http, grpc=grpc, config=config)


# Whether the upstreams can be reached: told once, at the start. They may come later.


_PATIENCE: Final = 2.0


async def unreachable(upstreams: Iterable[Upstream]) -> list[str]:
    """A sentence for each of *upstreams* that takes no connection now."""
    servers = {one.url: one for one in upstreams}
    found = await asyncio.gather(*map(_trouble, servers.values()))
    return [told for told in found if told is not None]


async def _trouble(upstream: Upstream) -> str | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            if upstream.path:
                _, writer = await asyncio.open_unix_connection(upstream.path)
            else:
                _, writer = await asyncio.open_connection(upstream.host, upstream.port)
    except TimeoutError:
        reason = f"no answer within {_PATIENCE:g} s"
    except OSError as error:
        reason = _reach_reason(error)
    else:
        writer.close()
        return None
    told = f"the upstream {upstream.url} cannot be reached: {reason}"
    return f"{told}; until it can, requests to it get 503"


def _reach_reason(error: OSError) -> str:
    """In few words, also when several addresses were tried."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused"
    return error.strerror or str(error)
