"""When a connection is closed, and when its peer is asked for a new one."""

from __future__ import annotations

import pytest

from headgate.service.grpc.method import GrpcLimits
from headgate.service.grpc.peer_budget import (
    LINGER_S,
    RECONNECT_AFTER_CALLS,
    RECONNECT_AFTER_RESETS,
    PeerBudget,
)
from tests.support.http2_frames import (
    DATA,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    WINDOW_UPDATE,
    frame,
)

PADDED = 8
LIMITS = GrpcLimits(preface_s=10, stall_s=20, idle_s=100, control_frames=50)


def begun(now: float = 0.0) -> PeerBudget:
    budget = PeerBudget(LIMITS, now)
    budget.is_begun = True
    return budget


def test_a_peer_that_has_not_begun_is_waited_for_so_long() -> None:
    budget = PeerBudget(LIMITS, 5.0)
    assert budget.verdict(15.0, calls=0, unread=False) is None
    assert budget.verdict(15.1, calls=0, unread=False) == "no_preface"


def test_a_peer_that_does_not_read_is_waited_for_so_long() -> None:
    budget = begun()
    assert budget.verdict(1.0, calls=1, unread=True) is None
    assert budget.verdict(21.0, calls=1, unread=True) is None
    assert budget.verdict(21.1, calls=1, unread=True) == "stalled"


def test_a_peer_that_has_read_all_in_between_is_waited_for_anew() -> None:
    budget = begun()
    assert budget.verdict(1.0, calls=1, unread=True) is None
    assert budget.verdict(20.0, calls=1, unread=False) is None
    assert budget.verdict(30.0, calls=1, unread=True) is None
    assert budget.verdict(50.0, calls=1, unread=True) is None
    assert budget.verdict(50.1, calls=1, unread=True) == "stalled"


def test_a_connection_without_calls_is_over_after_a_while() -> None:
    budget = begun()
    assert budget.verdict(99.0, calls=1, unread=False) is None
    assert budget.verdict(199.0, calls=0, unread=False) is None
    assert budget.verdict(199.1, calls=0, unread=False) == "idle"


def test_calls_that_came_and_went_between_two_looks_count() -> None:
    budget = begun()
    budget.opened += 1
    assert budget.verdict(101.0, calls=0, unread=False) is None
    assert budget.verdict(201.1, calls=0, unread=False) == "idle"


def test_a_peer_that_was_asked_to_leave_is_left_a_moment_after_its_last_call() -> None:
    budget = begun()
    budget.leaving_since = 0.0
    assert budget.verdict(50.0, calls=1, unread=False) is None
    assert budget.verdict(50.0 + LINGER_S, calls=0, unread=False) is None
    assert budget.verdict(50.1 + LINGER_S, calls=0, unread=False) == "idle"


def test_frames_of_no_call_are_allowed_so_many_a_second() -> None:
    budget = begun()
    for second in range(1, 4):
        budget.overhead = 50
        assert not budget.is_exceeded
        budget.overhead += 1
        assert budget.is_exceeded
        budget.verdict(float(second), calls=0, unread=False)


def test_calls_and_bytes_earn_frames() -> None:
    budget = begun()
    budget.overhead, budget.opened, budget.moved = 50 + 8 + 3, 2, 3 * 1024
    assert not budget.is_exceeded
    budget.overhead += 1
    assert budget.is_exceeded


def test_what_was_not_used_up_is_carried_over_for_ten_seconds() -> None:
    budget = begun()
    budget.overhead, budget.moved = 40, 20 * 1024
    budget.verdict(1.0, calls=0, unread=False)
    budget.overhead = 10 + 20 + 50
    assert not budget.is_exceeded
    budget.overhead += 1
    assert budget.is_exceeded
    budget.moved = 10_000_000
    budget.verdict(2.0, calls=0, unread=False)
    budget.overhead = 500
    assert not budget.is_exceeded
    budget.overhead += 1
    assert budget.is_exceeded


@pytest.mark.parametrize("size", [1, 5, 9, 1000])
def test_frames_that_bring_nothing_to_a_call_are_overhead_however_they_are_cut(size: int) -> None:
    useful = [frame(HEADERS, 0, 1, b"xy"), frame(DATA, 0, 1, b"x"), frame(DATA, END_STREAM, 1)]
    overhead = [
        frame(DATA, 0, 1),
        frame(DATA, PADDED, 1, b"\0"),
        frame(PING, 0, 0, b"12345678"),
        frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"),
        frame(PRIORITY, 0, 1, b"\0\0\0\0\1"),
        frame(0x42, 0, 0, b"x" * 300),
    ]
    sent = PREFACE + b"".join([*useful, *overhead, *useful])
    budget = begun()
    for start in range(0, len(sent), size):
        budget.receive(sent[start : start + size])
    assert budget.overhead == len(overhead)
    assert budget.moved == len(sent)
    assert not budget.has_broken_protocol


def test_a_priority_frame_without_a_stream_breaks_the_protocol() -> None:
    budget = begun()
    budget.receive(PREFACE + frame(PRIORITY, 0, 0, b"\0\0\0\0\1"))
    assert budget.has_broken_protocol


def test_a_new_connection_is_due_once_after_many_calls_or_resets() -> None:
    for busy, reset in ((RECONNECT_AFTER_CALLS, 0), (0, RECONNECT_AFTER_RESETS)):
        budget = begun()
        budget.opened, budget.resets = max(0, busy - 1), max(0, reset - 1)
        assert not budget.should_reconnect
        budget.opened, budget.resets = busy, reset
        assert budget.should_reconnect
        budget.leaving_since = 1.0
        assert not budget.should_reconnect
