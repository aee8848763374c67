"""The way from a limiter to its store: one for all who use the store."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from headgate import AsyncRateLimiter, MemoryStore, RateLimiter, StoreURLError
from headgate.engine import AsyncRuleEngine, RuleEngine
from headgate.limits import Accuracy, TokenBucket
from headgate.policy.model import Match, Policy, Rule
from headgate.policy.request import Request
from headgate.stores import MemoryStore, Operation, Store
from headgate.stores.factory import (
    guard_of,
    open_store,
    set_accuracies,
    unwrapped,
    wrapped,
)
from headgate.stores.layers.circuit_breaker import CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore

if TYPE_CHECKING:
    from headgate.stores.base import Terms


class Far(Store):
    """A store that may fail, and keeps what it was told to adopt."""

    def __init__(self, *, lends: bool = True) -> None:
        self.inner = MemoryStore()
        self.lends = lends
        self.terms: Terms = {}

    def run(self, operation: Operation[Any]) -> Any:
        return self.inner.run(operation)

    def adopt(self, terms: Terms) -> None:
        self.terms = terms


class FarAsync(Store):
    grants_leases = True

    def __init__(self) -> None:
        self.inner = Far()

    async def arun(self, operation: Operation[Any]) -> Any:
        return self.inner.run(operation)

    def adopt(self, terms: Terms) -> None:
        self.inner.adopt(terms)


def test_a_store_that_may_fail_is_leased_and_guarded() -> None:
    store, aio = Far(), FarAsync()
    way, async_way = wrapped(store, None), wrapped(aio, None)
    assert isinstance(way, LeasedStore)
    assert isinstance(way.inner, CircuitBreakerStore)
    assert unwrapped(way) is store
    assert isinstance(async_way, LeasedStore)
    assert isinstance(async_way.inner, CircuitBreakerStore)
    assert unwrapped(async_way) is aio
    assert guard_of(way) is way.inner.guard
    assert guard_of(async_way) is async_way.inner.guard


def test_a_store_that_lends_nothing_is_guarded_only() -> None:
    way = wrapped(Far(lends=False), None)
    assert isinstance(way, CircuitBreakerStore)
    assert guard_of(way) is way.guard


def test_memory_is_used_as_it_is() -> None:
    store = MemoryStore()
    assert wrapped(store, None) is store
    assert unwrapped(store) is store
    assert guard_of(store) is None
    aio = wrapped(store, None)
    assert isinstance(aio, MemoryStore)
    assert aio.store is store
    assert unwrapped(aio) is aio


def test_all_who_use_a_store_go_the_same_way() -> None:
    store, aio = Far(), FarAsync()
    limiters = [RateLimiter("1/s", store=store, namespace=str(n)) for n in range(3)]
    engine = RuleEngine(Policy(), store=store)
    assert {id(limiter._store) for limiter in limiters} == {id(engine.runner.store)}
    assert {id(limiter._fallback) for limiter in limiters} == {id(engine.runner.fallback)}
    async_limiter, async_engine = (
        AsyncRateLimiter("1/s", store=aio),
        AsyncRuleEngine(Policy(), store=aio),
    )
    assert async_limiter._store is async_engine.runner.store
    assert limiters[0]._store is not RateLimiter("1/s", store=Far())._store


def test_a_guard_or_a_way_that_somebody_made_is_used_as_it_is() -> None:
    guarded = CircuitBreakerStore(Far())
    way = wrapped(guarded, None)
    assert isinstance(way, LeasedStore)
    assert way.inner is guarded
    assert wrapped(way, None) is way
    async_guarded = CircuitBreakerStore(FarAsync())
    async_way = wrapped(async_guarded, None)
    assert isinstance(async_way, LeasedStore)
    assert async_way.inner is async_guarded


def test_a_store_that_nobody_uses_any_more_is_kept_by_nobody() -> None:
    store = Far()
    limiter = RateLimiter("1/s", store=store, accuracy=Accuracy(batch=5))
    limiter.hit("key")
    gone = weakref.ref(store)
    limiter.close()
    del limiter, store
    gc.collect()
    assert gone() is None


def test_what_a_limiter_shows_is_the_store_it_was_given() -> None:
    store, aio = Far(), FarAsync()
    assert RateLimiter("1/s", store=store).store is store
    assert AsyncRateLimiter("1/s", store=aio).store is aio


def test_the_terms_of_all_who_use_a_store_stand_side_by_side() -> None:
    store = Far()
    way = wrapped(store, None)
    one = RateLimiter("1/s; 5/m", store=store, namespace="a", accuracy=Accuracy(batch=5))
    other = RateLimiter("1/s", store=store, namespace="b", accuracy=Accuracy(batch=7))
    exact = RateLimiter("1/s", store=store, namespace="c")
    assert {group: how.batch for group, how in store.terms.items()} == {
        "1:a:0": 5,
        "1:a:1": 5,
        "1:b:0": 7,
    }
    set_accuracies(way, one, {})
    assert set(store.terms) == {"1:b:0"}
    del other
    gc.collect()
    set_accuracies(way, exact, {"1:c:0": Accuracy(batch=1)})
    assert set(store.terms) == {"1:c:0"}


def test_async_limiters_have_terms_too() -> None:
    store = FarAsync()
    AsyncRateLimiter("9/m", store=store, namespace="a", accuracy=Accuracy(batch=5))
    assert set(store.inner.terms) == {"1:a:0"}


def test_a_leased_hit_needs_no_round_trip_and_says_so() -> None:
    class Counted(Far):
        calls = 0

        def run(self, operation: Operation[Any]) -> Any:
            self.calls += 1
            return super().run(operation)

    store = Counted()
    limiter = RateLimiter("1000/h", store=store, accuracy=Accuracy(batch=20))
    decisions = [limiter.hit("hot") for _ in range(200)]
    assert all(decisions)
    assert store.calls < 100
    assert {decision.source for decision in decisions} == {"store", "lease"}
    limiter.close()


def test_a_leased_decision_of_a_rule_engine_needs_no_waiting() -> None:
    rule = Rule("r", Match(), ("ip",), {None: (TokenBucket(1000, 1),)}, accuracy=Accuracy(batch=50))

    async def story() -> list[str]:
        engine = AsyncRuleEngine(Policy((rule,)), store=FarAsync())
        asked = Request(peer="1.2.3.4")
        sources = []
        for _ in range(100):
            plan = engine.in_force.engine.plan(asked)
            verdict = engine.runner.decide_now(plan) or await engine.runner.decide(plan)
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
