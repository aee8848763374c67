"""When a connection is closed, and when its peer is asked for a new one."""

from __future__ import annotations

from headgate.service.grpc import GrpcLimits
from headgate.service.grpc.h2_server.abuse_limits import (
    LINGER_S,
    QUIET_BYTES,
    RENEWED_AFTER,
    RENEWED_AFTER_RESETS,
    Patience,
)

LIMITS = GrpcLimits(preface_s=10, stall_s=20, idle_s=100, control_frames=50)


def begun(now: float = 0.0) -> Patience:
    patience = Patience(LIMITS, now=now)
    patience.is_begun = True
    return patience


def test_a_peer_that_has_not_begun_is_waited_for_so_long() -> None:
    patience = Patience(LIMITS, now=5.0)
    assert patience.verdict(15.0, calls=0, unread=False) is None
    assert patience.verdict(15.1, calls=0, unread=False) == "mute"


def test_a_peer_that_does_not_read_is_waited_for_so_long() -> None:
    patience = begun()
    assert patience.verdict(1.0, calls=1, unread=True) is None
    assert patience.verdict(21.0, calls=1, unread=True) is None
    assert patience.verdict(21.1, calls=1, unread=True) == "stalled"


def test_a_peer_that_has_read_all_in_between_is_waited_for_anew() -> None:
    patience = begun()
    assert patience.verdict(1.0, calls=1, unread=True) is None
    assert patience.verdict(20.0, calls=1, unread=False) is None
    assert patience.verdict(30.0, calls=1, unread=True) is None
    assert patience.verdict(50.0, calls=1, unread=True) is None
    assert patience.verdict(50.1, calls=1, unread=True) == "stalled"


def test_a_connection_without_calls_is_over_after_a_while() -> None:
    patience = begun()
    assert patience.verdict(99.0, calls=1, unread=False) is None
    assert patience.verdict(199.0, calls=0, unread=False) is None
    assert patience.verdict(199.1, calls=0, unread=False) == "over"


def test_calls_that_came_and_went_between_two_looks_count() -> None:
    patience = begun()
    patience.opened += 1
    assert patience.verdict(101.0, calls=0, unread=False) is None
    assert patience.verdict(201.1, calls=0, unread=False) == "over"


def test_a_peer_that_was_asked_to_leave_is_left_a_moment_after_its_last_call() -> None:
    patience = begun()
    patience.leaving_since = 0.0
    assert patience.verdict(50.0, calls=1, unread=False) is None
    assert patience.verdict(50.0 + LINGER_S, calls=0, unread=False) is None
    assert patience.verdict(50.1 + LINGER_S, calls=0, unread=False) == "over"


def test_frames_of_no_call_are_allowed_so_many_a_second() -> None:
    patience = begun()
    for second in range(1, 4):
        patience.noise = 50
        assert not patience.is_tried
        patience.noise += 1
        assert patience.is_tried
        patience.verdict(float(second), calls=0, unread=False)


def test_calls_and_bytes_earn_frames() -> None:
    patience = begun()
    patience.noise, patience.opened, patience.moved = 50 + 8 + 3, 2, 3 * 1024
    assert not patience.is_tried
    patience.noise += 1
    assert patience.is_tried


def test_what_was_not_used_up_is_carried_over_for_ten_seconds() -> None:
    patience = begun()
    patience.noise, patience.moved = 40, 20 * 1024
    patience.verdict(1.0, calls=0, unread=False)
    patience.noise = 10 + 20 + 50
    assert not patience.is_tried
    patience.noise += 1
    assert patience.is_tried
    patience.moved = 10_000_000
    patience.verdict(2.0, calls=0, unread=False)
    patience.noise = 500
    assert not patience.is_tried
    patience.noise += 1
    assert patience.is_tried


def test_bytes_that_bring_nothing_try_patience() -> None:
    patience = begun()
    patience.quiet = QUIET_BYTES
    assert not patience.is_tried
    patience.quiet += 1
    assert patience.is_tried


def test_a_new_connection_is_due_once_after_many_calls_or_resets() -> None:
    for busy, reset in ((RENEWED_AFTER, 0), (0, RENEWED_AFTER_RESETS)):
        patience = begun()
        patience.opened, patience.resets = max(0, busy - 1), max(0, reset - 1)
        assert not patience.is_due
        patience.opened, patience.resets = busy, reset
        assert patience.is_due
        patience.leaving_since = 1.0
        assert not patience.is_due
