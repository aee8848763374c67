"""The HTTP server's bounds, against real sockets of this process."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from typing import Any
from weakref import ref

import pytest

from headgate.config import Address
from headgate.service.http_server import Bounds, Connection, HttpServer
from headgate.service.sockets import listen
from tests.support.http_server import GENEROUS, GET, App, House, tried
from tests.support.servers import until


def test_an_answer_has_a_date_and_does_not_say_what_serves() -> None:
    async def trial(house: House) -> None:
        line = await house.line()
        line.say(GET)
        told = await line.answer()
        assert told.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\ndate: " in told
        assert b"server:" not in told.lower()

    tried(trial)


class TestHead:
    @pytest.mark.parametrize("piece", [1, 100, 100_000])
    def test_one_that_is_too_large_is_431_however_it_comes(self, piece: int) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            request = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"y" * 2_100 + b"\r\n\r\n"
            for start in range(0, len(request), piece):
                line.say(request[start : start + piece])
                await asyncio.sleep(0)
            assert (await line.rest()).startswith(b"HTTP/1.1 431 ")
            assert not house.app.asked.is_set()

        tried(trial)

    def test_one_that_does_not_end_is_431_without_waiting_for_more(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(b"GET / HTTP/1.1\r\na: " + b"y" * 3_000)
            assert (await line.rest()).startswith(b"HTTP/1.1 431 ")

        tried(trial)

    def test_many_small_headers_and_a_long_path_count_too(self) -> None:
        async def trial(house: House) -> None:
            for head in (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 400, b"GET /" + b"x" * 2_100):
                line = await house.line()
                line.say(
                    head + b" HTTP/1.1\r\n\r\n" if head.startswith(b"GET /x") else head + b"\r\n"
                )
                assert (await line.rest()).startswith(b"HTTP/1.1 431 ")

        tried(trial)

    def test_a_large_body_is_not_taken_for_a_large_head(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            body = b"x" * 10_000
            line.say(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000\r\n\r\n" + body + GET)
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")

        tried(trial)

    def test_one_behind_another_request_is_measured_as_well(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET + b"GET / HTTP/1.1\r\na: " + b"y" * 2_100 + b"\r\n\r\n")
            assert b" 431 " in await line.rest()

        tried(trial)

    def test_what_is_no_http_is_400(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(b"\x16\x03\x01nonsense\r\n\r\n")
            assert (await line.rest()).startswith(b"HTTP/1.1 400 ")

        tried(trial)


class Leaving:
    """A transport that is closing, and has something that nobody takes."""

    is_aborted = False

    def get_extra_info(self, _: str) -> None:
        return None

    def is_closing(self) -> bool:
        return True

    def abort(self) -> None:
        self.is_aborted = True


class TestPatience:
    """The times are tried with a clock that is set ahead: by sweeping for a later moment."""

    LATER = 61.0

    async def sweep(self, house: House) -> None:
        later = asyncio.get_running_loop().time() + self.LATER
        for one in house.server.connections:
            one.sweep(later)

    def test_a_head_that_does_not_arrive_is_408(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(b"GET / HTTP/1.1\r\nhost: x\r\n")
            await until(lambda: any(one._head for one in house.server.connections))
            await self.sweep(house)
            assert (await line.rest()).startswith(b"HTTP/1.1 408 ")

        tried(trial)

    def test_a_connection_that_never_says_anything_is_closed_without_a_word(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            await until(lambda: bool(house.server.connections))
            await self.sweep(house)
            assert await line.rest() == b""

        tried(trial)

    def test_blank_lines_are_not_a_way_to_stay(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET)
            await line.answer()
            line.say(b"\r\n")
            await until(lambda: any(one._head for one in house.server.connections))
            await self.sweep(house)
            assert (await line.rest()).startswith(b"HTTP/1.1 408 ")

        tried(trial)

    def test_a_body_that_does_not_arrive_is_408(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
            await house.app.asked.wait()
            await self.sweep(house)
            assert (await line.rest()).startswith(b"HTTP/1.1 408 ")

        tried(trial)

    def test_a_connection_that_cannot_be_closed_for_what_is_unread_is_dropped(self) -> None:
        async def trial(house: House) -> None:
            transport: Any = Leaving()
            connection = Connection(house.server)
            connection.connection_made(transport)
            connection.sweep(1000.0)
            assert not transport.is_aborted
            connection.sweep(1000.0 + self.LATER)
            assert transport.is_aborted
            house.server.connections.pop(connection)

        tried(trial)

    def test_a_connection_without_a_further_request_is_closed(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET)
            await line.answer()
            await self.sweep(house)
            assert await line.rest() == b""

        tried(trial)

    def test_an_answer_that_takes_long_is_not_the_callers_fault(self) -> None:
        async def trial(house: House) -> None:
            house.app.gate.clear()
            line = await house.line()
            line.say(GET)
            await house.app.asked.wait()
            await self.sweep(house)
            house.app.gate.set()
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")

        tried(trial)


THREE = Bounds(header=2_000, connections=3, receive=60.0, idle=60.0)


def test_one_connection_too_many_is_told_while_the_others_are_answered() -> None:
    async def trial(house: House) -> None:
        house.app.gate.clear()
        lines = [await house.line() for _ in range(3)]
        for line in lines:
            line.say(GET)
        await until(lambda: len(house.server.running) == 3)
        extra = await house.line()
        assert (await extra.rest()).startswith(b"HTTP/1.1 503 ")
        house.app.gate.set()
        for line in lines:
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")

    tried(trial, THREE)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        GET,
        b"GET / HTTP/1.1\r\nhost: x\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc",
    ],
)
def test_at_the_limit_the_connection_that_waits_longest_gives_way(said: bytes) -> None:
    async def trial(house: House) -> None:
        first = await house.line()
        first.say(said)
        if said == GET:
            await first.answer()
        elif said:
            await until(lambda: any(one._head or one._arriving for one in house.server.connections))
        others = [await house.line() for _ in range(2)]
        await until(lambda: len(house.server.connections) == 3)
        late = await house.line()
        for line in (late, *others):
            line.say(GET)
            assert (await line.answer()).startswith(b"HTTP/1.1 200 ")
        assert await first.rest() == b""

    tried(trial, THREE)


def test_as_many_may_wait_to_be_accepted_as_the_socket_says() -> None:
    async def main() -> tuple[int, int]:
        listener = listen(Address("127.0.0.1", 0), mode=0o660)
        before = _waiting_room(listener.sock)
        server = HttpServer(App(), bounds=GENEROUS)
        await server.start([listener.sock])
        after = _waiting_room(server._sockets[0])
        await server.drain(linger=0.0, grace=0.0)
        return before, after

    before, after = asyncio.run(main())
    assert before == after


def _waiting_room(sock: socket.socket) -> int:
    """The backlog of a socket that listens, which Linux tells as `tcpi_sacked`."""
    told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    return int.from_bytes(told[28:32], sys.byteorder)


class TestDraining:
    def test_what_is_under_way_is_answered_and_the_last_of_its_connection(self) -> None:
        async def trial(house: House) -> None:
            house.app.gate.clear()
            line = await house.line()
            line.say(GET)
            await house.app.asked.wait()
            draining = asyncio.create_task(house.server.drain(linger=0.0, grace=30.0))
            await asyncio.sleep(0)
            house.app.gate.set()
            told = await line.rest()
            assert told.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in told
            assert await draining

        tried(trial)

    def test_who_comes_while_it_lingers_is_served(self) -> None:
        async def trial(house: House) -> None:
            idle = await house.line()
            idle.say(GET)
            await idle.answer()
            draining = asyncio.create_task(house.server.drain(linger=0.2, grace=30.0))
            await asyncio.sleep(0)
            late = await house.line()
            for line in (idle, late):
                line.say(GET)
                assert b"connection: close" in await line.rest()
            assert await draining
            with pytest.raises(ConnectionRefusedError):
                await house.line()

        tried(trial)

    def test_connections_that_the_kernel_has_queued_are_served(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queued: list[socket.socket] = []
        close = asyncio.Server.close

        async def trial(house: House) -> None:
            def close_with_connections_queued(server: asyncio.Server) -> None:
                # The event loop does not run meanwhile, so none of them is accepted.
                monkeypatch.undo()
                for _ in range(5):
                    one = socket.create_connection(house.address)
                    one.settimeout(30)
                    one.sendall(GET)
                    queued.append(one)
                close(server)

            monkeypatch.setattr(asyncio.Server, "close", close_with_connections_queued)
            draining = asyncio.create_task(house.server.drain(linger=0.0, grace=30.0))
            await until(lambda: len(queued) == 5)
            for one in queued:
                with one:
                    reply = await asyncio.to_thread(one.recv, 1_000)
                assert reply.startswith(b"HTTP/1.1 200 ")
            assert await draining

        tried(trial)

    def test_a_request_that_is_arriving_is_served(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET[:-2])
            await until(lambda: any(one._head for one in house.server.connections))
            draining = asyncio.create_task(house.server.drain(linger=0.0, grace=30.0))
            await asyncio.sleep(0)
            line.say(GET[-2:])
            assert b"connection: close" in await line.rest()
            assert await draining

        tried(trial)

    def test_idle_connections_are_closed(self) -> None:
        async def trial(house: House) -> None:
            line = await house.line()
            line.say(GET)
            await line.answer()
            assert await house.server.drain(linger=0.0, grace=30.0)
            assert await line.rest() == b""

        tried(trial)

    def test_what_does_not_end_is_cut_off(self) -> None:
        async def trial(house: House) -> None:
            house.app.gate.clear()
            line = await house.line()
            line.say(GET)
            await house.app.asked.wait()
            assert not await house.server.drain(linger=0.0, grace=0.05)

        tried(trial)


@pytest.mark.parametrize("said", [b"", GET, b"GET / HTTP/1.1\r\n", b"POST / HTTP/1"])
def test_a_connection_that_has_ended_is_freed_without_a_collection(said: bytes) -> None:
    async def trial(house: House) -> None:
        line = await house.line()
        line.say(said)
        if said == GET:
            await line.answer()
        await until(lambda: len(house.server.connections) == 1)
        ended = [ref(one) for one in house.server.connections]
        line.hang_up()
        await until(lambda: ended[0]() is None)

    gc.disable()
    try:
        tried(trial)
    finally:
        gc.enable()
