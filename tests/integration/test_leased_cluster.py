"""A hot key of a real cluster: its load is spread over the primaries when its counter is split."""

from __future__ import annotations

import random
import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from headgate.stores.layers.leases.pots import Pots

from headgate.limits import Accuracy, TokenBucket
from headgate.stores.layers.leases import pots
from headgate.stores.layers.leases.store import LeasedStore
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from tests.support.servers import ClusterSetup, is_installed
from tests.support.servers.urls import PATIENCE, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMIT = TokenBucket(1000, 2000)
CAP = 100
A_TENTH = Fraction(1, 10)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _hot_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few hundred requests make a key hot: thousands a second would take long to drive."""
    monkeypatch.setattr(pots, "HOT_TRIPS", 1)
    monkeypatch.setattr(pots, "WORTH", 0)


class Fleet:
    """Nodes that share one cluster, on a clock that the test moves, asked at random."""

    def __init__(self, cluster: ClusterSetup, group: str, *, nodes: int = 30) -> None:
        self.clock = ManualClock(1_700_000_000)
        self.cluster = cluster
        self.admitted = self.asked = 0
        self._store = RedisStore(with_options(cluster.url, timeout=PATIENCE), clock=self.clock)
        self._nodes = [
            LeasedStore(self._store, clock=self.clock, holder=f"node-{n}", keeps=False)
            for n in range(nodes)
        ]
        for n, node in enumerate(self._nodes):  # not named at random: their pots would be chance
            node._desk.pots = Pots(f"node-{n}", self.clock)
        self._group = group
        self._random = random.Random(group)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def adopt(self, split: int) -> None:
        for node in self._nodes:
            node.adopt({self._group: Accuracy(max_overshoot=A_TENTH, split=split)})

    def run(self, seconds: float, *, per_second: int) -> list[int]:
        """How many scripts each primary has run meanwhile."""
        before = self._scripts()
        for _ in range(int(seconds * per_second)):
            self.clock.advance(1 / per_second)
            node = self._random.choice(self._nodes)
            check = Check(self._group, "hot", LIMIT)
            self.admitted += node.run(Take((check,)))[0].allowed
            self.asked += 1
            if self._random.random() < 0.02:
                node.keep()
        return [now - then for now, then in zip(self._scripts(), before, strict=True)]

    def _scripts(self) -> list[int]:
        return [node.calls("evalsha") for node in self.cluster.primaries()]


def test_the_load_of_one_hot_key_is_spread_over_the_primaries(cluster: ClusterSetup) -> None:
    busiest = {}
    for split in (1, 8):
        with Fleet(cluster, f"load-{split}") as fleet:
            fleet.adopt(split)
            fleet.run(0.25, per_second=6000)  # until the counter is used up
            loads = fleet.run(0.3, per_second=4000)
            busiest[split] = max(loads) / sum(loads)
            exact = LIMIT.quota + 0.55 * 2000
            assert exact - CAP <= fleet.admitted <= exact + CAP, f"split {split}"
    assert busiest[1] > 0.99
    assert busiest[8] < 0.60, busiest


def test_a_counter_is_split_and_merged_again_while_the_load_goes_on(cluster: ClusterSetup) -> None:
    with Fleet(cluster, "merged", nodes=12) as fleet:
        loads = []
        for split in (1, 8, 1, 4, 1):
            fleet.adopt(split)
            loads.append(fleet.run(0.2, per_second=4000))
        exact = LIMIT.quota + 1.0 * 2000
        assert fleet.admitted <= exact + CAP
        # What was in pots and loans when the terms changed, four times, may have lapsed unused.
        assert fleet.admitted >= exact - 5 * CAP
        # Which pots are drawn from is a matter of chance, but one primary does not do it all.
        assert sum(load > 0 for load in loads[1]) >= 2, loads
        assert sorted(loads[4])[:2] == [0, 0]


def test_nodes_in_threads_stay_within_the_bound_on_the_clocks_of_the_servers(
    cluster: ClusterSetup,
) -> None:
    limit = TokenBucket(500, 500)
    check = Check("threads", "hot", limit)
    terms = {"threads": Accuracy(max_overshoot=Fraction(1, 5), split=4)}
    url = with_options(cluster.url, timeout=PATIENCE)
    stores = [LeasedStore(RedisStore(url)) for _ in range(4)]
    admitted = [0] * len(stores)
    began = time.monotonic()

    def work(place: int) -> None:
        stores[place].adopt(terms)
        for _ in range(800):
            admitted[place] += stores[place].run(Take((check,)))[0].allowed

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    for store in stores:
        store.close()
    assert 500 <= sum(admitted) <= 500 + 500 * took + 100
