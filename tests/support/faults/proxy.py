"""A TCP proxy that does to connections what networks, firewalls and dying servers do to them."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from tests.support.faults.flow import PASSING, Conduct, Ending, Flow
from tests.support.servers.ports import HOST, free_port, release_port
from tests.support.servers.wire import commands

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Direction = Literal["requests", "replies"]
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER without lingering: closing sends a RST


class FaultyProxy:
    """A proxy on 127.0.0.1 before the server that listens on *port*.

    It passes everything on until it is told otherwise, and then behaves so on the connections that
    are open and on new ones, until `heal`. What it was told is in force when the call returns.

        with FaultyProxy(server.port) as proxy:
            proxy.swallow_replies()
            ...  # the client times out
            assert len(proxy.commands("EVALSHA")) == 1

    It runs in a thread of its own; any thread may tell it what to do. *seed* is that of the jitter.
    """

    def __init__(self, port: int, *, seed: int = 0) -> None:
        self.port = free_port()
        self._server_port = port
        self._chance = random.Random(seed)
        self._conduct: dict[Direction, Conduct] = {"requests": PASSING, "replies": PASSING}
        self._bytes: dict[Direction, int] = {"requests": 0, "replies": 0}
        self._heard: dict[int, bytearray] = {}
        self._open: dict[int, _Connection] = {}
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="faulty-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept_connections()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Host and port, as they stand in a URL."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """redis:// through the proxy, without credentials."""
        return f"redis://{self.address}/0"

    @property
    def opened(self) -> int:
        """How many connections clients have opened, since the beginning or since `forget`."""
        return self._do(lambda: len(self._heard))

    @property
    def open_now(self) -> int:
        """How many connections there are at this moment."""
        return self._do(lambda: len(self._open))

    @property
    def requests(self) -> list[bytes]:
        """The bytes that clients have sent, by connection, in the order the connections opened."""
        return self._do(lambda: [bytes(heard) for heard in self._heard.values()])

    def bytes_of(self, direction: Direction) -> int:
        """How many bytes came in to be passed on in *direction*, passed on or not."""
        return self._do(lambda: self._bytes[direction])

    def commands(self, name: str | None = None) -> list[tuple[bytes, ...]]:
        """The commands that clients have sent, or those called *name*; connection by connection."""
        sent = [command for heard in self.requests for command in commands(heard)]
        wanted = None if name is None else name.upper().encode()
        return [one for one in sent if wanted is None or one[0].upper() == wanted]

    def forget(self) -> None:
        """Count and keep from zero; connections that are open count when they send again."""

        def forget() -> None:
            self._heard.clear()
            self._bytes = dict.fromkeys(self._bytes, 0)

        self._do(forget)

    def swallow_replies(self) -> None:
        """Let the server see requests, and let nobody see its replies."""
        self._change("replies", is_lossy=True)

    def swallow_requests(self) -> None:
        """Let the server see nothing. What is swallowed is kept in `requests` all the same."""
        self._change("requests", is_lossy=True)

    def delay_requests(self, *, ms: float, jitter_ms: float = 0.0) -> None:
        """Let requests come *ms* later, and by chance up to *jitter_ms* more, in order."""
        self._change("requests", delay_ms=ms, jitter_ms=jitter_ms)

    def delay_replies(self, *, ms: float, jitter_ms: float = 0.0) -> None:
        """The same for replies."""
        self._change("replies", delay_ms=ms, jitter_ms=jitter_ms)

    def cut_requests(self, *, after: int, then: Ending = "close") -> None:
        """Let each connection pass *after* more bytes of requests; *then* it ends, or hangs."""
        self._change("requests", cut_after=after, then=then)

    def cut_replies(self, *, after: int, then: Ending = "close") -> None:
        """The same for replies: *after* bytes one is truncated."""
        self._change("replies", cut_after=after, then=then)

    def trickle(self, direction: Direction, *, piece: int = 1, every_ms: float = 1.0) -> None:
        """Pass on no more than *piece* bytes at once, the next ones *every_ms* later."""
        self._change(direction, piece=piece, every_ms=every_ms)

    def partition(self) -> None:
        """Let nothing through, on open connections and new ones, until `heal`.

        As in a network that is cut, nobody is told, and what was sent meanwhile arrives later.
        """
        self._do(self._flowing.clear)

    def refuse_connections(self) -> None:
        """Refuse new connections, as a port does where nobody listens; open ones stay."""

        def refuse() -> None:
            if self._listener is not None:
                self._loop.remove_reader(self._listener)
                self._listener.close()
                self._listener = None

        self._do(refuse)

    def accept_connections(self) -> None:
        """Accept connections, at first and again after `refuse_connections`."""

        def accept() -> None:
            if self._listener is None:
                self._listener = socket.create_server((HOST, self.port), backlog=1_024)
                self._listener.setblocking(False)
                self._loop.add_reader(self._listener, self._accept, self._listener)

        self._do(accept)

    def cut_connections(self) -> None:
        """Close every open connection, on both sides, in the middle of whatever happens."""
        self._do(lambda: self._end(by_reset=False))

    def reset_connections(self) -> None:
        """The same, but with a RST: what is under way to the client is lost."""
        self._do(lambda: self._end(by_reset=True))

    def heal(self) -> None:
        """Pass everything on again, and accept connections. What was swallowed is lost."""

        def heal() -> None:
            self._conduct = {"requests": PASSING, "replies": PASSING}
            self._flowing.set()

        self._do(heal)
        self.accept_connections()

    def close(self) -> None:
        """Refuse, cut, and wait until all has ended."""
        self.refuse_connections()
        self._await(self._end_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        release_port(self.port)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _await(self, work: Callable[[], Awaitable[T]]) -> T:
        async def working() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(working(), self._loop).result(30.0)

    def _do(self, work: Callable[[], T]) -> T:
        async def working() -> T:
            return work()

        return self._await(working)

    def _change(self, direction: Direction, **changes: object) -> None:
        def change() -> None:
            self._conduct[direction] = replace(self._conduct[direction], **changes)  # type: ignore[arg-type]  # named above

        self._do(change)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError):  # who wanted to connect has given up already
            client, _ = listener.accept()
            number = next(self._numbers)
            self._heard[number] = bytearray()
            self._open[number] = connection = _Connection(self, number, client)
            connection.task.add_done_callback(lambda _: self._open.pop(number))

    def _end(self, *, by_reset: bool) -> None:
        for connection in self._open.values():
            connection.end(by_reset)

    async def _end_all(self) -> None:
        await _settle()  # so that connections that are just being accepted are among the open ones
        connections = list(self._open.values())
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(one.task for one in connections), return_exceptions=True)
        await _settle()


class _Connection:
    """A client's connection to the proxy, and the proxy's to the server; its loop's thread only."""

    def __init__(self, proxy: FaultyProxy, number: int, client: socket.socket) -> None:
        self._proxy, self._number = proxy, number
        self._writers: list[asyncio.StreamWriter] = []
        self._over = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._serve(client))

    def end(self, by_reset: bool) -> None:
        """End both sides: in order, or the client's with a RST."""
        for writer in self._writers:
            if by_reset:
                end: socket.socket = writer.get_extra_info("socket")
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                writer.transport.abort()
            else:
                writer.close()
        self._over.set()

    def abort(self) -> None:
        """End at once, whoever still has to read something."""
        self.task.cancel()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, client: socket.socket) -> None:
        flows: list[asyncio.Task[None]] = []
        try:
            reader, writer = await asyncio.open_connection(sock=client)
            self._writers.append(writer)
            await self._proxy._flowing.wait()  # a new connection gets nowhere either
            if not self._over.is_set():
                flows = await self._connect(reader, writer)
            await self._over.wait()
        finally:
            for flow in flows:
                flow.cancel()
            self.end(by_reset=False)
            for writer in self._writers:
                with suppress(OSError, TimeoutError):  # who does not read is not waited for
                    await asyncio.wait_for(writer.wait_closed(), 1.0)
                writer.transport.abort()

    async def _connect(
        self, asking: asyncio.StreamReader, asker: asyncio.StreamWriter
    ) -> list[asyncio.Task[None]]:
        try:
            reader, writer = await asyncio.open_connection(HOST, self._proxy._server_port)
        except OSError:
            self._over.set()
            return []
        self._writers.append(writer)
        requests = self._flow("requests", asking, writer)
        replies = self._flow("replies", reader, asker)
        loop = asyncio.get_running_loop()
        ways = (requests.read(), requests.write(), replies.read(), replies.write())
        return [loop.create_task(way) for way in ways]

    def _flow(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Flow:
        proxy = self._proxy

        def seen(data: bytes) -> None:
            proxy._bytes[direction] += len(data)
            if direction == "requests":
                proxy._heard.setdefault(self._number, bytearray()).extend(data)

        return Flow(
            reader,
            writer,
            conduct=lambda: proxy._conduct[direction],
            flowing=proxy._flowing,
            chance=proxy._chance,
            seen=seen,
            end=self.end,
        )


async def _settle() -> None:
    """Let the loop do what it has begun: a step of it takes a few rounds."""
    for _ in range(5):
        await asyncio.sleep(0)
