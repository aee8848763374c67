"""When a connection is closed, and when its peer is asked for a new one."""

from __future__ import annotations

from headgate.service.grpc import GrpcLimits
from headgate.service.grpc.h2_server.abuse_limits import (
    LINGER_S,
    MAX_IDLE_BYTES,
    RECONNECT_AFTER_CALLS,
    RECONNECT_AFTER_RESETS,
    PeerBudget,
)

LIMITS = GrpcLimits(preface_s=10, stall_s=20, idle_s=100, control_frames=50)


def begun(now: float = 0.0) -> PeerBudget:
    budget = PeerBudget(LIMITS, now=now)
    budget.is_begun = True
    return budget


def test_a_peer_that_has_not_begun_is_waited_for_so_long() -> None:
    budget = PeerBudget(LIMITS, now=5.0)
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


def test_bytes_that_bring_nothing_try_patience() -> None:
    budget = begun()
    budget.idle_bytes = MAX_IDLE_BYTES
    assert not budget.is_exceeded
    budget.idle_bytes += 1
    assert budget.is_exceeded


def test_a_new_connection_is_due_once_after_many_calls_or_resets() -> None:
    for busy, reset in ((RECONNECT_AFTER_CALLS, 0), (0, RECONNECT_AFTER_RESETS)):
        budget = begun()
        budget.opened, budget.resets = max(0, busy - 1), max(0, reset - 1)
        assert not budget.should_reconnect
        budget.opened, budget.resets = busy, reset
        assert budget.should_reconnect
        budget.leaving_since = 1.0
        assert not budget.should_reconnect
