"""What flows through the gateway: websockets, events as they come, uploads as they go, gRPC."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from tests.support.envoy_edge import HOST, NO_SERVICE, Gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_EMPTY = "version: 1\nrules: []\n"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def test_websockets_pass_in_both_directions(tmp_path: Path) -> None:
    async def echo(connection: Any) -> None:
        async for message in connection:
            await connection.send(message)

    async def talk() -> list[object]:
        async with serve(echo, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            with Gateway(
                tmp_path,
                _EMPTY,
                NO_SERVICE,
                upstream=[f"http://{HOST}:{port}"],
                client_header_timeout=0.2,
            ) as gateway:
                async with connect(f"ws://{HOST}:{gateway.port}/chat") as client:
                    answers: list[object] = []
                    for message in ("hello", b"\x00" * 100_000, "bye"):
                        await client.send(message)
                        answers.append(await asyncio.wait_for(client.recv(), 60))
                    return answers

    assert asyncio.run(talk()) == ["hello", b"\x00" * 100_000, "bye"]


@contextmanager
def _answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """An upstream of one connection, that *answer* talks to."""
    with socket.create_server((HOST, 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                answer(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://{HOST}:{listener.getsockname()[1]}"
        thread.join()


def test_events_arrive_one_by_one_while_the_response_goes_on(tmp_path: Path) -> None:
    """Each is sent only when the one before it was seen by the client."""
    was_seen = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(_HEAD)
        for number in range(3):
            connection.sendall(b"9\r\ndata: " + str(number).encode() + b"\n\n\r\n")
            assert was_seen.wait(60)
            was_seen.clear()
        connection.sendall(b"0\r\n\r\n")

    with (
        _answering(answer) as upstream,
        Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream]) as gateway,
        httpx.stream("GET", gateway.url) as reply,
    ):
        events = []
        for piece in reply.iter_text():
            events.append(piece)
            was_seen.set()
    assert events == ["data: 0\n\n", "data: 1\n\n", "data: 2\n\n"]


def test_an_upload_reaches_the_upstream_while_it_is_sent(tmp_path: Path) -> None:
    has_begun = threading.Event()

    def answer(connection: socket.socket) -> None:
        received = b""
        while b"first" not in received:
            received += connection.recv(65536)
        has_begun.set()
        while b"second" not in received:
            received += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    def body() -> Iterator[bytes]:
        yield b"first"
        assert has_begun.wait(60)
        yield b"second"

    with (
        _answering(answer) as upstream,
        Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream]) as gateway,
    ):
        assert httpx.post(gateway.url, content=body()).status_code == 200


@pytest.mark.parametrize(("timeout", "status"), [(0.2, 504), (0.0, 200)])
def test_a_response_takes_as_long_as_it_is_allowed_to(
    tmp_path: Path, timeout: float, status: int
) -> None:
    is_over = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        is_over.wait(60 if timeout else 0.6)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    with (
        _answering(answer) as upstream,
        Gateway(
            tmp_path, _EMPTY, NO_SERVICE, upstream=[upstream], upstream_timeout=timeout
        ) as gateway,
    ):
        reply = httpx.get(gateway.url, timeout=60)
        is_over.set()
    assert reply.status_code == status
    if status == 504:
        assert reply.json()["error"] == "upstream_timeout"


def test_an_upstream_of_grpc_is_spoken_to_in_http_2(tmp_path: Path) -> None:
    def echoes(request: bytes, _context: object) -> Iterator[bytes]:
        yield from (request, request)

    handler: Any = grpc.unary_stream_rpc_method_handler(echoes)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"C": handler}),))
    port = server.add_insecure_port(f"{HOST}:0")
    server.start()
    try:
        with (
            Gateway(tmp_path, _EMPTY, NO_SERVICE, upstream=[f"grpc://{HOST}:{port}"]) as gateway,
            grpc.insecure_channel(f"{HOST}:{gateway.port}") as channel,
        ):
            call: Any = channel.unary_stream("/a.B/C")
            assert list(call(b"hello", timeout=60)) == [b"hello"] * 2
    finally:
        server.stop(None).wait()
