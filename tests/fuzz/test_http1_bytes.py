"""Any bytes to the HTTP server: whole responses come back, in order, or the connection ends."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.service.http_server import Bounds, Connection, HttpServer
from tests.support.byte_transport import ByteTransport
from tests.support.fuzzing import Changes, bounded, changed, changes, fuzz_count
from tests.support.http_app import POLICY, app_of

if TYPE_CHECKING:
    from collections.abc import Sequence

APP = app_of(POLICY.replace("3/minute", "100_000/minute"))
BOUNDS = Bounds(header=2_000, connections=100, receive=60.0, idle=60.0)
BODY = b'{"path": "/api/a", "ip": "203.0.113.7"}'
GET = b"GET /v1/authorize/api/a HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
GOOD = (
    GET
    + POST
    + b"content-length: %d\r\n\r\n" % len(BODY)
    + BODY
    + POST
    + b"transfer-encoding: chunked\r\n\r\n%x;a=b\r\n%b\r\n0\r\nx: y\r\n\r\n" % (len(BODY), BODY)
    + b"HEAD /healthz HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\r\n"
)
PIECES = st.binary(max_size=4) | st.sampled_from(
    (
        *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\0", b": ", b":", b" ", b"\t", b"\r\n x"),
        *(b"content-length: 5\r\n", b"content-length: -1\r\n", b"transfer-encoding: x\r\n"),
        *(b"content-length: " + b"9" * 30 + b"\r\n", b"connection: close\r\n", b"HTTP/1.0"),
        *(b"upgrade: h2c\r\nconnection: upgrade\r\n", b"expect: 100-continue\r\n", b"HTTP/2.0"),
        *(b"CONNECT", b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"http://x/", b"*", b"?", b"#"),
        *(b"ffffffffffffffff", b"0\r\n\r\n", b"a" * 2_100, b"x: y\r\n" * 300, GET, POST),
    )
)
_RESPONSE = re.compile(
    rb"HTTP/1\.1 (?:100 Continue\r\n\r\n|([2-5]\d\d) [^\r\n]*\r\n((?:[!-~]+: [^\r\n\0]*\r\n)+)\r\n)"
)


def responses(written: bytes) -> list[int]:
    """The statuses of the responses in *written*, which must have nothing else in it."""
    found, at = [], 0
    while at < len(written):
        head = _RESPONSE.match(written, at)
        assert head is not None, written[at : at + 200]
        at = head.end()
        if head[1] is None:
            continue
        found.append(int(head[1]))
        length = re.search(rb"content-length: (\d+)\r\n", head[2])
        rest = int(length[1]) if length and head[1] not in (b"204", b"304") else 0
        if not _RESPONSE.match(written, at) or rest == 0:  # that of HEAD has a length and no body
            assert at + rest <= len(written) or at == len(written)
            at = min(at + rest, len(written))
    return found


async def attack(sent: bytes, cuts: Sequence[int]) -> list[int]:
    """Send *sent*, cut into pieces; the statuses of what comes back."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    server = HttpServer(APP, bounds=BOUNDS)
    connection, transport = Connection(server), ByteTransport()
    connection.connection_made(transport)
    for start, end in pairwise(sorted({0, *(cut % len(sent) for cut in cuts), len(sent)})):
        if not transport.is_closed:
            connection.data_received(sent[start:end])
        for _ in range(4):
            await asyncio.sleep(0)
        assert connection._head <= BOUNDS.header + len(sent)
    while server.running:
        waiting = [one.task for one in server.running if one.is_complete or one.is_over]
        if not waiting:
            break
        await asyncio.gather(*waiting)
    statuses = responses(bytes(transport.written))
    assert 500 not in statuses
    connection.connection_lost(None)
    await asyncio.gather(*(one.task for one in list(server.running)))
    assert not server.connections
    assert not server.running
    assert not errors
    return statuses


def test_undamaged_requests_are_answered_in_order() -> None:
    assert asyncio.run(attack(GOOD, [])) == [200, 200, 200, 200]
    assert asyncio.run(attack(GOOD, range(len(GOOD)))) == [200, 200, 200, 200]


def attacked(sent: bytes, cuts: Sequence[int]) -> None:
    with bounded():
        asyncio.run(attack(sent, cuts))


cuts = st.lists(st.integers(0, 2**16), max_size=4)


@settings(max_examples=fuzz_count(400))
@given(changes(len(GOOD), PIECES), cuts)
def test_damaged_requests_have_whole_responses(several: Changes, at: list[int]) -> None:
    attacked(changed(GOOD, several) or b"\0", at)


@settings(max_examples=fuzz_count(200))
@given(st.lists(PIECES, min_size=1, max_size=12).map(b"".join), cuts)
@example(b"\0", [])
def test_noise_has_whole_responses(noise: bytes, at: list[int]) -> None:
    attacked(noise or b"\0", at)
