"""A blocking connection that is used by one thread at a time."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import hiredis

from headgate.stores.redis import errors
from headgate.stores.redis.transport import raw_socket

if TYPE_CHECKING:
    from redis.connection import AbstractConnection

    from headgate.stores.redis.request import Reply

_MORE: Final = object()  # what the parser says when a reply is not complete
_CHUNK: Final = 65_536
_NEARLY_ALL: Final = 0.99  # with so much time left a system call to be exact is not worth it
_LEAST: Final = 0.001  # what has arrived is read even when time is up
_FRESH_SECONDS: Final = 0.05  # a connection used so recently is not looked at before it is used


class Lane(ABC):
    """One connection: write a number of commands, read as many replies.

    Whoever gets an exception out of it, of `faults.DRIVER_ERRORS`, closes it.
    """

    where: str
    """The server's address, for messages."""

    used_at = 0.0
    """When it was last put aside."""

    generation = 0
    """Connections of an older generation than their pool's are not used again."""

    @abstractmethod
    def send(self, packed: bytes, deadline: float) -> None:
        """Write *packed*, which is any number of commands, until *deadline* (monotonic)."""

    @abstractmethod
    def receive(self, count: int, deadline: float) -> list[Reply]:
        """Read *count* replies until *deadline*."""

    @abstractmethod
    def is_quiet(self) -> bool:
        """Whether the server has neither closed the connection nor said something unasked."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. A connection of the process that forked this one is let alone."""

    @abstractmethod
    def interrupt(self) -> None:
        """Have the thread that waits on it stop waiting: the connection reads as closed."""

    def is_fit(self, now: float) -> bool:
        """Whether it may be used at *now*, as far as one can know without sending anything."""
        return now - self.used_at < _FRESH_SECONDS or self.is_quiet()


def _python_timeout(sock: socket.socket, seconds: float) -> None:
    """Have the interpreter watch the time: before each call it asks whether one may be made."""
    sock.settimeout(seconds)


def _kernel_timeout(sock: socket.socket, seconds: float) -> None:
    """Have the kernel watch the time, which saves two of four system calls."""
    whole, rest = divmod(max(round(seconds * 1_000_000), 1), 1_000_000)
    span = struct.pack("@ll", whole, rest)
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)


class RawLane(Lane):
    """On the socket itself: a system call to write, one to read."""

    def __init__(
        self, sock: socket.socket, where: str, timeout: float, owner: AbstractConnection
    ) -> None:
        self.where = where
        self._owner: Any = owner  # redis-py's connection knows how to close it after a fork
        self._sock = sock
        self._timeout = timeout
        self._enough = timeout * _NEARLY_ALL
        self._is_hurried = False
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._limit = _python_timeout if isinstance(sock, ssl.SSLSocket) else _kernel_timeout
        self._limit(sock, timeout)

    def send(self, packed: bytes, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left < self._enough:
            self._hurry(left)
        try:
            self._sock.sendall(packed)
        except BlockingIOError as error:
            raise TimeoutError from error

    def receive(self, count: int, deadline: float) -> list[Reply]:
        gets = self._reader.gets
        replies: list[Any] = []
        left = deadline - time.monotonic()
        if left < self._enough:  # sending, or another server, has taken some of it
            self._hurry(max(left, _LEAST))
        while True:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError as error:
                raise TimeoutError from error
            if not data:
                raise EOFError("the server closed it")
            self._reader.feed(data)
            while (reply := gets()) is not _MORE:
                replies.append(reply)
            if len(replies) >= count:
                break
            self._hurry(deadline - time.monotonic())
        if len(replies) > count:
            raise hiredis.ProtocolError("more replies than commands")
        if self._is_hurried:
            self._limit(self._sock, self._timeout)
            self._is_hurried = False
        return replies

    def _hurry(self, left: float) -> None:
        if left <= 0:
            raise TimeoutError
        self._is_hurried = True
        self._limit(self._sock, left)

    def is_quiet(self) -> bool:
        if not self._poll.poll(0):
            return True
        return isinstance(self._sock, ssl.SSLSocket) and self._is_quiet_inside(self._sock)

    def _is_quiet_inside(self, sock: ssl.SSLSocket) -> bool:
        # TLS has messages of its own, such as session tickets, which are no reply.
        sock.settimeout(0)
        try:
            sock.recv(1)
        except ssl.SSLWantReadError:
            sock.settimeout(self._timeout)
            return True
        except OSError:
            pass
        return False

    def interrupt(self) -> None:
        with suppress(OSError):
            # Not an SSLSocket's own shutdown, which takes its TLS away from the other thread.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self._owner.disconnect()


class PlainLane(Lane):
    """On redis-py's public methods alone."""

    def __init__(self, connection: AbstractConnection, where: str) -> None:
        self.where = where
        self._connection: Any = connection

    def send(self, packed: bytes, deadline: float) -> None:
        connection = self._connection
        if not connection.is_connected:  # it would reconnect by itself, and without a greeting
            raise EOFError("it is closed")
        connection.send_packed_command([packed], check_health=False)

    def receive(self, count: int, deadline: float) -> list[Reply]:
        replies: list[Any] = []
        for _ in range(count):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            replies.append(self._connection.read_response(timeout=left))
        return replies

    def is_quiet(self) -> bool:
        try:
            return self._connection.is_connected and not self._connection.can_read(0)
        except errors.DRIVER_ERRORS:
            return False

    def interrupt(self) -> None:
        self._connection.disconnect()

    def close(self) -> None:
        self._connection.disconnect()


def lane_on(connection: AbstractConnection, where: str, timeout: float, *, plain: bool) -> Lane:
    """A lane on a connection that has been greeted: the fast kind if it can be had."""
    sock = None if plain else raw_socket.socket_of(connection)
    if sock is None:
        return PlainLane(connection, where)
    return RawLane(sock, where, timeout, connection)
