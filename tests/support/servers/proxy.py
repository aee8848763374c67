"""A TCP proxy that loses, delays and refuses what it is told to."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tests.support.servers.ports import HOST, free_port, release_port
from tests.support.servers.urls import PATIENCE, with_options
from tests.support.servers.wire import commands

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 65_536


class SilentProxy:
    """A proxy on 127.0.0.1 before the server that listens on *port*.

    It passes everything on until it is told otherwise, and then behaves so on the connections that
    are open and on new ones, until `heal`. It counts connections and keeps what clients sent:

        with SilentProxy(server.port) as proxy:
            proxy.swallow_replies()
            ...  # the client times out
            assert len(proxy.commands("EVALSHA")) == 1

    Safe to use from several threads.
    """

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self._server_port = port
        self._lock = threading.Lock()
        self._heard: dict[int, bytearray] = {}
        self._pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._numbers = itertools.count()
        self._acceptors: list[threading.Thread] = []
        self._pumps: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._swallows_requests = self._swallows_replies = False
        self._delay = 0.0
        self._closing = threading.Event()

    def __enter__(self) -> Self:
        self.accept_connections()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """redis:// through the proxy, without credentials; with `PATIENCE`."""
        return with_options(f"redis://{HOST}:{self.port}/0", timeout=PATIENCE)

    @property
    def opened(self) -> int:
        """How many connections clients have opened, since the beginning or since `forget`."""
        with self._lock:
            return len(self._heard)

    @property
    def open_now(self) -> int:
        """How many connections there are at this moment."""
        with self._lock:
            return len(self._pairs)

    @property
    def requests(self) -> list[bytes]:
        """The bytes that clients have sent, by connection, in the order the connections opened."""
        with self._lock:
            return [bytes(heard) for heard in self._heard.values()]

    def commands(self, name: str | None = None) -> list[tuple[bytes, ...]]:
        """The commands that clients have sent, or those called *name*; connection by connection."""
        sent = [command for heard in self.requests for command in commands(heard)]
        wanted = None if name is None else name.upper().encode()
        return [one for one in sent if wanted is None or one[0].upper() == wanted]

    def forget(self) -> None:
        """Count and keep from zero; connections that are open count when they send again."""
        with self._lock:
            self._heard.clear()

    def swallow_replies(self) -> None:
        """Let the server see requests, and let nobody see its replies."""
        self._swallows_replies = True

    def swallow_requests(self) -> None:
        """Let the server see nothing. What is swallowed is kept in `requests` all the same."""
        self._swallows_requests = True

    def delay_replies(self, *, ms: float) -> None:
        """Hold back each reply for *ms* milliseconds."""
        self._delay = ms / 1_000

    def heal(self) -> None:
        """Swallow, delay and refuse nothing any more. What was swallowed is lost."""
        self._swallows_requests = self._swallows_replies = False
        self._delay = 0.0
        self.accept_connections()

    def refuse_connections(self) -> None:
        """Refuse new connections, as a port does where nobody listens; open ones stay."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            _shut(listener)

    def accept_connections(self) -> None:
        """Accept connections, at first and again after `refuse_connections`."""
        with self._lock:
            if self._listener is None:
                self._listener = socket.create_server((HOST, self.port), backlog=1_024)
                self._acceptors.append(_thread(self._accept, self._listener))

    def cut_connections(self) -> None:
        """Close every open connection, on both sides, in the middle of whatever happens."""
        with self._lock:
            pairs = list(self._pairs.values())
        for pair in pairs:
            _shut(*pair)

    def close(self) -> None:
        """Refuse, cut, and wait until all threads have ended."""
        self._closing.set()  # replies held back need not be waited for
        self.refuse_connections()
        for accepting in self._acceptors:
            accepting.join()  # from here on there are no new connections
        self.cut_connections()
        for pump in self._pumps:
            pump.join()
        release_port(self.port)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError), listener:  # closed by `refuse_connections`
            while True:
                client, _ = listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((HOST, self._server_port), timeout=5.0)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            number = next(self._numbers)
            self._heard[number] = bytearray()
            self._pairs[number] = (client, server)
            self._pumps.append(_thread(self._pump, number, client, server))

    def _pump(self, number: int, client: socket.socket, server: socket.socket) -> None:
        replies = _thread(self._reply, client, server)
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                self._request(number, data, server)
        _shut(client, server)
        replies.join()
        with self._lock:
            del self._pairs[number]
        client.close()
        server.close()

    def _request(self, number: int, data: bytes, server: socket.socket) -> None:
        with self._lock:
            self._heard.setdefault(number, bytearray()).extend(data)
        if not self._swallows_requests:
            server.sendall(data)

    def _reply(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                self._closing.wait(self._delay)
                if not self._swallows_replies:
                    client.sendall(data)
        _shut(client, server)


def _thread(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True, name="silent-proxy")
    thread.start()
    return thread


def _shut(*ends: socket.socket) -> None:
    """End the connections, and with that whatever a thread waits for on them."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
