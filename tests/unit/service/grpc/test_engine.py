"""What the server takes for granted of zttp: if a release changes it, this fails first."""

from __future__ import annotations

import pytest
import zttp

from headgate.service.grpc.peer_budget import (
    RECONNECT_AFTER_CALLS,
    RECONNECT_AFTER_RESETS,
)
from tests.support.http2_frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    RST_STREAM,
    WINDOW_UPDATE,
    call,
    frame,
    opening,
    settings,
)

MOST_CALLS = 4096
MOST_RESETS = 256
MOST_AT_ONCE = 128


def engine(first: bytes = PREFACE + settings()) -> zttp.H2Connection:
    made = zttp.Connection(zttp.SERVER, zttp.HTTP2)
    made.initiate_connection()
    made.receive_data(first)
    events(made)
    made.data_to_send()
    return made


def events(made: zttp.H2Connection) -> list[zttp.Event]:
    found: list[zttp.Event] = []
    while (event := made.next_event()) is not zttp.NEED_DATA:
        found.append(event)
    return found


def answer(made: zttp.H2Connection, stream: int, body: bytes = b"x") -> None:
    one = made.stream(stream)
    one.send_response(200, [(b"content-type", b"application/grpc")])
    one.send_data(body)
    one.end_message([(b"grpc-status", b"0")])


def test_a_connection_takes_a_thousand_calls_more_than_we_let_it() -> None:
    made = engine()
    for number in range(MOST_CALLS):
        made.receive_data(call(2 * number + 1))
        events(made)
        answer(made, 2 * number + 1)
    made.receive_data(call(2 * MOST_CALLS + 1))
    with pytest.raises(zttp.RemoteProtocolError):
        events(made)
    assert RECONNECT_AFTER_CALLS + 8 * MOST_AT_ONCE <= MOST_CALLS


def test_a_connection_takes_twice_the_resets_that_we_let_it() -> None:
    made = engine()
    for number in range(MOST_RESETS):
        made.receive_data(opening(2 * number + 1))
        made.receive_data(frame(RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08"))
        events(made)
    made.receive_data(opening(2 * MOST_RESETS + 1))
    made.receive_data(frame(RST_STREAM, 0, 2 * MOST_RESETS + 1, b"\0\0\0\x08"))
    with pytest.raises(zttp.RemoteProtocolError):
        events(made)
    assert 2 * RECONNECT_AFTER_RESETS <= MOST_RESETS


def test_it_refuses_more_calls_at_once_than_it_says() -> None:
    made = engine()
    made.receive_data(b"".join(opening(2 * n + 1) for n in range(MOST_AT_ONCE + 1)))
    *taken, refused = events(made)
    assert all(isinstance(event, zttp.Request) for event in taken)
    assert isinstance(refused, zttp.RstStream)
    assert refused.error_code == zttp.H2ErrorCode.REFUSED_STREAM


def test_calls_go_on_after_a_goaway_that_names_the_last_stream_there_can_be() -> None:
    made = engine()
    made.close(0, 2**31 - 1)
    made.receive_data(call(1))
    assert isinstance(events(made)[0], zttp.Request)
    answer(made, 1)
    assert made.data_to_send()


def test_what_has_no_room_is_kept_and_counted() -> None:
    made = engine(PREFACE + settings(x4=3))
    made.receive_data(call(1))
    events(made)
    answer(made, 1, b"hello")
    stream = made.stream(1)
    assert stream.pending_bytes == 2
    assert made.has_pending_send()
    made.receive_data(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\x05"))
    events(made)
    assert not stream.pending_bytes
    assert not made.has_pending_send()


def test_a_request_without_a_body_has_no_event_for_its_end() -> None:
    made = engine()
    made.receive_data(opening(1, flags=END_HEADERS | END_STREAM))
    (event,) = events(made)
    assert isinstance(event, zttp.Request)
    assert event.end_stream
