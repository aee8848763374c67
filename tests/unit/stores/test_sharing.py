"""Stores before a store pass on what is told; a region keeps it to itself."""

import asyncio

import pytest

from headgate.stores import MemoryStore, Operation, Store
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.circuit_breaker.guard import keys_of
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.operations import PublishValue
from headgate.units import SECOND

SHARE = PublishValue("group", "key", "me", 0.5, 2, 60 * SECOND)
HEARD = (("me", 0.5, 2),)


def regional(store: Store) -> ReplicatedStore:
    return ReplicatedStore(store, region="eu", peers={"us": PEER})


def async_regional(store: Store) -> ReplicatedStore:
    return ReplicatedStore(store, region="eu", peers={"us": PEER})


PEER = MemoryStore()


class Lone(Store):
    """A store that does not know it."""

    grants_leases = True

    def run(self, operation: Operation) -> object:  # type: ignore[type-arg, override]  # whatever
        raise NotImplementedError


@pytest.mark.parametrize("wrapped", [CircuitBreakerStore, LeasedStore, regional])
def test_stores_before_a_store_pass_it_on(
    wrapped: type[CircuitBreakerStore] | type[LeasedStore],
) -> None:
    inner = MemoryStore()
    store = wrapped(inner)
    assert store.shares
    assert store.run(SHARE) == inner.run(SHARE) == HEARD
    assert not wrapped(Lone()).shares
    assert PEER.beside() == 0, "other regions hear nothing of it"
    store.close()


@pytest.mark.parametrize("wrapped", [CircuitBreakerStore, LeasedStore, async_regional])
def test_async_ones_do_too(
    wrapped: type[CircuitBreakerStore] | type[LeasedStore],
) -> None:
    async def main() -> None:
        inner = MemoryStore()
        store = wrapped(inner)
        assert store.shares
        assert await store.arun(SHARE) == await inner.arun(SHARE) == HEARD
        assert PEER.beside() == 0
        await store.aclose()

    asyncio.run(main())


def test_a_guard_knows_which_part_of_the_store_it_is_for() -> None:
    assert list(keys_of(SHARE)) == ["key"]


def test_what_has_lapsed_is_swept_from_memory() -> None:
    now = [0]
    store = MemoryStore(clock=lambda: now[0], max_keys=2)
    for group in ("a", "b", "c"):
        store.run(PublishValue(group, "key", "me", 0.5, 2, SECOND))
    assert store.beside() == 2, "no more than there is room for"
    now[0] = 3600 * SECOND
    for _ in range(10):
        store.run(PublishValue("d", "key", "me", 0.5, 2, SECOND))
    assert store.run(PublishValue("d", "key", "other", 0.5, 0, SECOND)) == (("me", 0.5, 2),)
