"""The blocking gate: the same core, with threads that wait."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import OptionError
from headgate.overload import FairGate
from headgate.testing import ManualClock
from tests.support.gate_callers import Steered

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from headgate.overload import Turn

PATIENCE = 30.0
"""Longer than anything here takes: no test waits for it to pass."""


def _until(is_true: Callable[[], bool]) -> None:
    """Let the other threads go on until *is_true*."""
    end = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.0005)


def test_a_gate_with_room_lets_in_at_once() -> None:
    gate = FairGate(slots=2)
    with gate.turn("a") as first, gate.turn("b", 2, weight=3, priority="critical") as second:
        assert first
        assert second
        assert gate.in_flight == 2
        assert gate.try_enter("a") is None
        assert (gate.enter("a", timeout=0)).reason == "too_long"
    assert gate.in_flight == 0
    assert gate.expected_wait == 0


def test_a_clock_that_is_set_back_makes_no_wait_negative() -> None:
    now = 10**12
    gate = FairGate(slots=1, clock=lambda: now)
    turn = gate.enter("a")
    now -= 5 * 10**9
    turn.release()
    with gate.turn("a"):
        assert gate.expected_wait == 0
        assert gate.standing("b")[1] == 0
        assert gate.enter("b", timeout=0).retry_after == 0


@pytest.mark.parametrize("asked", [{"weight": 0}, {"weight": 1.5}, {"priority": "urgent"}])
def test_nobody_waits_whose_weight_or_class_is_none(asked: dict[str, Any]) -> None:
    gate = FairGate(slots=1)
    with pytest.raises(OptionError, match="expected"):
        gate.expected_wait_of("a", **asked)
    with gate.turn("a"), pytest.raises(OptionError, match="expected"):
        gate.expected_wait_of("a", **asked)


def test_a_thread_that_waits_is_let_in_when_another_leaves() -> None:
    gate = FairGate(slots=1)
    held = gate.enter("a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gate.enter, "a", timeout=PATIENCE)
        _until(lambda: gate.depth == 1)
        held.release()
        assert waiting.result()


def test_threads_go_by_weight() -> None:
    gate, served = FairGate(slots=1, weights={"b": 3}), list[str]()

    def work(tenant: str) -> None:
        with gate.turn(tenant, timeout=PATIENCE):
            served.append(tenant)

    held = gate.enter("a")
    with ThreadPoolExecutor(24) as pool:
        for tenant in "a" * 12 + "b" * 12:
            pool.submit(work, tenant)
        _until(lambda: gate.depth == 24)
        held.release()
    assert "".join(served[:16]).count("b") == 12


def test_a_thread_waits_no_longer_than_it_may() -> None:
    gate = FairGate(slots=1, max_wait=0.01)
    gate.enter("a")
    turn = gate.enter("a")
    assert turn.reason == "timeout"
    assert turn.waited >= 0.01
    assert gate.depth == 0


def test_a_gate_that_closes_refuses_the_threads_that_wait() -> None:
    with ThreadPoolExecutor(1) as pool:
        with FairGate(slots=1) as gate:
            gate.enter("a")
            waiting = pool.submit(gate.enter, "a")
            _until(lambda: gate.depth == 1)
        assert waiting.result().reason == "closed"
    assert gate.enter("a").reason == "closed"


def test_at_a_rate_a_manual_clock_is_moved() -> None:
    clock = ManualClock()
    gate = FairGate(rate="1/s", clock=clock, max_wait=60)
    turns = [gate.enter("a") for _ in range(5)]
    assert all(turns)
    assert clock.now == pytest.approx(4.0)
    assert turns[4].waited == pytest.approx(1.0)
    assert gate.expected_wait == pytest.approx(1.0)


def test_at_a_rate_threads_follow_each_other_in_order() -> None:
    gate = FairGate(rate="2000/s")
    gate.enter("a").release()
    begun = list[int]()

    def come() -> None:
        turn = gate.enter("a", timeout=PATIENCE)
        begun.append(turn.began_ns)
        turn.release()

    with ThreadPoolExecutor(16) as pool:
        for _ in range(32):
            pool.submit(come)
    assert len(begun) == 32
    # However late a timer is: turns are never given before their time.
    assert max(begun) - min(begun) >= 31 * 500_000 - 10_000_000
    assert (gate.depth, gate.in_flight) == (0, 0)


def test_a_faster_rate_wakes_those_who_wait() -> None:
    gate = FairGate(rate="1/hour")
    gate.enter("a")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(gate.enter, "a") for _ in range(2)]
        _until(lambda: gate.depth == 2)
        gate.configure(slots=3)
        assert all(future.result() for future in waiting)


def test_what_is_steered_hears_of_each_turn() -> None:
    steering = Steered(1)
    clock = ManualClock()
    gate = FairGate(slots=steering, clock=clock)

    def late() -> None:
        with gate.turn("a"):
            clock.advance(2)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        late()
    assert steering.seen == [(1, 2_000_000_000, False)]


def test_who_is_interrupted_gives_its_place_up() -> None:
    class Interrupting(ManualClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    gate = FairGate(rate="1/s", clock=Interrupting())
    gate.enter("a")
    with pytest.raises(KeyboardInterrupt):
        gate.enter("a")
    assert gate.depth == 0


def test_many_threads_never_are_in_beyond_the_slots_and_none_is_forgotten() -> None:
    gate, most, inside = FairGate(slots=3, queue=1_000), 0, 0
    counting = threading.Lock()

    def work(number: int) -> bool:
        nonlocal most, inside
        with gate.turn(f"t{number % 5}", timeout=PATIENCE) as turn:
            with counting:
                inside += 1
                most = max(most, inside)
            with counting:
                inside -= 1
            return bool(turn)

    with ThreadPoolExecutor(16) as pool:
        done: list[Future[bool]] = [pool.submit(work, number) for number in range(600)]
    assert all(future.result() for future in done)
    assert most <= 3
    assert (gate.in_flight, gate.depth) == (0, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_begins_with_an_empty_gate() -> None:
    gate = FairGate(slots=1)
    held: Turn = gate.enter("a")
    child = os.fork()
    if not child:
        signal.alarm(20)
        is_fresh = gate.in_flight == 0 and bool(gate.enter("a", timeout=0))
        held.release()  # that of the parent: nothing here
        os._exit(0 if is_fresh and gate.in_flight == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gate.in_flight == 1


def test_what_makes_no_sense_is_an_error() -> None:
    gate = FairGate(slots=1)
    with pytest.raises(OptionError):
        gate.enter("a", weight=0)
    with pytest.raises(OptionError):
        gate.enter("a", timeout=-1)
    assert gate.in_flight == 0
