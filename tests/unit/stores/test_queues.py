"""Queues behind layers: a place in a queue comes from the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.errors import UsageError
from headgate.limits import Accuracy, Concurrency, LeakyQueue, TokenBucket
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.memory import MemoryStore
from headgate.stores.operations import CancelQueued, Check, GrantLease, MergeUsage, Take, TakeEach
from headgate.testing import ManualClock
from headgate.units import HOUR, MILLISECOND, SECOND
from tests.support.lease_store import LeaseGrantingStore
from tests.support.region_fakes import Peer
from tests.support.store_calls import DRIVERS, Calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores import Store
    from headgate.stores.operations import Operation

QUEUE = LeakyQueue(rate=10, queue=5)
BATCHES = Accuracy(batch=5)
CHECK = Check("queue", "key", QUEUE)
BUCKET = Check("bucket", "key", TokenBucket(100, 1))


class Listening(MemoryStore):
    """A memory store that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(clock=ManualClock(1_000))
        self.asked: list[Operation[Any]] = []

    def run(self, operation: Operation[Any]) -> Any:
        self.asked.append(operation)
        return super().run(operation)


def leased(inner: Store) -> LeasedStore:
    store = LeasedStore(inner, keeps=False)
    store.set_accuracies({"queue": BATCHES, "bucket": BATCHES})
    return store


LAYERS: dict[str, Callable[[Store], Store]] = {
    "leases": leased,
    "breaker": CircuitBreakerStore,
    "replication": lambda inner: ReplicatedStore(
        inner, region="eu", peers={"us": Peer()}, every_ns=HOUR
    ),
}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("layer", LAYERS)
def test_places_in_queues_pass_through_layers(layer: str, driver: str) -> None:
    calls = Calls(driver)
    store = LAYERS[layer](Listening())
    delays = [calls.run(store, Take((CHECK,)))[0].delay_ns // MILLISECOND for _ in range(3)]
    assert delays == [0, 100, 200]
    both = calls.run(store, Take((BUCKET, CHECK)))
    assert [one.delay_ns // MILLISECOND for one in both] == [0, 300]
    each = calls.run(store, TakeEach((Take((CHECK,)), Take((BUCKET,)))))
    assert [one[0].delay_ns // MILLISECOND for one in each if isinstance(one, tuple)] == [400, 0]
    assert calls.run(store, CancelQueued((CHECK,), (both[1].place_ns,)))
    assert calls.run(store, Take((CHECK,)))[0].place_ns == both[1].place_ns
    calls.close(store)
    calls.end()


def test_no_places_are_leased() -> None:
    inner = Listening()
    store = leased(inner)
    for _ in range(9):
        store.run(Take((CHECK,)))
    assert not [one for one in inner.asked if isinstance(one, GrantLease)]


def test_a_denial_of_a_queue_is_not_remembered_as_a_caller_may_give_up() -> None:
    store = leased(Listening())
    turns = [store.run(Take((CHECK,)))[0].place_ns for _ in range(7)]
    assert turns[6] == 0
    assert store.run(CancelQueued((CHECK,), (turns[5],)))
    assert store.run(Take((CHECK,)))[0].place_ns == turns[5]


def test_places_in_queues_are_not_reported_to_other_regions() -> None:
    peer = Peer()
    store = ReplicatedStore(Listening(), region="eu", peers={"us": peer}, every_ns=HOUR)
    store.run(Take((CHECK, BUCKET)))
    store.exchange()
    assert peer.totals == {"key": 1}
    store.close()


@pytest.mark.parametrize("limit", [QUEUE, Concurrency(3, 10)])
def test_what_cannot_be_divided_is_not_leased_nor_merged(
    limit: LeakyQueue | Concurrency,
) -> None:
    check = Check("g", "key", limit)
    operations: tuple[Operation[Any], ...] = (
        GrantLease(check, "a", 1, SECOND),
        MergeUsage((check,), "eu", 1, SECOND),
    )
    for operation in operations:
        with pytest.raises(UsageError, match="its slots or places come from the store"):
            LeaseGrantingStore().run(operation)


def test_a_patience_for_each_call_makes_no_counter_for_each() -> None:
    store = MemoryStore(clock=ManualClock(1_000))
    long = LeakyQueue(10, 1_000)
    for n in range(500):
        hasty = LeakyQueue(10, 1_000, max_wait=60 + n / 1_000)
        assert store.run(Take((Check("g", "key", hasty),)))[0].allowed
    assert len(store) == 1
    (outcome,) = store.run(Take((Check("g", "key", long),)))
    assert outcome.delay_ns == 50 * SECOND
