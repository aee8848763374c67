"""`headgate serve` under attack: its clients are answered all the while, in bounded memory.

Every attack goes to the process that users run, with its default settings, and beside each a client
calls both ports on new connections. The bounds are megabytes of memory above what the service used
before. What one connection may do is tried one by one in `tests/integration/test_grpc_abuse.py`,
`test_grpc_bounds.py` and `tests/unit/service/test_http_server.py`.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from headgate.service import rls
from tests.support.abuse import (
    HTTP_CALL,
    Victim,
    connected,
    grpc_call,
    received_until_closed,
    send_all,
    send_what_fits,
    status_of,
)
from tests.support.decision_service import serving
from tests.support.http2_frames import (
    CONTINUATION,
    DATA,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    WINDOW_UPDATE,
    asking,
    block,
    frame,
    message,
    opening,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES = "version: 1\nrules: [{id: all, key_by: global, limit: 1000000/s}]\n"
FLOODED = 40
"""The connections of a flood, one after the other."""
HELD = 100
"""The connections that an attacker holds open at the same time."""


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with serving(tmp_path_factory.mktemp("service"), rules=RULES, grpc=1) as service:
        victim = Victim(service)
        with victim.unharmed(100):  # what a first call loads and allocates
            victim.await_answers(20)
        yield victim


CANCEL = b"\0\0\0\x08"
ODD = range(1, 20_001, 2)
PATH = asking(rls.PATH.encode())
FLOODS = {
    "rapid reset": b"".join(opening(n, PATH) + frame(RST_STREAM, 0, n, CANCEL) for n in ODD),
    "rapid reset of answered calls": b"".join(
        grpc_call(n) + frame(RST_STREAM, 0, n, CANCEL) for n in ODD
    ),
    "resets that the server sends": b"".join(
        opening(n, PATH) + frame(WINDOW_UPDATE, 0, n, bytes(4)) for n in ODD
    ),
    "calls without an end": b"".join(opening(n, PATH) for n in ODD),
    "continuations": frame(HEADERS, 0, 1, block(PATH))
    + frame(CONTINUATION, 0, 1, block([(b"x", b"y" * 4_000)])) * 1_000,
    "empty continuations": frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1) * 200_000,
    "large headers": opening(1, [*PATH, *((b"x-%d" % n, b"y" * 4_000) for n in range(3))]) * 200,
    "pings": frame(PING, payload=b"12345678") * 100_000,
    "settings": settings(x4=1) * 100_000,
    "settings of many values": settings(**{f"x{n}": 100_000 for n in range(7, 2_000)}) * 100,
    "priorities": frame(PRIORITY, 0, 1, b"\0\0\0\0\1") * 100_000,
    "unknown frames": frame(0x42, 0, 1, b"x") * 100_000,
    "empty data": opening(1, PATH) + frame(DATA, 0, 1) * 200_000,
    "crumbs of data": opening(1, PATH) + frame(DATA, 0, 1, b"\0") * 100_000,
    "crumbs of window": opening(1, PATH) + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x01") * 100_000,
    "a frame without an end": b"\xff\xff\xff\0\0\0\0\0\x01" + bytes(8 << 20),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames(victim: Victim, name: str) -> None:
    with victim.unharmed(20):
        for _ in range(FLOODED):
            with connected(victim.grpc) as sock:
                send_all(sock, PREFACE + settings() + FLOODS[name])
                received_until_closed(sock)


def test_windows_of_zero(victim: Victim) -> None:
    """The answers have to be kept until the peer takes them, or is cut off."""
    with victim.unharmed(40), ExitStack() as held:
        for _ in range(HELD):
            sock = held.enter_context(connected(victim.grpc))
            calls = b"".join(grpc_call(n) for n in range(1, 200, 2))
            send_all(sock, PREFACE + settings(x4=0) + calls)


def test_peers_that_read_nothing(victim: Victim) -> None:
    with victim.unharmed(200), ExitStack() as held:
        for _ in range(HELD):
            sock = held.enter_context(connected(victim.grpc, receive_buffer=4096))
            calls = b"".join(grpc_call(n) for n in range(1, 6_000, 2))
            send_what_fits(sock, PREFACE + settings() + calls)


def test_clients_that_send_byte_by_byte(victim: Victim) -> None:
    head = b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * 20
    with victim.unharmed(40), ExitStack() as held:
        socks = [held.enter_context(connected(victim.http)) for _ in range(1_000)]
        for at in range(60):
            for sock in socks:
                send_all(sock, head[at : at + 1])


HEADER = b"GET / HTTP/1.1\r\nhost: localhost\r\na: " + b"y" * 32_000
BODY = (
    b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 65536\r\n\r\n" + b"x" * 65_000
)


@pytest.mark.parametrize(("sent", "megabytes"), [(HEADER, 80), (BODY, 160)], ids=["head", "body"])
def test_requests_without_an_end(victim: Victim, sent: bytes, megabytes: int) -> None:
    with victim.unharmed(megabytes), ExitStack() as held:
        for _ in range(1_000):
            send_all(held.enter_context(connected(victim.http)), sent)


PAGE = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("whole", "status"), [(PAGE, 200), (BODY + b"x" * 536, 400)], ids=["page", "body"]
)
def test_the_attacks_are_not_refused_before_they_cost_anything(
    victim: Victim, whole: bytes, status: int
) -> None:
    with connected(victim.http) as sock:
        send_all(sock, whole)
        assert status_of(sock) == status


def test_clients_that_read_nothing(victim: Victim) -> None:
    """They ask for the longest page there is, again and again."""
    with victim.unharmed(120), ExitStack() as held:
        for _ in range(HELD):
            sock = held.enter_context(connected(victim.http, receive_buffer=4096))
            send_what_fits(sock, PAGE * 20_000)


def test_pipelines(victim: Victim) -> None:
    """Ten thousand requests at once on each connection; all are answered, one after the other."""
    with victim.unharmed(40):
        for _ in range(4):
            with connected(victim.http) as sock:
                sending = threading.Thread(target=send_all, args=(sock, HTTP_CALL * 10_000))
                sending.start()
                count, rest = 0, b""
                while count < 10_000:
                    rest += sock.recv(65_536)
                    count += rest.count(b"HTTP/1.1 200 ")
                    rest = rest[-12:] if rest.count(b"HTTP/1.1 200 ") else rest
                sending.join()


CHUNKED = (
    b"POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
STREAMS_OF_BYTES = {
    "a header without an end": (b"GET / HTTP/1.1\r\nhost: localhost\r\na: ", b"y"),
    "headers without an end": (b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"a: b\r\n"),
    "a path without an end": (b"GET /", b"x"),
    "a body without an end": (BODY[:-65_000].replace(b"65536", b"9" * 15), b"x"),
    "chunks without an end": (CHUNKED, b"1\r\nx\r\n"),
    "a chunk extension without an end": (CHUNKED + b"1", b";a=b"),
    "trailers without an end": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "no HTTP at all": (b"", b"\x16\x03\x01"),
}


@pytest.mark.parametrize("name", STREAMS_OF_BYTES)
def test_an_endless_request_is_refused(victim: Victim, name: str) -> None:
    first, piece = STREAMS_OF_BYTES[name]
    with victim.unharmed(20):
        for _ in range(FLOODED):
            with connected(victim.http) as sock:
                send_all(sock, first + piece * ((2 << 20) // len(piece)))
                assert status_of(sock) in (400, 413, 414, 431, None)


@pytest.mark.parametrize("port", ["http", "grpc"])
def test_ten_thousand_idle_connections_lock_nobody_out(victim: Victim, port: str) -> None:
    """As many as a worker takes, and more: those that wait longest give way."""
    with victim.unharmed(250 if port == "grpc" else 120), ExitStack() as held:
        for _ in range(10_500):
            held.enter_context(connected(getattr(victim, port)))


def test_messages_without_an_end_on_many_connections(victim: Victim) -> None:
    """Each holds as much as one connection may, all together more than all may."""
    pieces = message(bytes(1_000_000))[:-1]
    frames = [frame(DATA, 0, 0, pieces[at : at + 16_000])[9:] for at in range(0, 1_000_000, 16_000)]
    with victim.unharmed(400), ExitStack() as held:
        for _ in range(40):
            sock = held.enter_context(connected(victim.grpc))
            send_all(sock, PREFACE + settings())
            for stream in range(1, 31, 2):
                data = b"".join(frame(DATA, 0, stream, one) for one in frames)
                send_what_fits(sock, opening(stream, PATH) + data)
