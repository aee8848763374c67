"""Waiting for the lock among processes: how long, and when not at all."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from headgate.errors import StoreError
from headgate.stores.shm import lock
from headgate.stores.shm.lock import (
    MAX_COUNT,
    MAX_PATIENCE,
    PATIENCE,
    FileLock,
    holder_state,
)
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TIMEOUT_MS = 50


class Waiter:
    """A caller that waits for a lock that another holds; each try takes a millisecond."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"x")
        self.other = os.open(path, os.O_RDWR)
        self.own = os.open(path, os.O_RDWR)
        self.words = memoryview(bytearray(8)).cast("Q")
        self.lock = FileLock(self.own, self.words, 0, TIMEOUT_MS * MILLISECOND)
        self.now = self.tries = 0
        self.state = "R"
        self.meanwhile: Callable[[], object] = lambda: None

    def pause(self, _: float = 0) -> None:
        self.now += MILLISECOND
        self.tries += 1
        self.meanwhile()

    def others_progress(self) -> None:
        self.words[0] += 1

    def failed_after_ms(self) -> int:
        start = self.now
        with pytest.raises(StoreError, match="was not free") as caught:
            self.lock.acquire()
        assert caught.value.reason == "timeout"
        return (self.now - start) // MILLISECOND


@pytest.fixture
def waiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiter]:
    made = Waiter(tmp_path / "file")
    monkeypatch.setattr(lock, "monotonic_ns", lambda: made.now)
    monkeypatch.setattr(lock, "sleep", made.pause)
    monkeypatch.setattr(lock, "holder_state", lambda _: made.state)
    fcntl.flock(made.other, fcntl.LOCK_EX)
    yield made
    os.close(made.other)
    os.close(made.own)


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_holder_is_waited_for_once_for_the_timeout(waiter: Waiter, state: str) -> None:
    waiter.state = state
    assert [waiter.failed_after_ms() for _ in range(3)] == [TIMEOUT_MS, 0, 0]


@pytest.mark.parametrize("state", ["S", "D", ""])
def test_a_sleeping_or_invisible_holder_is_waited_for_longer(waiter: Waiter, state: str) -> None:
    waiter.state = state
    assert [waiter.failed_after_ms() for _ in range(2)] == [PATIENCE * TIMEOUT_MS, 0]


def test_a_holder_that_can_run_is_waited_for_longest(waiter: Waiter) -> None:
    assert [waiter.failed_after_ms() for _ in range(2)] == [MAX_PATIENCE * TIMEOUT_MS, 0]


def test_a_holder_that_is_stopped_during_the_wait_ends_it(waiter: Waiter) -> None:
    def stop() -> None:
        if waiter.tries == 2 * TIMEOUT_MS + 10:
            waiter.state = "T"

    waiter.meanwhile = stop
    assert waiter.failed_after_ms() == 3 * TIMEOUT_MS


def test_a_wait_goes_on_while_others_make_progress(waiter: Waiter) -> None:
    waiter.state = "T"  # one of many that hold it in turn
    waiter.meanwhile = waiter.others_progress
    assert waiter.failed_after_ms() == MAX_PATIENCE * TIMEOUT_MS


def test_calls_wait_again_once_there_is_progress(waiter: Waiter) -> None:
    waiter.state = "T"
    assert waiter.failed_after_ms() == TIMEOUT_MS
    waiter.others_progress()
    assert waiter.failed_after_ms() == TIMEOUT_MS
    fcntl.flock(waiter.other, fcntl.LOCK_UN)
    waiter.lock.acquire()


def test_the_lock_is_taken_at_the_first_try_after_its_release(waiter: Waiter) -> None:
    def release() -> None:
        if waiter.tries == 20:
            fcntl.flock(waiter.other, fcntl.LOCK_UN)

    waiter.meanwhile = release
    waiter.lock.acquire()
    assert (waiter.tries, waiter.words[0]) == (20, 1)


def test_the_count_of_acquisitions_wraps_around(waiter: Waiter) -> None:
    fcntl.flock(waiter.other, fcntl.LOCK_UN)
    waiter.words[0] = MAX_COUNT
    waiter.lock.acquire()
    assert waiter.words[0] == 0


def test_the_state_of_a_holder_is_that_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open() as one, path.open() as other:
        assert holder_state(other.fileno()) == ""
        fcntl.flock(one, fcntl.LOCK_EX)
        assert holder_state(other.fileno()) == "R"
