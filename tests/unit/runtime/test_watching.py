"""A process that nobody asks finds out by itself that the store is back."""

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
from headgate.runtime import store_watch
from headgate.runtime.fallback import Asked, Fallback
from headgate.runtime.store_watch import Watch, Watchers
from headgate.stores import Check, Take
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from tests.support.failing_fallback import FailingStore, later
from tests.support.servers import wait_until
from tests.unit.runtime.test_background import FailingAsyncStore

if TYPE_CHECKING:
    from collections.abc import Iterator

TEN = FixedWindow(10, 3_600)
GONE = StoreError("gone", reason="circuit_open")
CLOSED = StoreError("closed", reason="closed")
ASKED = Asked((Check("g", "k", TEN),), OnFailure())
BEGIN = Watch.begin  # before unit tests go without it


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As it is in life, but without the waiting."""
    monkeypatch.setattr(Watch, "begin", BEGIN)
    monkeypatch.setattr(store_watch, "SHORTEST", 0.0)
    monkeypatch.setattr(store_watch, "LONGEST", 0.001)
    watchers = Watchers()
    monkeypatch.setattr(store_watch, "_WATCHERS", watchers)
    yield
    wait_until(lambda: watchers._thread is None, "nobody looks any more")


class Looks:
    """What a fallback would ask, without anybody who does."""

    def __init__(self) -> None:
        self.store = FailingStore()
        self.fallback = Fallback(self.store, self.store.clock)
        self.merger = later(self.fallback, self.store)

    def fail(self, error: StoreError = GONE) -> None:
        self.fallback.decide([ASKED], error)


def test_it_looks_only_if_nobody_has_asked_since_it_looked() -> None:
    one = Looks()
    one.fail()
    assert one.fallback.needs_watch
    assert one.fallback.next_look() is None
    assert one.fallback.next_look() == Take(ASKED.checks, consume=False)
    one.fail()
    assert one.fallback.next_look() is None
    one.fallback.succeed()
    assert one.fallback.next_look() is None
    assert one.fallback.next_look() is not None


def test_there_is_no_need_when_the_store_is_back_and_knows_all() -> None:
    one = Looks()
    one.fail()
    one.store.clock.advance(2)
    one.fallback.succeed()
    assert one.fallback.needs_watch  # it does not know yet
    one.merger.finish()
    assert not one.fallback.needs_watch
    assert one.store.inner.used_in("g", "k") == 1


def test_what_a_broken_off_merge_left_is_told_later() -> None:
    one = Looks()
    one.fail()
    one.store.clock.advance(2)
    one.fallback.succeed()
    one.store.fault = "circuit_open"
    one.merger.finish()
    one.store.fault = None
    assert one.fallback.needs_watch
    assert one.fallback.next_look() is None  # there is something to tell, which is a look too
    one.merger.finish()
    assert one.store.inner.used_in("g", "k") == 1


def test_a_store_that_was_closed_is_left_alone() -> None:
    one = Looks()
    one.fail(CLOSED)
    assert not one.fallback.needs_watch
    other = Looks()
    other.fail()
    other.fallback.close()
    assert not other.fallback.needs_watch


@pytest.mark.usefixtures("_watched")
@pytest.mark.parametrize("is_guarded", [True, False])
def test_an_outage_ends_without_a_call(
    monkeypatch: pytest.MonkeyPatch, *, is_guarded: bool
) -> None:
    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 0.0)
    inner = FailingStore()
    guarded = CircuitBreakerStore(inner, time_ns=inner.clock)
    store = guarded if is_guarded else inner
    fallback = Fallback(store, inner.clock)
    if is_guarded:
        fallback.listen(guarded.health)
    inner.fault = "unreachable"
    for _ in range(5):
        with pytest.raises(StoreError) as failure:
            store.run(Take(ASKED.checks))
        fallback.decide([ASKED], failure.value)
    fallback.decide([ASKED], GONE)
    inner.fault = None

    def is_over() -> bool:
        inner.clock.advance(1)
        return not fallback.needs_watch

    wait_until(is_over, "the outage is over and told")
    assert not fallback.is_out
    assert guarded.health.state == "closed"
    assert inner.inner.used_in("g", "k") > 0


@pytest.mark.usefixtures("_watched")
def test_an_outage_ends_without_a_call_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.runtime.reconciliation.LONGEST_START", 0.0)
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)

    async def story() -> None:
        fallback.decide([ASKED], GONE)
        async with asyncio.timeout(10):
            while fallback.needs_watch:
                store.clock.advance(1)
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # what has just begun ends

    asyncio.run(story())
    assert store.sync.inner.used_in("g", "k") == 1


@pytest.mark.usefixtures("_watched")
def test_a_loop_that_ends_leaves_no_trace_and_the_next_one_watches_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)

    async def fail() -> None:
        fallback.decide([ASKED], GONE)

    with monkeypatch.context() as late:  # than the end, at which it might begin and never go on
        late.setattr(store_watch, "SHORTEST", 3_600.0)
        late.setattr(store_watch, "LONGEST", 3_600.0)
        asyncio.run(fail())
    fallback.next_look()

    async def fail_and_wait() -> None:
        fallback.decide([ASKED], GONE)
        calls = store.sync.calls
        async with asyncio.timeout(10):
            while store.sync.calls == calls:  # noqa: ASYNC110 - there is nothing else to wait for
                await asyncio.sleep(0.001)
        fallback.close()  # nobody looks any more
        await asyncio.sleep(0.01)

    asyncio.run(fail_and_wait())


@pytest.mark.usefixtures("_watched")
def test_a_store_that_nobody_has_any_more_is_not_kept() -> None:
    store = FailingStore()
    store.fault = "unreachable"
    fallback = Fallback(store, store.clock)
    fallback.decide([ASKED], GONE)
    gone = weakref.ref(store)
    del store, fallback

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    wait_until(is_gone, "the store is collected")


@pytest.mark.usefixtures("_watched")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_store_that_raises_what_it_must_not_is_looked_at_again_later() -> None:
    class Odd(FailingStore):
        is_odd = True

        def run(self, operation: Any) -> Any:
            if self.is_odd:
                raise ZeroDivisionError
            return super().run(operation)

    store = Odd()
    fallback = Fallback(store, store.clock)
    fallback.decide([ASKED], GONE)
    watch = fallback._watch
    thread = store_watch._WATCHERS._thread
    assert thread is not None
    thread.join(10)
    assert not thread.is_alive()
    store.is_odd = False
    store.clock.advance(2)
    fallback.fail(GONE)
    assert watch.is_on
    fallback.close()


def test_threads_that_come_at_once_have_one_thread_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "begin", BEGIN)
    monkeypatch.setattr(store_watch, "SHORTEST", 10.0)
    monkeypatch.setattr(store_watch, "LONGEST", 10.0)
    watchers = Watchers()
    monkeypatch.setattr(store_watch, "_WATCHERS", watchers)
    all_at_once = [Looks() for _ in range(50)]
    before = threading.active_count()
    for one in all_at_once:
        one.fail()
    assert threading.active_count() == before + 1


def test_a_forked_process_knows_nothing_of_the_outage() -> None:
    one = Looks()
    one.fail()
    one.fallback.after_fork()
    assert not one.fallback.is_out
    assert one.fallback.out_for_ns is None
    assert not one.fallback.needs_watch


def test_a_late_failure_does_not_open_a_closed_store_again_but_a_success_does() -> None:
    one = Looks()
    one.fail()
    one.fallback.close()
    one.fail()
    assert not one.fallback.needs_watch
    one.fallback.succeed()
    one.fail()
    assert one.fallback.needs_watch
