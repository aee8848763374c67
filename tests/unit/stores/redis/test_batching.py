"""Threads that ask at the same time, without a server."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from headgate.errors import StoreError
from headgate.limits import FixedWindow, TokenBucket
from headgate.runtime.drivers import adrive
from headgate.stores.operations import Check, Reset, Take
from headgate.stores.redis.batching import (
    Batch,
    PendingResult,
    PreparedHit,
    PreparedStack,
    TakeEffect,
    ThreadBatcher,
)
from headgate.stores.redis.naming import Names
from headgate.stores.redis.store import RedisStore
from headgate.stores.redis.transport import Transport
from tests.support.servers import free_port, release_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.server_urls import Address
    from headgate.stores.redis.requests import Request


class Gate(Transport):
    """A server that answers when it is let."""

    is_cluster = False

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.deadlines: list[float | None] = []
        self.arrived = threading.Semaphore(0)
        self.may_answer = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.connecting = 0.0

    def perform(
        self,
        requests: Sequence[Request],
        deadline: float | None = None,
        *,
        at: Address | None = None,
    ) -> None:
        self.sent.append(len(requests))
        self.deadlines.append(deadline)
        self.arrived.release()
        self.may_answer.acquire()
        if self.error is not None:
            raise self.error
        for request in requests:
            request.answered(1)

    def connecting_until(self, key: bytes) -> float:
        return self.connecting

    def close(self) -> None:
        pass


class Asker:
    """A thread that asks once."""

    def __init__(self, batcher: ThreadBatcher) -> None:
        self.answer = PendingResult()
        self.error: BaseException | None = None
        self.was_sent: bool | None = None
        self._batcher = batcher
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self) -> None:
        reset = Reset((Check("g", "k", FixedWindow(1, 1)),))
        try:
            self.was_sent = self._batcher.perform(lambda batch: batch.operation(reset, self.answer))
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            self.error = error


def _batcher(gate: Gate, connections: int = 1) -> ThreadBatcher:
    return ThreadBatcher(gate, lambda: Batch(Names(has_tags=False), lambda: b""), connections, 30)


def _queued(batcher: ThreadBatcher, number: int) -> None:
    while len(batcher._queue) < number:
        pass


def test_who_finds_a_connection_free_waits_for_nobody() -> None:
    gate = Gate()
    gate.may_answer.release()
    asker = Asker(_batcher(gate))
    asker.thread.join()
    assert asker.answer.done()
    assert asker.was_sent
    assert gate.sent == [1]


def test_those_who_come_meanwhile_are_asked_for_together() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    askers = [Asker(batcher)]
    gate.arrived.acquire()
    askers += [Asker(batcher) for _ in range(7)]
    _queued(batcher, 7)
    gate.may_answer.release(2)
    for asker in askers:
        asker.thread.join()
    assert gate.sent == [1, 7]
    assert all(asker.answer.done() for asker in askers)


def test_there_are_as_many_under_way_as_there_are_connections() -> None:
    gate = Gate()
    batcher = _batcher(gate, connections=2)
    askers = [Asker(batcher) for _ in range(2)]
    gate.arrived.acquire()
    gate.arrived.acquire()
    askers += [Asker(batcher) for _ in range(3)]
    _queued(batcher, 3)
    gate.may_answer.release(3)
    for asker in askers:
        asker.thread.join()
    assert gate.sent == [1, 1, 3]


def test_a_leader_that_breaks_hands_its_connection_on() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    second = Asker(batcher)
    _queued(batcher, 1)
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
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    batcher._timeout = 0.05  # that of those who come later
    second = Asker(batcher)
    second.thread.join()
    assert not second.answer.done()
    gate.may_answer.release()
    first.thread.join()
    assert gate.sent == [1]
    assert len(batcher._queue) == 0


def test_the_last_that_queued_up_leads_until_its_own_time_is_up() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    askers = [Asker(batcher)]
    gate.arrived.acquire()
    for number in range(1, 4):
        askers.append(Asker(batcher))
        _queued(batcher, number)
    last = batcher._queue[-1].deadline
    gate.may_answer.release(2)
    for asker in askers:
        asker.thread.join()
    assert gate.deadlines[1] == last


def test_who_is_under_way_leaves_all_the_same_when_its_time_is_up() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    batcher._timeout = 1.0  # that of those who come later
    hasty = Asker(batcher)
    _queued(batcher, 1)
    patient = Asker(batcher)
    _queued(batcher, 2)
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
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    late = Asker(batcher)
    _queued(batcher, 1)
    batcher._queue[0].deadline = 0.0
    gate.may_answer.release()
    first.thread.join()
    late.thread.join()
    assert gate.sent == [1]
    assert not late.answer.done()
    gate.may_answer.release()
    after = Asker(batcher)
    after.thread.join()
    assert after.answer.done()


def test_an_answer_is_a_result_or_an_error() -> None:
    good, bad = PendingResult(), PendingResult()
    good.set_result(5)
    bad.set_exception(StoreError("gone"))
    assert (good.result(), good.outcome()) == (5, 5)
    assert isinstance(bad.outcome(), StoreError)


def test_who_has_waited_in_vain_knows_that_nothing_was_sent() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    batcher._timeout = 0.01  # that of those who come later
    second = Asker(batcher)
    second.thread.join()
    gate.may_answer.release()
    first.thread.join()
    assert first.was_sent
    assert second.was_sent is False
    assert not second.answer.done()
    assert gate.sent == [1]


def test_who_is_made_to_lead_too_late_sends_nothing_for_anybody() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    others = []
    for count in (1, 2):
        others.append(Asker(batcher))
        _queued(batcher, count)
    for job in batcher._queue:
        job.deadline = 0.0
    gate.may_answer.release()
    for asker in (first, *others):
        asker.thread.join()
    assert [asker.was_sent for asker in others] == [False, False]
    assert gate.sent == [1]


def test_time_that_those_ahead_need_to_connect_is_not_that_of_the_next() -> None:
    gate = Gate()
    batcher = _batcher(gate)
    first = Asker(batcher)
    gate.arrived.acquire()
    batcher._timeout = 0.01  # that of those who come later
    gate.connecting = time.monotonic() + 30
    second = Asker(batcher)
    _queued(batcher, 1)
    while batcher._queue[0].deadline < gate.connecting:
        pass  # its own time is up, and it waits on
    gate.may_answer.release(2)
    for asker in (first, second):
        asker.thread.join()
    assert second.was_sent
    assert second.answer.done()


def test_what_concerns_one_key_is_sent_in_its_order() -> None:
    names = Names(has_tags=False)
    batch = Batch(names, lambda: b"")
    check = Check("g", "k", FixedWindow(1, 1))
    hit = PreparedHit(RedisStore("redis://127.0.0.1"), [("g", TokenBucket(1, 1))], names)
    for add in ("take", "take", "reset", "take", "hit", "hit", "take", "hit", "reset", "hit"):
        if add == "hit":
            hit.add_to(batch, (names.counter("g", "k"),), (1,), PendingResult())
        else:
            operation = Take((check,)) if add == "take" else Reset((check,))
            batch.operation(operation, PendingResult())
    kinds = [type(request).__name__ for request in batch.drain()]
    assert kinds == [
        "TakeBatch",
        "ScriptRequest",
        "TakeBatch",
        "HitBatch",
        "TakeBatch",
        "HitBatch",
        "ScriptRequest",
        "HitBatch",
    ]


def test_a_limit_of_more_ticks_than_doubles_count_is_taken_by_the_general_script() -> None:
    store = RedisStore("redis://127.0.0.1")
    # 2^53 is 9.007e15.
    for seconds, expected in ((9_000, PreparedHit), (9_010, PreparedStack)):
        limit = TokenBucket(10**6, Fraction(11, seconds))
        effect = store.prepare([("g", limit)]).effect
        assert effect is not None
        take = effect(["k"], [1])
        assert isinstance(take, TakeEffect)
        assert type(take.prepared) is expected


def test_takes_that_fail_leave_no_cycles_to_the_collector() -> None:
    port = free_port()
    store = RedisStore(f"redis://127.0.0.1:{port}")
    effects = store.prepare([("g", TokenBucket(1, 1))]).effects

    async def fail() -> None:
        for _ in range(5):
            with pytest.raises(StoreError):
                await adrive(effects(["k"], [1]))
        await store.aclose()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(fail())
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [type(one) for one in gc.garbage if isinstance(one, TakeEffect | StoreError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        release_port(port)
    assert left == []
