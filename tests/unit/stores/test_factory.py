"""The layers between a limiter and its store: one stack for all users of the store."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from headgate import AsyncRateLimiter, RateLimiter, StoreURLError
from headgate.engine.request import Request
from headgate.limits import Accuracy, TokenBucket
from headgate.policy.model import Match, Policy, Rule
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.runtime.drivers import adrive
from headgate.stores import MemoryStore, Store
from headgate.stores.factory import (
    health_of,
    open_store,
    set_accuracies,
    unwrapped,
    wrapped,
)
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from headgate.stores.base import Accuracies
    from headgate.stores.operations import Operation


class Far(Store):
    """A store that may fail, for threads and event loops; it keeps the accuracies it is given."""

    def __init__(self, *, grants_leases: bool = True) -> None:
        self.inner = LeaseGrantingStore()
        self.grants_leases = grants_leases
        self.accuracies: Accuracies = {}
        self.calls = 0

    def run(self, operation: Operation[Any]) -> Any:
        self.calls += 1
        return self.inner.run(operation)

    async def arun(self, operation: Operation[Any]) -> Any:
        return self.run(operation)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.accuracies = accuracies


def test_a_store_that_may_fail_gets_leases_and_a_circuit_breaker() -> None:
    store = Far()
    layers = wrapped(store, None)
    assert isinstance(layers, LeasedStore)
    assert isinstance(layers.inner, CircuitBreakerStore)
    assert unwrapped(layers) is store
    assert health_of(layers) is layers.inner.health


def test_a_store_that_grants_no_leases_gets_a_circuit_breaker_only() -> None:
    layers = wrapped(Far(grants_leases=False), None)
    assert isinstance(layers, CircuitBreakerStore)
    assert health_of(layers) is layers.health


def test_memory_is_used_as_it_is() -> None:
    store = MemoryStore()
    assert wrapped(store, None) is store
    assert unwrapped(store) is store
    assert health_of(store) is None


def test_all_users_of_a_store_share_its_layers() -> None:
    store = Far()
    limiters = [RateLimiter("1/s", store=store, namespace=str(n)) for n in range(3)]
    engine = RuleEngine(Policy(), store=store)
    async_limiter = AsyncRateLimiter("1/s", store=store)
    async_engine = AsyncRuleEngine(Policy(), store=store)
    stores = {id(limiter._engine.store) for limiter in limiters}
    assert stores == {id(engine.engine.store)} == {id(async_limiter._engine.store)}
    assert async_limiter._engine.store is async_engine.engine.store
    assert {id(limiter._engine.fallback) for limiter in limiters} == {id(engine.engine.fallback)}
    assert limiters[0]._engine.store is not RateLimiter("1/s", store=Far())._engine.store


def test_a_layer_of_the_caller_is_used_as_it_is() -> None:
    breaker = CircuitBreakerStore(Far())
    layers = wrapped(breaker, None)
    assert isinstance(layers, LeasedStore)
    assert layers.inner is breaker
    assert wrapped(layers, None) is layers


def test_a_store_without_users_is_collected() -> None:
    store = Far()
    limiter = RateLimiter("1/s", store=store, accuracy=Accuracy(batch=5))
    limiter.hit("key")
    gone = weakref.ref(store)
    limiter.close()
    del limiter, store
    gc.collect()
    assert gone() is None


def test_what_a_limiter_shows_is_the_store_it_was_given() -> None:
    store = Far()
    assert RateLimiter("1/s", store=store).store is store
    assert AsyncRateLimiter("1/s", store=store).store is store


def test_the_accuracies_of_all_users_of_a_store_stand_side_by_side() -> None:
    store = Far()
    layers = wrapped(store, None)
    one = RateLimiter("1/s; 5/m", store=store, namespace="a", accuracy=Accuracy(batch=5))
    other = RateLimiter("1/s", store=store, namespace="b", accuracy=Accuracy(batch=7))
    exact = RateLimiter("1/s", store=store, namespace="c")
    assert {group: how.batch for group, how in store.accuracies.items()} == {
        "1:a:0": 5,
        "1:a:1": 5,
        "1:b:0": 7,
    }
    set_accuracies(layers, one, {})
    assert set(store.accuracies) == {"1:b:0"}
    del other
    gc.collect()
    set_accuracies(layers, exact, {"1:c:0": Accuracy(batch=1)})
    assert set(store.accuracies) == {"1:c:0"}


def test_async_limiters_have_accuracies_too() -> None:
    store = Far()
    AsyncRateLimiter("9/m", store=store, namespace="a", accuracy=Accuracy(batch=5))
    assert set(store.accuracies) == {"1:a:0"}


def test_a_leased_hit_needs_no_round_trip_and_says_so() -> None:
    store = Far()
    limiter = RateLimiter("1000/h", store=store, accuracy=Accuracy(batch=20))
    decisions = [limiter.hit("hot") for _ in range(200)]
    assert all(decisions)
    assert store.calls < 100
    assert {decision.source for decision in decisions} == {"store", "lease"}
    limiter.close()


def test_a_leased_decision_of_a_rule_engine_needs_no_waiting() -> None:
    rule = Rule("r", Match(), ("ip",), {None: (TokenBucket(1000, 1),)}, accuracy=Accuracy(batch=50))

    async def story() -> list[str]:
        engine = AsyncRuleEngine(Policy((rule,)), store=Far())
        asked = Request(peer="1.2.3.4")
        sources = []
        for _ in range(100):
            plan = engine.in_force.compiled.plan(asked)
            verdict = await adrive(engine.engine.decide(plan))
            sources.append(verdict.source)
        await engine.aclose()
        return sources

    sources = asyncio.run(story())
    assert "lease" in sources
    assert sources.count("store") < 50


def test_there_is_no_shared_memory_without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "headgate.stores.shm", None)
    with pytest.raises(ModuleNotFoundError):
        open_store("shm://name", None)

    def missing(name: str) -> Any:
        raise ModuleNotFoundError("no", name="fcntl")

    monkeypatch.setattr("headgate.stores.factory.import_module", missing)
    with pytest.raises(StoreURLError, match="needs locks on files"):
        open_store("shm://name", None)
