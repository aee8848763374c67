"""Every store operation, interrupted at every `yield` in turn, through each layer and all of them.

The operation is carried out at most once, its reply reaches the generator that catches
`Interrupted`, no breaker keeps a ticket, reports go on, and later operations work.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import StoreError
from headgate.limits import Accuracy, Concurrency, LeakyQueue, TokenBucket
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Call, Effect, Interrupted
from headgate.stores.layers.circuit_breaker import BreakerOptions, CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.layers.replication.usage import usage_of
from headgate.stores.layers.split import SplitStore
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    GrantLease,
    Hold,
    MergeUsage,
    PublishValue,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
    TakeEach,
    TakeUpTo,
)
from headgate.units import MILLISECOND, SECOND
from tests.support.interruption import Recorder, interrupted_at
from tests.support.region_fakes import Peer
from tests.support.store_calls import Calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store
    from headgate.stores.operations import Operation

BUCKET = Check("g", "key", TokenBucket(1_000, 1), 2)
OTHER = Check("g", "other", TokenBucket(1_000, 1), 3)
SLOT = Check("slots", "key", Concurrency(5, 60))
QUEUE = Check("queue", "key", LeakyQueue(rate=10, queue=5))
LATER = Check("g", "later", TokenBucket(1_000, 1))

OPERATIONS: dict[str, Operation[Any]] = {
    "take": Take((BUCKET,)),
    "look": Take((BUCKET,), consume=False),
    "take several": Take((BUCKET, OTHER)),
    "take each": TakeEach((Take((BUCKET,)), Take((OTHER,)))),
    "take up to": TakeUpTo((BUCKET,)),
    "take slot": Take((SLOT,), lease="second"),
    "hold": Hold((BUCKET,), "new", SECOND),
    "settle": Settle((BUCKET,), "held", charge_lapsed=True),
    "charge": Charge((BUCKET,)),
    "refund": Refund((BUCKET,)),
    "reset": Reset((BUCKET,)),
    "renew slot": RenewSlot((SLOT,), "first"),
    "release slot": ReleaseSlot((SLOT,), "first"),
    "cancel queued": CancelQueued((QUEUE,), (1_000 * SECOND + 100 * MILLISECOND,)),
    "grant lease": GrantLease(BUCKET, "holder", 10, SECOND),
    "merge usage": MergeUsage((BUCKET,), "ap/1", 1, SECOND),
    "publish value": PublishValue("g", "key", "me", 0.5, 1, SECOND),
}


@pytest.fixture(autouse=True)
def _python_handles_ctrl_c() -> Iterator[None]:
    """Only under Python's own handler does the driver hold an interrupt back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Stack:
    """Layers of one kind in front of a `Recorder`, and their clock."""

    def __init__(self, layers: str, *, has_futures: bool) -> None:
        self.now_ns = SECOND
        self.recorder = Recorder(has_futures=has_futures)
        self.peers = (Peer(), Peer())
        self.breaker: CircuitBreakerStore | None = None
        self.store: Store = self.recorder
        if layers in ("replication", "all"):
            peers: dict[str, Store] = dict(zip(("us", "ap"), self.peers, strict=True))
            self.store = ReplicatedStore(self.store, region="eu", peers=peers, every_ns=MILLISECOND)
        if layers in ("breaker", "half-open", "all"):
            self.store = self.breaker = CircuitBreakerStore(
                self.store, options=BreakerOptions(failures=1), time_ns=lambda: self.now_ns
            )
        if layers in ("split", "all"):
            self.store = SplitStore(self.store)
            self.store.set_accuracies({"g": Accuracy(batch=4, split=2)})
        if layers in ("leases", "all"):
            self.store = LeasedStore(self.store, clock=self.recorder.inner.clock, keeps=False)
            self.store.set_accuracies({"g": Accuracy(batch=4, split=2 if layers == "all" else 1)})
        for operation in (
            Take((BUCKET,)),
            Take((SLOT,), lease="first"),
            Take((QUEUE,)),
            Take((QUEUE,)),
            Hold((OTHER,), "held", SECOND),
        ):
            self.recorder.inner.run(operation)
        if layers == "half-open":
            self.open()

    def open(self) -> None:
        """Open the circuit, and let the pause pass: the next call is the probe."""
        self.recorder.is_failing = True
        with pytest.raises(StoreError):
            self.store.run(Take((LATER,), consume=False))
        self.recorder.is_failing = False
        self.now_ns += 60 * SECOND

    def usage(self) -> dict[str, int]:
        """The usage by key that the other regions have to know."""
        totals: dict[str, int] = {}
        for operation, reply in self.recorder.done:
            for check, amount in usage_of(operation, reply):
                if check.limit.is_divisible:
                    totals[check.key] = max(totals.get(check.key, 0) + amount, 0)
        return {key: amount for key, amount in totals.items() if amount}

    @property
    def replicates(self) -> bool:
        return isinstance(self.store, ReplicatedStore) or (
            self.breaker is not None and isinstance(self.breaker.inner, ReplicatedStore)
        )


LAYERS = ("none", "breaker", "half-open", "replication", "split", "leases", "all")
KINDS = ("blocking", "coroutine", "future")


def use_case(store: Store, operation: Operation[Any], seen: list[Interrupted]) -> Effects[Any]:
    """Carry out *operation*, and keep the interruption."""
    try:
        return (yield from store.effects(operation))
    except Interrupted as interrupted:
        seen.append(interrupted)
        raise


class Case:
    """One operation on a new stack, interrupted at one place."""

    def __init__(self, kind: str, layers: str, operation: Operation[Any], when: str) -> None:
        self.calls = Calls("blocking" if kind == "blocking" else "async")
        self.stack = Stack(layers, has_futures=kind == "future")
        self.operation = operation
        self.seen: list[Interrupted] = []
        self.steps: list[Effect] = []
        self._when = when

    def run(self, place: int | None) -> Any:
        effects = interrupted_at(
            use_case(self.stack.store, self.operation, self.seen),
            place,
            self.stack.recorder,
            self._when,
            self.steps,
        )
        if self.calls.runner is None:
            return drive(effects)
        return self.calls.runner.run(adrive(effects))

    def check(self) -> None:
        """Check what an interruption has left behind."""
        done = [reply for one, reply in self.stack.recorder.done if one == self.operation]
        assert len(done) <= 1
        (interrupted,) = self.seen
        if done:
            assert interrupted.is_known
            assert interrupted.error is None
            if not isinstance(self.operation, Take | TakeEach):
                assert interrupted.reply == done[0]
        elif self._when == "during":
            assert interrupted.is_known
        self._check_later()

    def _check_later(self) -> None:
        stack = self.stack
        if stack.breaker is not None:
            stack.now_ns += SECOND // 2
            assert stack.breaker.health.state != "open"
        for _ in range(2):
            assert self.calls.run(stack.store, Take((LATER,)))[0].allowed
        if stack.replicates:
            expected = stack.usage()
            for peer in stack.peers:
                while peer.totals != expected:
                    peer.has_merged.clear()
                    if peer.totals != expected:
                        self.calls.wait_for(peer.has_merged, 10)

    def close(self) -> None:
        self.calls.close(self.stack.store)
        self.calls.end()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("when", ["before", "during"])
def test_an_operation_that_is_interrupted_is_known_to_its_caller(
    kind: str, layers: str, name: str, when: str
) -> None:
    whole = Case(kind, layers, OPERATIONS[name], when)
    whole.run(None)
    whole.close()
    raised = KeyboardInterrupt if kind == "blocking" else asyncio.CancelledError
    for place in range(len(whole.steps)):
        case = Case(kind, layers, OPERATIONS[name], when)
        with pytest.raises(raised):
            case.run(place)
        case.check()
        case.close()


# ---- the drivers themselves -------------------------------------------------------------------


def undoing(store: Store, done: list[str]) -> Effects[None]:
    """Take, and refund if interrupted."""
    try:
        yield from store.effects(Take((BUCKET,)))
    except Interrupted as interrupted:
        if interrupted.is_known:
            yield from store.effects(Refund((BUCKET,)))
            done.append("refunded")
        raise


def test_a_second_cancellation_changes_nothing() -> None:
    async def main() -> None:
        recorder, done = Recorder(has_futures=False), list[str]()
        task = asyncio.ensure_future(adrive(undoing(recorder, done)))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["refunded"]
        assert recorder.inner.used_in("g", "key") == 0

    asyncio.run(main())


def test_an_interrupt_in_a_call_of_the_app_waits_for_its_operation() -> None:
    recorder, done = Recorder(has_futures=False), list[str]()

    def view() -> None:
        recorder.interrupt = lambda: signal.raise_signal(signal.SIGINT)
        drive(undoing(recorder, done))

    def serving() -> Effects[None]:
        yield from recorder.effects(Take((OTHER,)))
        yield Call(view)

    with pytest.raises(KeyboardInterrupt):
        drive(serving())
    assert done == ["refunded"]
    assert recorder.inner.used_in("g", "key") == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_changes_nothing() -> None:
    recorder, done = Recorder(has_futures=False), list[str]()

    def interrupt_twice() -> None:
        signal.raise_signal(signal.SIGINT)
        recorder.interrupt = lambda: signal.raise_signal(signal.SIGINT)

    recorder.interrupt = interrupt_twice
    with pytest.raises(KeyboardInterrupt):
        drive(undoing(recorder, done))
    assert done == ["refunded"]
    assert recorder.inner.used_in("g", "key") == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_while_undoing_does_not_hide_the_cancellation() -> None:
    async def main() -> None:
        recorder = Recorder(has_futures=False)

        def failing() -> Effects[None]:
            try:
                yield from recorder.effects(Take((BUCKET,)))
            except Interrupted:
                recorder.is_failing = True
                yield from recorder.effects(Refund((BUCKET,)))

        task = asyncio.ensure_future(adrive(failing()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("has_futures", [False, True])
def test_closing_waits_for_a_cancelled_caller_that_undoes_its_charge(*, has_futures: bool) -> None:
    class Closing(Recorder):
        is_closed = False

        def run(self, operation: Operation[Any]) -> Any:
            assert not self.is_closed
            return super().run(operation)

        async def aclose(self) -> None:
            self.is_closed = True

    async def main() -> None:
        recorder, done = Closing(has_futures=has_futures), list[str]()
        store = CircuitBreakerStore(recorder)
        task = asyncio.ensure_future(adrive(undoing(store, done)))
        await asyncio.sleep(0)
        task.cancel()
        await store.aclose()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == ["refunded"]

    asyncio.run(main())
