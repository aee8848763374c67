"""After a failed attempt a server is left alone, for longer each time."""

from __future__ import annotations

from headgate.errors import StoreError
from headgate.stores.redis.connection import Backoff

ERROR = StoreError("no connection to a:1", reason="unreachable")


def test_at_first_nothing_is_in_the_way() -> None:
    assert Backoff(lambda: 1.0).pause_error(0.0) is None


def test_pauses_double_up_to_a_second() -> None:
    backoff = Backoff(lambda: 1.0)
    now = 100.0
    for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        backoff.failed(ERROR, now)
        error = backoff.pause_error(now + pause - 0.001)
        assert error is not None
        assert error.reason == "unreachable"
        assert str(error) == "no connection to a:1 (the next attempt is in 1 ms)"
        assert backoff.pause_error(now + pause) is None
        now += pause


def test_a_pause_is_a_random_part_of_the_longest() -> None:
    backoff = Backoff(lambda: 0.5)
    backoff.failed(ERROR, 0.0)
    assert backoff.pause_error(0.024) is not None
    assert backoff.pause_error(0.0251) is None


def test_a_success_ends_it() -> None:
    backoff = Backoff(lambda: 1.0)
    for _ in range(5):
        backoff.failed(ERROR, 0.0)
    backoff.succeeded()
    assert backoff.pause_error(0.0) is None
    backoff.failed(ERROR, 0.0)
    assert backoff.pause_error(0.0501) is None


def test_very_many_failures_are_no_trouble() -> None:
    backoff = Backoff(lambda: 1.0)
    for _ in range(5_000):
        backoff.failed(ERROR, 0.0)
    assert backoff.pause_error(1.0) is None
    assert backoff.pause_error(0.99) is not None
