"""The layers keep the contract of the store that they wrap, for threads and for event loops.

Circuit breaker and replication promise all that their inner store does. Leases do so where a limit
is exact; elsewhere they promise the bound that the accuracy states. Each layer runs in both drivers
over the memory store. What a layer does not decide is the store's own contract, so Redis stands
below one of them, and real regions are in `tests/integration/test_regions.py`.
"""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from secrets import token_hex
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from headgate.errors import StoreError
from headgate.limits import Accuracy, TokenBucket
from headgate.stores.layers.circuit_breaker import BreakerOptions, CircuitBreakerStore
from headgate.stores.layers.leases import LeasedStore
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.layers.split import SplitStore
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.stores.shm import ShmStore
from headgate.stores.shm.file import path_of
from headgate.testing import ManualClock
from headgate.units import HOUR, MILLISECOND, SECOND
from tests.contract.layer_operations import LayerStoreContract
from tests.support.lease_store import LeaseGrantingStore
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores import Store
    from headgate.stores.layers.circuit_breaker.health import StoreHealth


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


# ---- the inner stores -----------------------------------------------------------------------


class Inner(LayerStoreContract):
    """The contract, over layers on one set of counters."""

    histories = 1  # the store below has had the others

    def counters(self, clock: ManualClock) -> Store:
        """A store on the counters, the same ones each time in a test."""
        raise NotImplementedError


class InMemory(Inner):
    def setup_method(self) -> None:
        self._memory: LeaseGrantingStore | None = None
        super().setup_method()

    def counters(self, clock: ManualClock) -> LeaseGrantingStore:
        self._memory = self._memory or LeaseGrantingStore(clock=clock)
        return self._memory


class OnRedis(Inner):
    tick_ns = 1_000
    url: ClassVar[str]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, redis_url: str) -> None:
        cls.url = redis_url

    def counters(self, clock: ManualClock) -> Store:
        return RedisStore(self.url, clock=clock)


# ---- circuit breaker ------------------------------------------------------------------------


class Breaker(Inner):
    def make_store(self, clock: ManualClock) -> Store:
        return CircuitBreakerStore(self.counters(clock))


class TestBreaker(Breaker, InMemory):
    pass


class TestAsyncBreaker(Breaker, InMemory):
    in_loop = True


class TestBreakerThatHasOnlyJustAnswered(InMemory):
    """After an outage, while the breaker lets more and more calls through: here all of them."""

    def make_store(self, clock: ManualClock) -> Store:
        time = Time()
        options = BreakerOptions(first_share=1e-9)
        store = CircuitBreakerStore(
            self.counters(clock), options=options, time_ns=time, chance=lambda: 0.0
        )
        recover(store.health, time)
        return store


class TestBreakerForEachPart(Breaker, InMemory):
    """Over a store whose parts fail on their own, as the nodes of a cluster do."""

    def counters(self, clock: ManualClock) -> LeaseGrantingStore:
        store = super().counters(clock)
        vars(store)["part_of"] = lambda key: str(len(key) % 3)
        return store


class Time:
    """The clock of a breaker, which the test moves."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def recover(health: StoreHealth, time: Time) -> None:
    """Let the store fail, and then answer the probe: the breaker stays on its ramp."""
    breaker = health.whole
    while breaker.is_closed:
        health.failed([(breaker, breaker.mark)], StoreError("no reply", reason="timeout"))
    time.now_ns += HOUR
    health.succeeded(health.request((breaker,)))
    assert breaker.state == "ramping"


# ---- leases ---------------------------------------------------------------------------------


class Leases(Inner):
    def make_store(self, clock: ManualClock) -> Store:
        return LeasedStore(CircuitBreakerStore(self.counters(clock)), clock=clock, keeps=False)

    def make_node(self, clock: ManualClock) -> Store:
        return self.make_store(clock)


SHARE = Accuracy(max_overshoot=Fraction(3, 10))
BATCH = Accuracy(batch=4)
SYNC = Accuracy(max_overshoot=Fraction(3, 10), sync_ns=100 * MILLISECOND)
DENIALS = Accuracy(denials_ns=SECOND)


class TestLeasesOfExactLimits(Leases, InMemory):
    pass


class TestLeases(Leases, InMemory):
    accuracy = SHARE


class TestAsyncLeases(Leases, InMemory):
    """In batches, in an event loop."""

    in_loop = True
    accuracy = BATCH


class TestLeasesThatSync(Leases, InMemory):
    accuracy = SYNC


class TestDenialsThatAreRemembered(Leases, InMemory):
    accuracy = DENIALS


class TestAsyncLeasesOverRedis(Leases, OnRedis):
    in_loop = True
    accuracy = SHARE


# ---- split counters -------------------------------------------------------------------------


class TestSplitOfOtherGroups(InMemory):
    """A layer with split counters keeps the contract for all other groups."""

    def make_store(self, clock: ManualClock) -> Store:
        store = SplitStore(self.counters(clock))
        store.set_accuracies({"split elsewhere": Accuracy(split=4)})
        return store


# ---- replication ----------------------------------------------------------------------------


class Regions(Inner):
    """Usage is sent when the test says so: the period between two exchanges is an hour."""

    replicates = True

    def make_store(self, clock: ManualClock) -> Store:
        self._peer = self.other_counters(clock)
        peers = {"us": self._peer}
        return ReplicatedStore(
            self.counters(clock), region="eu", peers=peers, every_ns=HOUR, clock=clock
        )

    def other_counters(self, clock: ManualClock) -> Store:
        return LeaseGrantingStore(clock=clock)

    def peer(self) -> Store:
        return self._peer

    def exchange(self) -> None:
        store = cast("ReplicatedStore", self.store)
        if self.in_loop:
            self._runner.run(store.aexchange())
        else:
            store.exchange()


class TestRegions(Regions, InMemory):
    pass


class TestAsyncRegions(Regions, InMemory):
    in_loop = True


def test_a_region_in_shared_memory_reports_its_usage() -> None:
    """It grants no leases, so it can only be the local one."""
    clock, name = ManualClock(1_000), f"contract-{token_hex(8)}"
    limit, peer = TokenBucket(10, 1), LeaseGrantingStore(clock=clock)
    check = Check("g", "key", limit, 4)
    local = ShmStore(f"shm://{name}?size=8MB", clock=clock)
    try:
        with closing(
            ReplicatedStore(local, region="eu", peers={"us": peer}, every_ns=HOUR, clock=clock)
        ) as store:
            assert not store.grants_leases
            assert store.run(Take((check,)))[0].remaining == 6
            assert store.prepare([("g", limit)]).take(("key",), (3,))[0].remaining == 3
            store.exchange()
        assert peer.used_in("g", "key") == 7
    finally:
        path_of(name).unlink(missing_ok=True)


# ---- all of them ----------------------------------------------------------------------------


class TestAllLayers(InMemory):
    """Leases over a circuit breaker over replication, as a service in several regions has them."""

    accuracy = SHARE

    def make_store(self, clock: ManualClock) -> Store:
        peers = {"us": LeaseGrantingStore(clock=clock)}
        regions = ReplicatedStore(
            self.counters(clock), region="eu", peers=peers, every_ns=HOUR, clock=clock
        )
        return LeasedStore(CircuitBreakerStore(regions), clock=clock, keeps=False)

    def make_node(self, clock: ManualClock) -> Store:
        return self.make_store(clock)
