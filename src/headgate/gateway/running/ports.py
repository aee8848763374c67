"""Whether an address is free, before anything is started; and if not, who has it.

Envoy would not tell: two of them may listen at one port, and share its connections. So the ports of
a gateway are held, by a socket that is bound and does not listen, for as long as it runs.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.gateway.running.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.settings import Address

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
