"""Threads that ask at the same time, without a server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.limits import FixedWindow
from headgate.stores.operations import Check, Reset
from headgate.stores.redis.batching import Answer, Combiner, Pending
from headgate.stores.redis.naming import Names
from headgate.stores.redis.request import Request, Transport

if TYPE_CHECKING:
    from collections.abc import Sequence


class Gate(Transport):
    """A server that answers when it is let."""

    is_cluster = False

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.deadlines: list[float | None] = []
        self.arrived = threading.Semaphore(0)
        self.may_answer = threading.Semaphore(0)
        self.error: BaseException | None = None

    def perform(self, requests: Sequence[Request], deadline: float | None = None) -> None:
        self.sent.append(len(requests))
        self.deadlines.append(deadline)
        self.arrived.release()
        self.may_answer.acquire()
        if self.error is not None:
            raise self.error
        for request in requests:
            request.answered(1)

    def close(self) -> None:
        pass


class Asker:
    """A thread that asks once."""

    def __init__(self, combiner: Combiner) -> None:
        self.answer = Answer()
        self.error: BaseException | None = None
        self.was_sent: bool | None = None
        self._combiner = combiner
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self) -> None:
        reset = Reset((Check("g", "k", FixedWindow(1, 1)),))
        try:
            self.was_sent = self._combiner.perform(
                lambda pending: pending.operation(reset, self.answer)
            )
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            self.error = error


def _combiner(gate: Gate, lanes: int = 1, timeout: float = 30) -> Combiner:
    return Combiner(gate, lambda: Pending(Names(has_tags=False), lambda: b""), lanes, timeout)


def _queued(combiner: Combiner, number: int) -> None:
    while len(combiner._queue) < number:
        pass


def test_who_finds_a_lane_free_waits_for_nobody() -> None:
    gate = Gate()
    gate.may_answer.release()
    asker = Asker(_combiner(gate))
    asker.thread.join()
    assert asker.answer.done()
    assert asker.was_sent
    assert gate.sent == [1]


def test_those_who_come_meanwhile_are_asked_for_together() -> None:
    gate = Gate()
    combiner = _combiner(gate)
    askers = [Asker(combiner)]
    gate.arrived.acquire()
    askers += [Asker(combiner) for _ in range(7)]
    _queued(combiner, 7)
    gate.may_answer.release(2)
    for asker in askers:
        asker.thread.join()
    assert gate.sent == [1, 7]
    assert all(asker.answer.done() for asker in askers)


def test_there_are_as_many_under_way_as_there_are_lanes() -> None:
    gate = Gate()
    combiner = _combiner(gate, lanes=2)
    askers = [Asker(combiner) for _ in range(2)]
    gate.arrived.acquire()
    gate.arrived.acquire()
    askers += [Asker(combiner) for _ in range(3)]
    _queued(combiner, 3)
    gate.may_answer.release(3)
    for asker in askers:
        asker.thread.join()
    assert gate.sent == [1, 1, 3]


def test_a_leader_that_breaks_hands_its_lane_on() -> None:
    gate = Gate()
    combiner = _combiner(gate)
    first = Asker(combiner)
    gate.arrived.acquire()
    second = Asker(combiner)
    _queued(combiner, 1)
    gate.error = KeyboardInterrupt()
    gate.may_answer.release()
    first.thread.join()
    gate.arrived.acquire()
    gate.error = None
    gate.may_answer.release()
    second.thread.join()
    assert isinstance(first.error, KeyboardInterrupt)
    assert second.answer.done()


def test_who_queues_up_in_vain_leaves_the_queue() -> None:
    gate = Gate()
    combiner = _combiner(gate, timeout=0.05)
    first = Asker(combiner)
    gate.arrived.acquire()
    second = Asker(combiner)
    second.thread.join()
    assert not second.answer.done()
    gate.may_answer.release()
    first.thread.join()
    assert gate.sent == [1]
    assert len(combiner._queue) == 0


def test_the_last_that_queued_up_leads_until_its_own_time_is_up() -> None:
    gate = Gate()
    combiner = _combiner(gate)
    askers = [Asker(combiner)]
    gate.arrived.acquire()
    for number in range(1, 4):
        askers.append(Asker(combiner))
        _queued(combiner, number)
    last = combiner._queue[-1].deadline
    gate.may_answer.release(2)
    for asker in askers:
        asker.thread.join()
    assert gate.deadlines[1] == last


def test_who_is_under_way_leaves_all_the_same_when_its_time_is_up() -> None:
    gate = Gate()
    combiner = _combiner(gate, timeout=1.0)
    first = Asker(combiner)
    gate.arrived.acquire()
    hasty = Asker(combiner)
    _queued(combiner, 1)
    patient = Asker(combiner)
    _queued(combiner, 2)
    gate.may_answer.release()
    gate.arrived.acquire()  # the patient one leads, and the hasty one is under way with it
    hasty.thread.join()  # though nobody has answered
    assert not hasty.answer.done()
    gate.may_answer.release()
    for asker in (first, patient):
        asker.thread.join()
    assert gate.sent == [1, 2]
    assert patient.answer.done()


def test_what_is_late_when_its_turn_comes_is_not_sent() -> None:
    gate = Gate()
    combiner = _combiner(gate)
    first = Asker(combiner)
    gate.arrived.acquire()
    late = Asker(combiner)
    _queued(combiner, 1)
    combiner._queue[0].deadline = 0.0
    gate.may_answer.release()
    first.thread.join()
    late.thread.join()
    assert gate.sent == [1]
    assert not late.answer.done()
    gate.may_answer.release()
    after = Asker(combiner)
    after.thread.join()
    assert after.answer.done()


def test_an_answer_is_a_result_or_an_error() -> None:
    good, bad = Answer(), Answer()
    good.set_result(5)
    bad.set_exception(StoreError("gone"))
    assert (good.result(), good.outcome()) == (5, 5)
    assert isinstance(bad.outcome(), StoreError)


def test_who_has_waited_in_vain_knows_that_nothing_was_sent() -> None:
    gate = Gate()
    combiner = _combiner(gate, timeout=0.01)
    first = Asker(combiner)
    gate.arrived.acquire()
    second = Asker(combiner)
    second.thread.join()
    gate.may_answer.release()
    first.thread.join()
    assert first.was_sent
    assert second.was_sent is False
    assert not second.answer.done()
    assert gate.sent == [1]


def test_who_is_made_to_lead_too_late_sends_nothing_for_anybody() -> None:
    gate = Gate()
    combiner = _combiner(gate)
    first = Asker(combiner)
    gate.arrived.acquire()
    others = []
    for count in (1, 2):
        others.append(Asker(combiner))
        _queued(combiner, count)
    for job in combiner._queue:
        job.deadline = 0.0
    gate.may_answer.release()
    for asker in (first, *others):
        asker.thread.join()
    assert [asker.was_sent for asker in others] == [False, False]
    assert gate.sent == [1]
