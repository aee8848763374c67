"""Recovery from an outage in the background: peeks at the store, then reports of the usage."""

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
from headgate.runtime import drivers
from headgate.runtime import fallback as module
from headgate.runtime.background import BackgroundWork
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.fallback import Fallback
from headgate.runtime.local_share import RuleChecks
from headgate.stores.base import conclude
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.operations import Check, Operation, Take
from headgate.units import SECOND
from tests.support.async_stores import LoopStore
from tests.support.failing_fallback import FailingStore, reconcile
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from headgate.testing import ManualClock

TEN = FixedWindow(10, 3_600)
GONE = StoreError("gone", reason="circuit_open")
CLOSED = StoreError("closed", reason="closed")
RULE = RuleChecks((Check("g", "k", TEN),), OnFailure())
START = BackgroundWork.start  # which other unit tests go without
NEVER = (1e6, 1e6)


class FailingAsyncStore(LoopStore):
    """A failing store for an event loop, suspended before it replies."""

    def __init__(self) -> None:
        self.sync = FailingStore()
        self.clock: ManualClock = self.sync.clock

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        return self.sync.run(operation)


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Recover in the background, without the pauses."""
    monkeypatch.setattr(BackgroundWork, "start", START)
    monkeypatch.setattr(module, "PEEK_PAUSE", (0.0, 0.001))
    monkeypatch.setattr(module, "FIRST_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(module, "BATCH_PAUSE", (0.0, 0.0))
    return monkeypatch


def failing() -> tuple[Fallback, FailingStore]:
    store = FailingStore()
    return Fallback(store, store.clock), store


def fail(fallback: Fallback, error: StoreError = GONE) -> None:
    fallback.decide([RULE], error)


def use(fallback: Fallback, count: int = 120) -> None:
    """Use *count* keys while the store is gone."""
    for n in range(count):
        rule = RuleChecks((Check("g", f"k{n}", TEN),), OnFailure())
        assert fallback.decide([rule], GONE)[0].allowed


def used(store: FailingStore, count: int = 120) -> int:
    return sum(store.inner.used_in("g", f"k{n}") for n in range(count))


def ended(fallback: Fallback) -> bool:
    return not fallback._recovery.is_running


# ---- rounds, one by one ---------------------------------------------------------------------


def test_a_peek_is_made_only_if_no_call_was_made_since_the_last_one() -> None:
    fallback, _ = failing()
    fail(fallback)
    assert fallback.needs_recovery
    assert fallback.next_peek() is None
    assert fallback.next_peek() == Take(RULE.checks, consume=False)
    fail(fallback)
    assert fallback.next_peek() is None
    fallback.succeed()
    assert fallback.next_peek() is None
    assert fallback.next_peek() is not None


def test_recovery_ends_when_the_store_is_back_and_knows_all_usage() -> None:
    fallback, store = failing()
    fail(fallback)
    store.clock.advance(2)
    fallback.succeed()
    assert fallback.needs_recovery  # the usage is unreported
    reconcile(fallback)
    assert not fallback.needs_recovery
    assert fallback.next_round_ns() is None
    assert store.inner.used_in("g", "k") == 1


def test_usage_is_reported_later_if_the_store_fails_again() -> None:
    fallback, store = failing()
    fail(fallback)
    store.clock.advance(2)
    fallback.succeed()
    store.fault = "circuit_open"
    reconcile(fallback)
    store.fault = None
    assert fallback.needs_recovery
    reconcile(fallback)
    assert store.inner.used_in("g", "k") == 1


def test_pauses_are_random_and_the_first_report_waits_after_the_end_of_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fallback, store = failing()
    monkeypatch.setattr(module, "monotonic_ns", lambda: 0)

    def pauses() -> set[int]:
        drawn = set()
        for _ in range(50):
            stage = fallback._stage
            due_ns = fallback.next_round_ns()
            assert due_ns is not None
            drawn.add(due_ns)
            fallback._stage = stage
        return drawn

    fail(fallback)
    peeks = pauses()
    assert len(peeks) > 1
    assert SECOND <= min(peeks) <= max(peeks) <= 2 * SECOND
    store.clock.advance(2)
    fallback.succeed()
    first = pauses()
    assert len(first) > 1
    assert 0 <= min(first) <= max(first) <= SECOND
    fallback.next_round_ns()
    batches = pauses()
    assert len(batches) > 1
    assert 0.025 * SECOND <= min(batches) <= max(batches) <= 0.1 * SECOND


def test_a_counter_that_the_store_decides_on_again_is_reported_before_the_outage_ends() -> None:
    fallback, store = failing()
    fail(fallback)
    other = RuleChecks((Check("g", "other", TEN),), OnFailure())
    fallback.decide([other], GONE)
    (outcome,) = store.run(Take(RULE.checks))
    fallback.succeed([(RULE, conclude(RULE.checks, (outcome,)))])
    assert fallback.is_out, "a second has not passed"
    fallback.next_round_ns()
    drive(fallback.recover())
    assert store.inner.used_in("g", "k") == 2
    assert store.inner.used_in("g", "other") == 0, "its turn comes later"
    assert fallback.next_peek() is None


def test_a_round_that_the_end_of_an_outage_cuts_short_reports_nothing() -> None:
    fallback, store = failing()
    fail(fallback)
    fallback.next_round_ns()
    store.clock.advance(2)
    fallback.succeed()
    assert list(fallback.recover()) == []
    assert store.calls == 0


def test_a_store_that_was_closed_is_not_called() -> None:
    fallback, _ = failing()
    fail(fallback, CLOSED)
    assert not fallback.needs_recovery
    other, _ = failing()
    fail(other)
    drive(other.closing())
    assert not other.needs_recovery


def test_a_late_failure_does_not_open_a_closed_store_again_but_a_success_does() -> None:
    fallback, _ = failing()
    fail(fallback)
    drive(fallback.closing())
    fail(fallback)
    assert not fallback.needs_recovery
    fallback.succeed()
    fail(fallback)
    assert fallback.needs_recovery


def test_a_forked_process_has_no_outage_and_nothing_to_report() -> None:
    fallback, _ = failing()
    fail(fallback)
    fallback.after_fork()
    assert not fallback.is_out
    assert fallback.out_for_ns is None
    assert not fallback.needs_recovery


# ---- in the background ----------------------------------------------------------------------


@pytest.mark.usefixtures("in_background")
@pytest.mark.parametrize("is_guarded", [True, False])
def test_an_outage_ends_without_a_call(*, is_guarded: bool) -> None:
    inner = FailingStore()
    guarded = CircuitBreakerStore(inner, time_ns=inner.clock)
    store = guarded if is_guarded else inner
    fallback = Fallback(store, inner.clock)
    if is_guarded:
        fallback.follow(guarded.health)
    inner.fault = "unreachable"
    for _ in range(5):
        with pytest.raises(StoreError) as failure:
            store.run(Take(RULE.checks))
        fallback.decide([RULE], failure.value)
    fallback.decide([RULE], GONE)
    inner.fault = None

    def is_over() -> bool:
        inner.clock.advance(1)
        return not fallback.needs_recovery and ended(fallback)

    wait_until(is_over, "the outage is over and reported")
    assert not fallback.is_out
    assert guarded.health.state == "closed"
    assert inner.inner.used_in("g", "k") > 0


@pytest.mark.usefixtures("in_background")
def test_an_outage_ends_without_a_call_in_an_event_loop() -> None:
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)

    async def story() -> None:
        fallback.decide([RULE], GONE)
        async with asyncio.timeout(10):
            while fallback.needs_recovery or not ended(fallback):
                store.clock.advance(1)
                await asyncio.sleep(0.001)

    asyncio.run(story())
    assert store.sync.inner.used_in("g", "k") == 1


def test_usage_is_reported_by_one_thread_that_keeps_no_process_alive(
    in_background: pytest.MonkeyPatch,
) -> None:
    in_background.setattr(module, "PEEK_PAUSE", NEVER)
    fallback, store = failing()
    before = set(threading.enumerate())
    use(fallback)
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    store.clock.advance(2)
    fallback.succeed()
    thread.join(10)
    assert not thread.is_alive()
    assert used(store) == 120
    assert ended(fallback)


def test_close_ends_the_recovery(in_background: pytest.MonkeyPatch) -> None:
    in_background.setattr(module, "FIRST_PAUSE", NEVER)
    fallback, store = failing()
    use(fallback)
    store.clock.advance(2)
    fallback.succeed()
    assert not ended(fallback)
    drive(fallback.closing())
    wait_until(lambda: ended(fallback), "the recovery has ended")
    assert used(store) == 0


def test_closing_in_an_event_loop_waits_for_the_recovery(
    in_background: pytest.MonkeyPatch,
) -> None:
    in_background.setattr(module, "PEEK_PAUSE", NEVER)

    async def run() -> set[str]:
        store = FailingAsyncStore()
        fallback = Fallback(store, store.clock)
        fail(fallback)
        await asyncio.sleep(0)
        assert not ended(fallback)
        await adrive(fallback.closing())
        assert ended(fallback)
        await asyncio.sleep(0)
        return {task.get_name() for task in asyncio.all_tasks()}

    assert "headgate-recovery" not in asyncio.run(run())


def test_a_loop_that_is_closed_ends_the_recovery_quietly(
    in_background: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_background.setattr(module, "PEEK_PAUSE", NEVER)
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)

    async def run() -> None:
        fail(fallback)
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())
    loop.close()
    drivers._tasks.clear()
    gc.collect()
    assert ended(fallback)
    assert [one.message for one in caplog.records if one.name == "asyncio"] == []


def test_a_closed_loop_is_let_go_when_work_begins_in_another(
    in_background: pytest.MonkeyPatch,
) -> None:
    in_background.setattr(module, "PEEK_PAUSE", NEVER)
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)

    async def run() -> None:
        fail(fallback)
        await asyncio.sleep(0)

    first = asyncio.new_event_loop()
    first.run_until_complete(run())
    first.close()
    gone = weakref.ref(first)
    del first
    asyncio.run(run())
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("is_back", [True, False])
def test_the_recovery_does_not_keep_a_store_alive(
    in_background: pytest.MonkeyPatch, *, is_back: bool
) -> None:
    in_background.setattr(module, "PEEK_PAUSE", NEVER)
    in_background.setattr(module, "FIRST_PAUSE", NEVER)
    fallback, store = failing()
    use(fallback)
    if is_back:
        store.clock.advance(2)
        fallback.succeed()
    recovery, gone = fallback._recovery, weakref.ref(store)
    del store, fallback

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    wait_until(is_gone, "the store is collected")
    recovery.cut_pause()
    wait_until(lambda: not recovery.is_running, "the recovery has ended")


def test_a_loop_that_ends_leaves_the_rest_to_the_next_one(
    in_background: pytest.MonkeyPatch,
) -> None:
    store = FailingAsyncStore()
    fallback = Fallback(store, store.clock)
    in_background.setattr(module, "PEEK_PAUSE", NEVER)

    async def lose_the_store() -> None:
        use(fallback)

    async def wait() -> None:
        store.clock.advance(2)
        fallback.succeed()
        async with asyncio.timeout(10):
            while not ended(fallback):  # noqa: ASYNC110 (there is nothing else to wait for)
                await asyncio.sleep(0.001)

    asyncio.run(lose_the_store())
    assert used(store.sync) == 0
    assert ended(fallback)
    asyncio.run(wait())
    assert used(store.sync) == 120


def test_the_recovery_begins_again_after_a_store_raised_an_unknown_error(
    in_background: pytest.MonkeyPatch,
) -> None:
    raised: list[object] = []
    in_background.setattr(threading, "excepthook", lambda error: raised.append(error.exc_type))

    is_decided = threading.Event()

    class Odd(FailingStore):
        is_odd = True

        def run(self, operation: Any) -> Any:
            is_decided.wait(10)  # a recovery that ends during the decision would begin again
            if self.is_odd:
                raise ZeroDivisionError
            return super().run(operation)

    store = Odd()
    fallback = Fallback(store, store.clock)
    fallback.decide([RULE], GONE)
    is_decided.set()
    wait_until(lambda: raised == [ZeroDivisionError], "the recovery has failed")
    assert ended(fallback)
    store.is_odd = False
    store.clock.advance(2)
    fallback.fail(GONE)
    assert not ended(fallback)
    drive(fallback.closing())
    wait_until(lambda: ended(fallback), "the recovery has ended")
