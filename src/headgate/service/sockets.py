"""Listening sockets, bound before anything else is started."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.config.values import Address
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.config.service import Settings

BACKLOG: Final = 2_048


class ListenError(HeadgateError):
    """An address that cannot be bound: in use, forbidden, or not of this machine."""


@dataclass(frozen=True, slots=True)
class BoundSocket:
    """A socket that listens at *address*; *inode* is that of a unix socket's file."""

    address: Address
    sock: socket.socket
    inode: int | None = None

    @property
    def at(self) -> Address:
        """The address, with the port that the kernel chose for port 0."""
        if self.address.is_unix or self.address.port:
            return self.address
        return Address(self.address.host, self.sock.getsockname()[1])

    def close(self) -> None:
        """Close the socket here; other processes may keep it open."""
        self.sock.close()

    def remove(self) -> None:
        """Remove the file of a unix socket, unless it has been replaced."""
        if self.inode is not None:
            path = Path(self.address.path)
            with suppress(OSError):
                if path.stat().st_ino == self.inode:
                    path.unlink()


@dataclass(frozen=True, slots=True)
class BoundSockets:
    """All bound sockets of a service: *http* shared by all workers, *grpc* for each worker."""

    http: tuple[BoundSocket, ...]
    grpc: tuple[tuple[BoundSocket, ...], ...]

    @property
    def all(self) -> tuple[BoundSocket, ...]:
        """All sockets without duplicates."""
        found = [*self.http, *(one for own in self.grpc for one in own)]
        return tuple({id(one): one for one in found}.values())

    def close(self) -> None:
        for one in self.all:
            one.close()

    def remove(self) -> None:
        for one in self.all:
            one.remove()


def listen_as(settings: Settings) -> BoundSockets:
    """Listen at all addresses of *settings*. Raises `ListenError`; then nothing stays open."""
    opened: list[BoundSocket] = []

    def opening(address: Address, option: str) -> BoundSocket:
        opened.append(listen(address, mode=settings.socket_mode, option=option))
        return opened[-1]

    try:
        http = tuple(opening(address, "--http") for address in settings.http)
        if settings.grpc_ports == "shared":
            shared = tuple(opening(address, "--grpc") for address in settings.grpc)
            return BoundSockets(http, (shared,) * settings.workers)
        numbers = range(settings.workers)
        places = ([one.nth(number) for one in settings.grpc] for number in numbers)
        own = (tuple(opening(one, "--grpc") for one in many) for many in places)
        return BoundSockets(http, tuple(own))
    except ListenError:
        for one in opened:
            one.close()
            one.remove()
        raise


def listen(address: Address, *, mode: int, option: str = "") -> BoundSocket:
    """Listen at *address*, the value of *option*; *mode* are the permissions of a unix socket.

    Raises `ListenError`.
    """
    try:
        if address.is_unix:
            return _listen_unix(address, mode)
        return BoundSocket(address, _listen_tcp(address))
    except OSError as error:
        reason = listen_reason(error, address, option)
        raise ListenError(f"cannot listen at {address}: {reason}") from error


def _listen_tcp(address: Address) -> socket.socket:
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, where = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def _listen_unix(address: Address, mode: int) -> BoundSocket:
    path = Path(address.path)
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The permissions are set before listen(): until then no client can connect.
        sock.bind(address.path)
        path.chmod(mode)
        sock.listen(BACKLOG)
        sock.settimeout(0)
        return BoundSocket(address, sock, path.stat().st_ino)
    except OSError:
        sock.close()
        raise


def _clear(path: Path) -> None:
    """Remove a stale socket file, as a killed process leaves it."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EEXIST, "there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def listen_reason(error: OSError, address: Address, option: str = "") -> str:
    """The reason why *address*, the value of *option*, cannot be bound, and what to do."""
    what = "the socket" if address.is_unix else f"port {address.port}"
    instead = f"; choose another with {option}" if option else ""
    if error.errno == errno.EADDRINUSE:
        holder = None if address.is_unix else holder_of(address.port)
        by = f" by {holder}" if holder else ""
        return f"{what} is in use{by}{instead}"
    if error.errno == errno.EACCES and not address.is_unix:
        return f"permission denied: {what} needs CAP_NET_BIND_SERVICE{instead}"
    return error.strerror or str(error)


_LISTENING: Final = "0A"
"""The state of a listening socket in `/proc/net/tcp`."""

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def holder_of(port: int) -> str | None:
    """Name and id of the process that listens on *port*, if this user can see it."""
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with suppress(OSError):
            if any(str(one.readlink()) in inodes for one in process.joinpath("fd").iterdir()):
                name = process.joinpath("comm").read_text("utf-8", "replace").strip()
                return f"{name} (pid {process.name})"
    return None


def _listening(port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on *port*."""
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text("ascii", "replace").splitlines()[1:]:
                fields = line.split()
                own = fields[1].rpartition(":")[2]
                if fields[3] == _LISTENING and int(own, 16) == port:
                    yield fields[9]
