"""Waiting for one's turn: how long, for whom, and when not at all."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from headgate.errors import StoreError
from headgate.stores.shm import ShmStore, lock
from headgate.stores.shm.layout import CONTROL_AT, PAGE
from headgate.stores.shm.lock import MOST_TURNS, TURNS_WORD, Patience
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TIMEOUT_NS = 50 * MILLISECOND


class Queue:
    """Somebody who waits for a file that another has; time passes with each try."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"x")
        self.other = os.open(path, os.O_RDWR)
        self.own = os.open(path, os.O_RDWR)
        self.words = memoryview(bytearray(CONTROL_AT + PAGE)).cast("Q")
        self.patience = Patience(self.words, timeout_ns=TIMEOUT_NS, most_ns=10 * TIMEOUT_NS)
        self.now = self.tries = 0
        self.while_waiting: Callable[[], object] = lambda: None

    def pass_time(self, _: float = 0) -> None:
        self.now += MILLISECOND
        self.tries += 1
        self.while_waiting()

    def others_take_turns(self) -> None:
        self.words[TURNS_WORD] += 1

    def waited_in_vain_ms(self) -> int:
        start = self.now
        with pytest.raises(StoreError, match="no turn") as caught:
            self.patience.take_turn(self.own)
        assert caught.value.reason == "timeout"
        return (self.now - start) // MILLISECOND


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    made = Queue(tmp_path / "file")
    monkeypatch.setattr(lock, "monotonic_ns", lambda: made.now)
    monkeypatch.setattr(lock, "sleep", made.pass_time)
    monkeypatch.setattr(lock, "_let_others_run", made.pass_time)
    fcntl.flock(made.other, fcntl.LOCK_EX)
    yield made
    os.close(made.other)
    os.close(made.own)


def test_a_turn_that_does_not_end_is_waited_for_once(queue: Queue) -> None:
    assert [queue.waited_in_vain_ms() for _ in range(3)] == [50, 0, 0]


def test_while_others_have_their_turns_one_waits_for_longer(queue: Queue) -> None:
    queue.while_waiting = queue.others_take_turns
    assert queue.waited_in_vain_ms() == 500


def test_an_event_loop_never_waits_for_longer_than_the_timeout(queue: Queue) -> None:
    loops = ShmStore("shm://name").store
    queue.patience = Patience(
        queue.words, timeout_ns=TIMEOUT_NS, most_ns=loops._most_timeouts * TIMEOUT_NS
    )
    queue.while_waiting = queue.others_take_turns
    assert queue.waited_in_vain_ms() == 50


def test_when_turns_go_on_one_waits_again(queue: Queue) -> None:
    assert queue.waited_in_vain_ms() == 50
    queue.others_take_turns()
    assert queue.waited_in_vain_ms() == 50
    fcntl.flock(queue.other, fcntl.LOCK_UN)
    queue.patience.take_turn(queue.own)


def test_a_turn_is_had_as_soon_as_the_other_has_given_it_back(queue: Queue) -> None:
    def give_back() -> None:
        if queue.tries == 20:
            fcntl.flock(queue.other, fcntl.LOCK_UN)

    queue.while_waiting = give_back
    queue.patience.take_turn(queue.own)
    assert queue.tries == 20
    assert queue.words[TURNS_WORD] == 1


def test_the_count_of_turns_never_ends(queue: Queue) -> None:
    fcntl.flock(queue.other, fcntl.LOCK_UN)
    queue.words[TURNS_WORD] = MOST_TURNS
    queue.patience.take_turn(queue.own)
    assert queue.words[TURNS_WORD] == 0
