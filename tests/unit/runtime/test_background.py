"""Merging in the background: a thread, or a task of a loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from headgate.decision import OnFailure
from headgate.errors import StoreError
from headgate.limits import FixedWindow
from headgate.runtime.fallback import Asked, Fallback
from headgate.runtime.reconciliation import Merger
from headgate.stores import Check, Operation
from tests.support.async_stores import LoopStore
from tests.support.failing_fallback import FailingStore

if TYPE_CHECKING:
    from headgate.testing import ManualClock

TEN = FixedWindow(10, 3_600)
GONE = StoreError("gone", reason="circuit_open")


class FailingAsyncStore(LoopStore):
    """A failing store for an event loop, suspended before it answers."""

    def __init__(self) -> None:
        self.sync = FailingStore()
        self.clock: ManualClock = self.sync.clock

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self.sync.run(operation)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 0.0)
    monkeypatch.setattr("headgate.runtime.reconciliation.PAUSE", 0.0)


def admit(fallback: Fallback, count: int = 120) -> None:
    for n in range(count):
        asked = Asked((Check("g", f"k{n}", TEN),), OnFailure())
        assert fallback.decide([asked], GONE)[0].allowed


def used(store: FailingStore, count: int = 120) -> int:
    return sum(store.inner.used_in("g", f"k{n}") for n in range(count))


def thread_of(fallback: Fallback) -> threading.Thread:
    thread = fallback._merger._thread
    assert thread is not None
    return thread


def test_a_store_that_blocks_is_told_by_a_thread_that_keeps_no_process_alive() -> None:
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    admit(fallback)
    store.clock.advance(2)
    fallback.succeed()
    thread = thread_of(fallback)
    assert thread.daemon
    thread.join(10)
    assert used(store) == 120
    assert not fallback._merger.is_busy


def test_a_thread_ends_when_the_store_goes_and_another_goes_on() -> None:
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    admit(fallback)
    store.fault = "circuit_open"
    store.clock.advance(2)
    fallback.succeed()
    first = thread_of(fallback)
    first.join(10)
    assert not first.is_alive()
    store.fault = None
    fallback.succeed()
    thread_of(fallback).join(10)
    assert used(store) == 120


def test_who_closes_ends_the_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 10**6)
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    admit(fallback)
    store.clock.advance(2)
    fallback.succeed()
    thread = thread_of(fallback)
    fallback.close()
    thread.join(10)
    assert not thread.is_alive()
    assert used(store) == 0


def test_a_store_that_nobody_has_any_more_is_not_kept_by_the_merge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 10**6)
    store = FailingStore()
    fallback = Fallback(store, store.clock)
    admit(fallback)
    store.clock.advance(2)
    fallback.succeed()
    merger, gone = fallback._merger, weakref.ref(store)
    del store, fallback
    gc.collect()
    assert gone() is None
    merger.stop()


def test_a_store_for_loops_is_told_by_a_task() -> None:
    async def story() -> int:
        store = FailingAsyncStore()
        fallback = Fallback(store, store.clock)
        admit(fallback)
        store.clock.advance(2)
        fallback.succeed()
        task = fallback._merger._task
        assert task is not None
        await task
        return used(store.sync)

    assert asyncio.run(story()) == 120


def test_a_loop_that_ends_leaves_the_rest_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)
    admit(fallback)
    store.clock.advance(2)

    async def hear() -> None:
        fallback.succeed()

    async def hear_and_wait() -> None:
        fallback.succeed()
        assert fallback._merger._task is not None
        await fallback._merger._task

    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 10**6)
    asyncio.run(hear())
    assert used(store.sync) == 0
    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 0.0)
    asyncio.run(hear_and_wait())
    assert used(store.sync) == 120


def test_one_merge_at_a_time() -> None:
    store = FailingStore()
    merger = Merger(store)
    begun, going_on = [], threading.Event()

    def steps() -> Any:
        begun.append(1)
        going_on.wait(10)
        yield 0.0

    merger.start(steps)
    merger.start(steps)
    going_on.set()
    assert merger._thread is not None
    merger._thread.join(10)
    assert begun == [1]
