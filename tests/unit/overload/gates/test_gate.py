"""`FairGate` and `AsyncFairGate`: one body of tests for both, in threads and in tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import CostError, KeyInvalidError, OptionError
from headgate.overload import AsyncFairGate, FairGate
from headgate.testing import ManualClock
from tests.support.driven_gates import PATIENCE, Blocking, GateDriver, Tasks
from tests.support.gate_callers import Steered

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[Blocking, Tasks], ids=["threads", "tasks"])
def driver(request: pytest.FixtureRequest) -> Iterator[GateDriver]:
    made: GateDriver = request.param()
    yield made
    made.end()


def test_a_gate_with_room_lets_in_at_once(driver: GateDriver) -> None:
    gate = driver.make(slots=2)
    first, second = driver.enter("a"), driver.enter("b", 2, weight=3, priority="critical")
    assert first
    assert second.allowed
    assert (first.waited, first.reason, first.retry_after) == (0.0, None, None)
    assert (gate.in_flight, gate.limit, gate.depth) == (2, 2, 0)
    assert driver.enter("a", timeout=0).reason == "too_long"
    assert first.is_in
    assert first.release()
    assert not first.release()
    assert not first.is_in
    assert gate.in_flight == 1
    assert second.release()
    assert gate.expected_wait == 0


def test_one_that_waits_is_let_in_when_another_leaves(driver: GateDriver) -> None:
    gate = driver.make(slots=1)
    held = driver.enter("a")
    (waiting,) = driver.line_up("a")
    held.release()
    place = driver.place_of(waiting)
    assert place
    assert gate.in_flight == 1


def test_those_who_wait_go_by_weight(driver: GateDriver) -> None:
    driver.make(slots=1, weights={"b": 3})
    held = driver.enter("a")
    callers = driver.line_up("a" * 8 + "b" * 8)
    assert driver.release_all(held, callers)[:10].count("b") >= 7


def test_a_weight_may_be_given_with_a_call(driver: GateDriver) -> None:
    driver.make(slots=1)
    held = driver.enter("a")
    light = driver.line_up("aaaa")
    heavy = [driver.begin("b", weight=4) for _ in range(4)]
    driver.until(lambda: driver.gate.depth == 8)
    assert driver.release_all(held, light + heavy)[:5].count("b") == 4


def test_one_waits_no_longer_than_it_may(driver: GateDriver) -> None:
    gate = driver.make(slots=1, max_wait=0.01)
    driver.enter("a")
    for asking in ({}, {"timeout": 0.005}, {"timeout": 20}):
        place = driver.enter("a", **asking)
        assert place.reason == "timeout"
        assert place.waited >= min(asking.get("timeout", 1), 0.01)
    assert gate.depth == 0


def test_a_gate_that_closes_denies_those_who_wait_and_those_who_come(driver: GateDriver) -> None:
    gate = driver.make(slots=1)
    held = driver.enter("a")
    (waiting,) = driver.line_up("a")
    driver.close_gate()
    assert driver.place_of(waiting).reason == "closed"
    assert driver.enter("b").reason == "closed"
    assert held.release()
    gate.configure(slots=5)
    assert driver.enter("b").reason == "closed"


def test_at_a_rate_a_manual_clock_is_moved(driver: GateDriver) -> None:
    clock = ManualClock()
    gate = driver.make(rate="1/s", clock=clock, max_wait=60)
    places = [driver.enter("a") for _ in range(5)]
    assert all(places)
    assert clock.now == pytest.approx(4.0)
    assert places[4].waited == pytest.approx(1.0)
    assert gate.expected_wait == pytest.approx(1.0)


def test_at_a_rate_all_follow_each_other(driver: GateDriver) -> None:
    gate = driver.make(rate="2000/s")
    driver.enter("a").release()
    callers = [driver.begin("a", timeout=PATIENCE) for _ in range(24)]
    begun = []
    for caller in callers:
        place = driver.place_of(caller)
        begun.append(place.began_ns)
        place.release()
    # However late a timer is: places are never given before their time.
    assert max(begun) - min(begun) >= 23 * 500_000 - 10_000_000
    assert (gate.depth, gate.in_flight) == (0, 0)


def test_other_capacity_wakes_those_who_wait_for_a_rate(driver: GateDriver) -> None:
    gate = driver.make(rate="1/hour")
    driver.enter("a")
    callers = driver.line_up("aa")
    gate.configure(slots=3)
    assert all(driver.place_of(caller) for caller in callers)


class Interrupting(ManualClock):
    """Who sleeps on it is interrupted."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt

    async def asleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


def test_who_is_interrupted_gives_its_place_up(driver: GateDriver) -> None:
    gate = driver.make(rate="1/s", clock=Interrupting())
    driver.enter("a")
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        driver.enter("a")
    assert (gate.depth, gate.in_flight) == (0, 1)


class InterruptsFirst(ManualClock):
    """The first caller that sleeps on it is interrupted, when another one waits as well."""

    gate: Any
    is_interrupting = True

    def sleep(self, seconds: float) -> None:
        if not self.is_interrupting:
            super().sleep(seconds)
            return
        self.is_interrupting = False
        while self.gate.depth < 2:
            time.sleep(0)
        raise KeyboardInterrupt

    async def asleep(self, seconds: float) -> None:
        if not self.is_interrupting:
            await super().asleep(seconds)
            return
        self.is_interrupting = False
        while self.gate.depth < 2:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
        raise asyncio.CancelledError


def test_when_the_one_that_sleeps_for_a_rate_is_interrupted_another_one_goes_on(
    driver: GateDriver,
) -> None:
    clock = InterruptsFirst()
    clock.gate = gate = driver.make(rate="1/s", clock=clock)
    driver.enter("a")
    first, second = driver.begin("a"), driver.begin("a")
    places = []
    for caller in (first, second):  # of threads either may come first
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            places.append(driver.place_of(caller))
    assert len(places) == 1
    assert places[0]
    assert clock.now == pytest.approx(1.0)
    assert (gate.depth, gate.in_flight) == (0, 2)


def test_what_is_steered_hears_of_each_turn(driver: GateDriver) -> None:
    steering, clock = Steered(1), ManualClock()
    driver.make(slots=steering, clock=clock)

    def late() -> None:
        with driver.enter("a"):
            clock.advance(2)
            raise TimeoutError

    with pytest.raises(TimeoutError):
        late()
    assert steering.seen == [(1, 2_000_000_000, False)]


def test_a_clock_that_is_set_back_makes_no_wait_negative(driver: GateDriver) -> None:
    now = 10**12
    gate = driver.make(slots=1, clock=lambda: now)
    place = driver.enter("a")
    now -= 5 * 10**9
    place.release()
    with driver.enter("a"):
        assert gate.expected_wait == 0
        assert gate.standing("b")[1] == 0
        assert driver.enter("b", timeout=0).retry_after == 0


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"tenant": ""}, KeyInvalidError),
        ({"tenant": 5}, KeyInvalidError),
        ({"tenant": "a", "cost": -1}, CostError),
        ({"tenant": "a", "cost": 1.5}, CostError),
        ({"tenant": "a", "cost": True}, CostError),
        ({"tenant": "a", "weight": 0}, OptionError),
        ({"tenant": "a", "weight": 1.5}, OptionError),
        ({"tenant": "a", "weight": 1001}, OptionError),
        ({"tenant": "a", "timeout": -1}, OptionError),
        ({"tenant": "a", "timeout": float("nan")}, OptionError),
        ({"tenant": "a", "priority": "urgent"}, OptionError),
    ],
)
def test_what_makes_no_sense_is_an_error_whether_there_is_room_or_not(
    driver: GateDriver, asked: dict[str, Any], error: type[Exception]
) -> None:
    gate = driver.make(slots=1)
    with pytest.raises(error):
        driver.enter(**asked)
    driver.enter("a")
    with pytest.raises(error):
        driver.enter(**asked)
    assert (gate.depth, gate.in_flight) == (0, 1)


@pytest.mark.parametrize("kind", [FairGate, AsyncFairGate])
def test_an_option_that_there_is_not_is_an_error(kind: type[FairGate | AsyncFairGate]) -> None:
    with pytest.raises(TypeError, match="slits"):
        kind(slits=1)  # type: ignore[call-arg]  # on purpose


def test_many_threads_never_are_in_beyond_the_slots_and_none_is_forgotten() -> None:
    gate, most, inside = FairGate(slots=3, queue=1_000), 0, 0
    counting = threading.Lock()

    def work(number: int) -> bool:
        nonlocal most, inside
        with gate.place(f"t{number % 5}", timeout=PATIENCE) as place:
            with counting:
                inside += 1
                most = max(most, inside)
            with counting:
                inside -= 1
            return bool(place)

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(work, range(300)))
    assert most <= 3
    assert (gate.in_flight, gate.depth) == (0, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_begins_with_an_empty_gate() -> None:
    gate = FairGate(slots=1)
    held = gate.enter("a")
    child = os.fork()
    if not child:
        signal.alarm(20)
        is_fresh = gate.in_flight == 0 and bool(gate.enter("a", timeout=0))
        held.release()  # that of the parent: nothing here
        os._exit(0 if is_fresh and gate.in_flight == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gate.in_flight == 1
