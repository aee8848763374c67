"""The proxy does what it is told, so that a fault suite built on it means something."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from tests.support.faults.proxy import FaultyProxy
from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = 60.0
"""Seconds after which something that has not come is taken never to come."""
A_WHILE = 0.2
"""Seconds in which something that is lost has not come."""


class Echo:
    """A server that sends back what it gets, and keeps it."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = bytearray()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self._ends: list[socket.socket] = []

    def _accept(self) -> None:
        with suppress(OSError), self._listener:
            while True:
                end, _ = self._listener.accept()
                self._ends.append(end)
                self._threads.append(threading.Thread(target=self._answer, args=(end,)))
                self._threads[-1].start()

    def _answer(self, end: socket.socket) -> None:
        with suppress(OSError), end:
            while data := end.recv(65_536):
                self.heard += data
                end.sendall(data)

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultyProxy]:
    with FaultyProxy(echo.port) as proxy:
        yield proxy


@contextmanager
def connected(proxy: FaultyProxy) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, proxy.port), timeout=SOON) as end:
        yield end


def answer(end: socket.socket, size: int) -> bytes:
    """*size* bytes, or what came before the end."""
    found = b""
    while len(found) < size and (data := end.recv(size - len(found))):
        found += data
    return found


def read_all(end: socket.socket) -> None:
    while end.recv(65_536):
        pass


def is_silent(end: socket.socket) -> bool:
    """Whether nothing comes for a while, not even the end."""
    end.settimeout(A_WHILE)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(SOON)
    return False


class TestPassing:
    def test_what_goes_in_comes_out_and_is_counted(self, proxy: FaultyProxy) -> None:
        with connected(proxy) as one, connected(proxy) as two:
            one.sendall(b"abc")
            assert answer(one, 3) == b"abc"
            two.sendall(b"de")
            assert answer(two, 2) == b"de"
            assert (proxy.opened, proxy.open_now) == (2, 2)
            assert proxy.requests == [b"abc", b"de"]
            assert (proxy.bytes_of("requests"), proxy.bytes_of("replies")) == (5, 5)
        wait_until(lambda: proxy.open_now == 0, "both connections have ended")
        proxy.forget()
        assert (proxy.opened, proxy.bytes_of("requests")) == (0, 0)

    def test_a_large_message_arrives_whole(self, proxy: FaultyProxy) -> None:
        message = bytes(range(256)) * 8_192
        with connected(proxy) as one:
            sending = threading.Thread(target=one.sendall, args=(message,))
            sending.start()
            assert answer(one, len(message)) == message
            sending.join()

    def test_commands_are_read_out_of_what_was_sent(self, proxy: FaultyProxy) -> None:
        with connected(proxy) as one:
            one.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n")
            answer(one, 1)
        assert proxy.commands() == [(b"GET", b"a"), (b"PING",)]
        assert proxy.commands("get") == [(b"GET", b"a")]

    def test_a_server_that_is_not_there_ends_the_connection(self) -> None:
        nobody = free_port()
        with FaultyProxy(nobody) as proxy, connected(proxy) as one:
            assert one.recv(1) == b""
        release_port(nobody)

    def test_a_proxy_ends_with_connections_open_and_held(self, echo: Echo) -> None:
        with FaultyProxy(echo.port) as proxy, connected(proxy) as one:
            one.sendall(b"abc")
            assert answer(one, 3) == b"abc"
            proxy.partition()
            one.sendall(b"def")
            with connected(proxy) as two:
                two.sendall(b"ghi")


class TestLosing:
    def test_swallowed_replies_are_those_to_requests_that_arrived(
        self, proxy: FaultyProxy, echo: Echo
    ) -> None:
        with connected(proxy) as one:
            proxy.swallow_replies()
            one.sendall(b"abc")
            wait_until(lambda: proxy.bytes_of("replies") == 3, "the reply has come to the proxy")
            proxy.heal()
            one.sendall(b"de")
            assert answer(one, 2) == b"de"
            assert echo.heard == b"abcde"

    def test_swallowed_requests_never_arrive(self, proxy: FaultyProxy, echo: Echo) -> None:
        with connected(proxy) as one:
            proxy.swallow_requests()
            one.sendall(b"abc")
            wait_until(lambda: proxy.requests == [b"abc"], "the request has come to the proxy")
            proxy.heal()
            one.sendall(b"de")
            assert answer(one, 2) == b"de"
            assert echo.heard == b"de"

    def test_a_partition_holds_open_and_new_connections_and_healed_lets_all_through(
        self, proxy: FaultyProxy, echo: Echo
    ) -> None:
        with connected(proxy) as one:
            one.sendall(b"a")
            assert answer(one, 1) == b"a"
            proxy.partition()
            with connected(proxy) as two:
                one.sendall(b"b")
                two.sendall(b"c")
                assert is_silent(one)
                assert is_silent(two)
                assert echo.heard == b"a"
                proxy.heal()
                assert answer(one, 1) == b"b"
                assert answer(two, 1) == b"c"


class TestEnding:
    def test_a_truncated_reply_ends_in_order(self, proxy: FaultyProxy) -> None:
        proxy.cut_replies(after=3)
        with connected(proxy) as one:
            one.sendall(b"abcdef")
            assert answer(one, 6) == b"abc"

    def test_a_truncated_reply_may_hang(self, proxy: FaultyProxy, echo: Echo) -> None:
        proxy.cut_replies(after=3, then="hang")
        with connected(proxy) as one:
            one.sendall(b"abcdef")
            assert answer(one, 3) == b"abc"
            assert is_silent(one)
            assert echo.heard == b"abcdef"

    def test_a_truncated_reply_may_end_in_a_reset(self, proxy: FaultyProxy) -> None:
        proxy.cut_replies(after=3, then="reset")
        with connected(proxy) as one:
            one.sendall(b"abcdef")
            with pytest.raises(ConnectionResetError):
                read_all(one)

    def test_a_truncated_request_arrives_in_part(self, proxy: FaultyProxy, echo: Echo) -> None:
        proxy.cut_requests(after=2)
        with connected(proxy) as one:
            one.sendall(b"abcdef")
            answer(one, 6)
            wait_until(lambda: bytes(echo.heard) == b"ab", "the beginning has arrived")

    def test_each_connection_and_each_order_is_counted_from_its_own_beginning(
        self, proxy: FaultyProxy
    ) -> None:
        with connected(proxy) as one, connected(proxy) as two:
            one.sendall(b"abcdef")
            assert answer(one, 6) == b"abcdef"
            proxy.cut_replies(after=4)
            one.sendall(b"ghijkl")
            assert answer(one, 6) == b"ghij"
            two.sendall(b"mnopqr")
            assert answer(two, 6) == b"mnop"

    def test_connections_are_cut_and_reset(self, proxy: FaultyProxy) -> None:
        with connected(proxy) as one:
            one.sendall(b"a")
            assert answer(one, 1) == b"a"
            proxy.cut_connections()
            assert one.recv(1) == b""
        with connected(proxy) as one:
            one.sendall(b"a")
            assert answer(one, 1) == b"a"
            proxy.reset_connections()
            with pytest.raises(ConnectionResetError):
                one.recv(1)

    def test_refused_connections_leave_open_ones_alone(self, proxy: FaultyProxy) -> None:
        with connected(proxy) as one:
            one.sendall(b"a")
            assert answer(one, 1) == b"a"
            proxy.refuse_connections()
            with pytest.raises(ConnectionRefusedError), connected(proxy):
                pass
            one.sendall(b"b")
            assert answer(one, 1) == b"b"
            proxy.heal()
            with connected(proxy) as two:
                two.sendall(b"c")
                assert answer(two, 1) == b"c"


class TestLateness:
    def test_what_is_delayed_comes_later_and_in_order(self, proxy: FaultyProxy) -> None:
        proxy.delay_requests(ms=5.0, jitter_ms=20.0)
        proxy.delay_replies(ms=5.0, jitter_ms=20.0)
        message = bytes(range(64))
        with connected(proxy) as one:
            for number in range(64):
                one.sendall(bytes([number]))
            assert answer(one, 64) == message

    def test_a_delay_longer_than_anyone_waits_is_silence(
        self, proxy: FaultyProxy, echo: Echo
    ) -> None:
        proxy.delay_replies(ms=60_000.0)
        with connected(proxy) as one:
            one.sendall(b"abc")
            wait_until(lambda: bytes(echo.heard) == b"abc", "the request has arrived")
            assert is_silent(one)

    def test_a_trickle_arrives_in_pieces(self, proxy: FaultyProxy) -> None:
        proxy.trickle("replies", piece=2, every_ms=20.0)
        with connected(proxy) as one:
            one.sendall(b"abcdef")
            assert len(one.recv(6)) < 6
