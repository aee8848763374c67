"""A hot key of a real cluster: its load is spread over the primaries when its counter is split."""

from __future__ import annotations

import asyncio
import threading
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from headgate import AsyncRateLimiter
from headgate.limits import Accuracy, TokenBucket
from headgate.stores.layers.split import SplitStore
from headgate.stores.operations import Charge, Check, Hold, Refund, Reset, Settle, Take
from headgate.stores.redis import RedisStore
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.servers import ClusterSetup, is_installed
from tests.support.servers.urls import PATIENCE, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMIT = TokenBucket(800, 2000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as cluster:
        yield cluster


def split_store(cluster: ClusterSetup, clock: ManualClock, group: str, parts: int) -> SplitStore:
    url = with_options(cluster.url, timeout=PATIENCE)
    store = SplitStore(RedisStore(url, clock=clock), pick=Random(group).randrange)
    store.set_accuracies({group: Accuracy(split=parts)})
    return store


def test_the_load_of_one_hot_key_is_spread_over_the_primaries(cluster: ClusterSetup) -> None:
    busiest = {}
    for parts in (1, 8):
        clock, group = ManualClock(1_700_000_000), f"load-{parts}"
        store = split_store(cluster, clock, group, parts)
        take = store.prepare([(group, LIMIT)]).take
        before = [node.calls("evalsha") for node in cluster.primaries()]
        allowed = 0
        for _ in range(1600):
            clock.advance_ns(SECOND // 6000)
            allowed += take(("hot",), (1,))[0].allowed
        after = [node.calls("evalsha") for node in cluster.primaries()]
        loads = [now - then for now, then in zip(after, before, strict=True)]
        busiest[parts] = max(loads) / sum(loads)
        exact = LIMIT.quota + 2000 * 1600 // 6000
        assert exact * 0.9 <= allowed <= exact + 1, f"split {parts}: {allowed}"
        store.close()
    assert busiest[1] > 0.99
    assert busiest[8] < 0.60, busiest


def test_all_operations_on_a_split_counter_work_across_slots(cluster: ClusterSetup) -> None:
    limit = TokenBucket(100, 10)
    store = split_store(cluster, ManualClock(1_700_000_000), "verbs", 4)

    def check(cost: int) -> Check:
        return Check("verbs", "k", limit, cost)

    def left() -> int:
        return store.run(Take((check(0),), consume=False))[0].remaining

    assert store.run(Take((check(5), Check("other", "k", limit, 2))))[0].allowed
    assert left() == 95
    store.run(Charge((check(40),)))
    assert left() == 55
    store.run(Refund((check(20),)))
    assert left() == 75
    assert store.run(Hold((check(10),), "hold", SECOND))[0].allowed
    assert left() == 65
    assert store.run(Settle((check(4),), "hold", charge_lapsed=False))
    assert left() == 71
    store.run(Reset((check(0),)))
    assert left() == 100
    store.close()


def test_limiters_in_threads_and_loops_stay_within_a_split_limit(cluster: ClusterSetup) -> None:
    """On the clocks of the servers, with leases, which take their units from the sub-counters."""
    limit = TokenBucket(500, 500)
    url = with_options(cluster.url, timeout=PATIENCE)
    allowed = [0] * 4
    began = time.monotonic()

    async def main(place: int) -> None:
        limiter = AsyncRateLimiter(
            limit,
            store=url,
            name="api",
            namespace="split-fleet",
            accuracy=Accuracy(batch=10, split=4),
        )
        for _ in range(800):
            allowed[place] += bool(await limiter.hit("hot"))
        await limiter.aclose()

    threads = [
        threading.Thread(target=lambda place=place: asyncio.run(main(place)))
        for place in range(len(allowed))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    assert 400 <= sum(allowed) <= 500 + 500 * took + 4 * 10
