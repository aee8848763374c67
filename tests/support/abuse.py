"""The service under attack: what it uses, and a client that must not notice."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.service import rls
from tests.support import http2_frames as h2
from tests.support.http2_frames import DATA, END_STREAM, HEADERS, Frame, asking, frame, message
from tests.support.rls_client import desc, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.decision_service import Service

MEGABYTE = 1 << 20
HTTP_CALL = b"GET /v1/authorize/a HTTP/1.1\r\nhost: localhost\r\n\r\n"
GRPC_CALL = message(request("headgate", desc("path=/a", "remote_address=192.0.2.1")))
_PATIENCE_S = 60.0
"""Time that an answer may take, on however busy a machine."""


def connected(port: int, receive_buffer: int | None = None) -> socket.socket:
    """A connection to *port*; one with a small *receive_buffer* takes in next to nothing."""
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(_PATIENCE_S)
    sock.connect(("127.0.0.1", port))
    return sock


def send_all(sock: socket.socket, data: bytes) -> bool:
    """Send *data*; False if the server has closed the connection."""
    with suppress(OSError):
        sock.sendall(data)
        return True
    return False


def send_what_fits(sock: socket.socket, data: bytes) -> int:
    """Send as much of *data* as the server takes in while nothing is read from it."""
    sock.settimeout(0.2)
    sent = 0
    with suppress(OSError):
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65_536])
    sock.settimeout(_PATIENCE_S)
    return sent


def received_until_closed(sock: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while data := sock.recv(65_536):
            found += data
    return found


def status_of(sock: socket.socket) -> int | None:
    """The status of the response that comes; None if the server closes the connection."""
    head = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in head and (data := sock.recv(65_536)):
            head += data
    return int(head[9:12]) if head else None


def http_status(port: int) -> int | None:
    """The status of one check, on a new connection."""
    with connected(port) as sock:
        sock.sendall(HTTP_CALL)
        return status_of(sock)


def grpc_call(stream: int) -> bytes:
    """A whole call of the rate limit service."""
    opened = h2.opening(stream, asking(rls.PATH.encode()))
    return opened + frame(DATA, END_STREAM, stream, GRPC_CALL)


def frames_from(sock: socket.socket) -> Iterator[Frame]:
    """The frames that come from the server, until it closes the connection."""
    rest = b""
    while True:
        while len(rest) >= 9 and len(rest) >= 9 + (size := int.from_bytes(rest[:3], "big")):
            yield Frame(rest[3], rest[4], int.from_bytes(rest[5:9], "big"), rest[9 : 9 + size])
            rest = rest[9 + size :]
        try:
            data = sock.recv(65_536)
        except ConnectionError:
            return
        if not data:
            return
        rest += data


def grpc_status(port: int) -> bytes:
    """The status of one call, on a new connection."""
    with connected(port) as sock:
        sock.sendall(h2.PREFACE + h2.settings() + grpc_call(1))
        for got in frames_from(sock):
            if got.kind == HEADERS and got.flags & END_STREAM:
                return got.fields[b"grpc-status"]
    raise AssertionError("the connection was closed before the answer")


class Victim:
    """A service, the memory it uses, and a client that calls it all the while."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.http, self.grpc = service.port, service.grpc_port
        self.answers = 0
        self._failures: list[BaseException] = []
        self._is_over = threading.Event()

    @property
    def memory(self) -> int:
        """The bytes of memory that the service uses now."""
        return self._bytes("VmRSS")

    @property
    def peak(self) -> int:
        """The most that it has used since `forget_peak`."""
        return self._bytes("VmHWM")

    def forget_peak(self) -> None:
        for pid in self._processes():
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def await_answers(self, count: int) -> None:
        """Wait until the client has had so many more answers."""
        goal = self.answers + count
        while self.answers < goal and not self._failures:
            time.sleep(0.01)

    def _bytes(self, name: str) -> int:
        total = 0
        for pid in self._processes():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(f"{name}:"):
                    total += int(line.split()[1]) * 1024
        return total

    def _processes(self) -> list[int]:
        return [self.service.process.pid, *self.service.workers()]

    def _call(self) -> None:
        try:
            while not self._is_over.is_set():
                assert http_status(self.http) == 200
                assert grpc_status(self.grpc) == b"0"
                self.answers += 1
                self._is_over.wait(0.02)
        except BaseException as error:  # noqa: BLE001 - raised where the attack ends
            self._failures.append(error)

    @contextmanager
    def unharmed(self, megabytes: int) -> Iterator[None]:
        """While the body attacks, the client is answered, and the service uses no more than
        *megabytes* above what it used before."""
        before = self.memory
        self.forget_peak()
        caller = threading.Thread(target=self._call)
        self._is_over.clear()
        caller.start()
        try:
            self.await_answers(2)
            yield
            self.await_answers(3)
        finally:
            self._is_over.set()
            caller.join()
        for failure in self._failures:
            raise failure
        grown = (self.peak - before) / MEGABYTE
        assert grown < megabytes, f"the service has used {grown:.0f} MB more"
        assert "Traceback" not in self.service.log, self.service.log
