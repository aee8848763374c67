"""Layers pass published values on to the store; a region keeps them to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headgate.stores import MemoryStore, Store
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.operations import Operation, PublishValue
from headgate.units import SECOND
from tests.support.lease_store import LeaseGrantingStore
from tests.support.store_calls import DRIVERS, Calls

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE = PublishValue("group", "key", "me", 0.5, 2, 60 * SECOND)
LOOK = PublishValue("group", "key", "other", 0.5, 0, 60 * SECOND)
PUBLISHED = (("me", 0.5, 2),)


PEER = LeaseGrantingStore()


def regional(store: Store) -> ReplicatedStore:
    return ReplicatedStore(store, region="eu", peers={"us": PEER})


class Lone(Store):
    """A store that does not publish values."""

    grants_leases = True

    def run(self, operation: Operation[Any]) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("layer", [CircuitBreakerStore, LeasedStore, regional])
def test_layers_pass_published_values_on(layer: Callable[[Store], Store], driver: str) -> None:
    calls = Calls(driver)
    inner = MemoryStore()
    store = layer(inner)
    assert store.publishes_values
    assert calls.run(store, VALUE) == inner.run(VALUE) == PUBLISHED
    assert not layer(Lone()).publishes_values
    assert PEER.run(LOOK) == (), "other regions get none of it"
    calls.close(store)
    calls.end()


def test_what_has_lapsed_is_swept_from_memory() -> None:
    now = [0]
    store = MemoryStore(clock=lambda: now[0], max_keys=2)
    for group in ("a", "b", "c"):
        store.run(PublishValue(group, "key", "me", 0.5, 2, SECOND))
    assert len(store) == 3, "the third has a shared counter"
    now[0] = 3600 * SECOND
    for _ in range(10):
        store.run(PublishValue("d", "key", "me", 0.5, 2, SECOND))
    assert store.run(PublishValue("d", "key", "other", 0.5, 0, SECOND)) == (("me", 0.5, 2),)
