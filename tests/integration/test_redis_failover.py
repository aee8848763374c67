"""A limiter outlives its primary: it follows to the new one, and little is allowed twice.

Replication is asynchronous, so the last charges of the old primary may be lost with it. The tests
print their number.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from tests.support.limiters import KINDS, Seen, bucket, limiting
from tests.support.redis_transport import drive, reason
from tests.support.servers import (
    ClusterSetup,
    SentinelSetup,
    free_port,
    is_installed,
    release_port,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.limiters import Limiting

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers"),
    pytest.mark.parametrize("kind", KINDS),
]

PASSWORD = token_hex(8)
LIMIT = 500
CALLERS = 8
IN_FLIGHT = 100
"""More than can have been admitted and not yet replicated when a primary dies."""


@pytest.fixture(scope="module")
def running_sentinels() -> Iterator[SentinelSetup]:
    with SentinelSetup(password=PASSWORD) as setup:
        yield setup


@pytest.fixture
def sentinels(running_sentinels: SentinelSetup) -> SentinelSetup:
    """With two servers that are well, whatever the test before has done to them."""
    for server in running_sentinels.servers:
        if not server.is_running:
            server.restart()
    running_sentinels.wait_until_ok()
    return running_sentinels


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as cluster:
        yield cluster


@pytest.fixture
def cluster(running_cluster: ClusterSetup) -> ClusterSetup:
    """With six nodes that are well, whatever the test before has done to them."""
    for node in running_cluster.nodes:
        if not node.is_running:
            node.restart()
    running_cluster.wait_until_ok()
    return running_cluster


def counter_of(one: Limiting, cluster: ClusterSetup) -> str:
    """The name of the only counter that *one* has in *cluster*."""
    names = [name for node in cluster.primaries() for name in node.cli("--scan").split()]
    (name,) = [name for name in names if one.namespace in name]
    return name


def use_up(one: Limiting, seen: Seen) -> int:
    """Hit until the store refuses; all that the store has admitted, those in *seen* included."""
    more = 0
    one.wait_until_decided()
    while one.hit(cost=1).allowed:
        more += 1
    assert one.hit().source == "store"
    return seen.admitted + more


def assert_bounded(admitted: int, excess: int) -> None:
    print(f"admitted {admitted} of {LIMIT}")
    assert LIMIT <= admitted <= LIMIT + excess


class TestSentinels:
    def test_a_primary_that_comes_back_as_a_replica_changes_nothing(
        self, kind: str, sentinels: SentinelSetup
    ) -> None:
        with limiting(kind, sentinels.url, bucket(LIMIT), timeout=1.0) as one:
            with one.hammering(callers=CALLERS, pause=0.03) as seen:
                seen.wait_for_more("store")
                old = sentinels.primary()
                sentinels.fail_over()
                seen.wait_for_more("store")
                old.restart()
                sentinels.wait_until_ok()
                seen.wait_for_more("store")
            assert_bounded(use_up(one, seen), IN_FLIGHT)

    def test_a_limiter_leaves_a_primary_that_has_become_a_replica(
        self, kind: str, sentinels: SentinelSetup
    ) -> None:
        with limiting(kind, sentinels.url, bucket(LIMIT), timeout=1.0) as one:
            with one.hammering(callers=CALLERS, pause=0.03) as seen:
                seen.wait_for_more("store")
                sentinels.switch_over()
                seen.wait_for_more("store")
            # For a second or so both took themselves for the primary.
            assert_bounded(use_up(one, seen), LIMIT)

    def test_a_dead_primary_without_a_successor_is_a_failing_store(
        self, kind: str, sentinels: SentinelSetup
    ) -> None:
        with limiting(kind, sentinels.url, timeout=2) as one:
            assert one.hit().source == "store"
            sentinels.primary().kill()
            assert one.reason() in ("unreachable", "timeout")
            assert one.hit().source == "fail_closed"
            sentinels.promote()
            one.wait_until_decided()

    def test_a_hung_primary_has_a_successor(self, kind: str, sentinels: SentinelSetup) -> None:
        with limiting(kind, sentinels.url, timeout=2) as one:
            assert one.hit().source == "store"
            old = sentinels.primary()
            old.pause()
            try:
                assert one.reason() == "timeout"
                sentinels.promote()
                one.wait_until_decided()
            finally:
                old.resume()

    def test_a_name_that_no_sentinel_knows_is_an_error(
        self, kind: str, sentinels: SentinelSetup
    ) -> None:
        with drive(kind, sentinels.url.replace("mymaster", "nobody")) as driver:
            error = driver.ask("key")
        assert reason(error) == "unreachable"
        assert "'nobody'" in str(error)
        assert PASSWORD not in str(error)

    def test_no_sentinel_at_all_is_an_error(self, kind: str) -> None:
        port = free_port()
        with drive(kind, f"redis+sentinel://127.0.0.1:{port}/mymaster") as driver:
            assert reason(driver.ask("key")) == "unreachable"
        release_port(port)

    def test_a_replica_is_never_asked(self, kind: str, sentinels: SentinelSetup) -> None:
        replica = sentinels.replica()
        before = replica.calls("evalsha"), replica.calls("eval")
        with limiting(kind, sentinels.url) as one:
            for _ in range(20):
                assert one.hit().source == one.driven.peek("key").source == "store"
        assert (replica.calls("evalsha"), replica.calls("eval")) == before

    # The last of these: a Sentinel that was paused does not fail over for a while.
    def test_one_sentinel_that_answers_is_enough(self, kind: str, sentinels: SentinelSetup) -> None:
        port = free_port()
        url = sentinels.url.replace("@", f"@127.0.0.1:{port},")
        for sentinel in sentinels.sentinels[:2]:
            sentinel.pause()
        try:
            with limiting(kind, url, timeout=1.0) as one:
                one.wait_until_decided()
                assert one.hit().allowed
        finally:
            for sentinel in sentinels.sentinels[:2]:
                sentinel.resume()
            release_port(port)


class TestClusterFailover:
    def test_a_limiter_follows_to_the_successor_of_a_dead_primary(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, bucket(LIMIT), timeout=1.0) as one:
            with one.hammering(callers=CALLERS, pause=0.03) as seen:
                seen.wait_for_more("store")
                counter = counter_of(one, cluster)
                old = cluster.primary_of(counter)
                cluster.fail_over(counter)
                seen.wait_for_more("store")
                old.restart()
                cluster.wait_until_ok()
                seen.wait_for_more("store")
            assert_bounded(use_up(one, seen), IN_FLIGHT)

    def test_a_limiter_leaves_a_primary_that_has_become_a_replica(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, bucket(LIMIT), timeout=1.0) as one:
            with one.hammering(callers=CALLERS, pause=0.03) as seen:
                seen.wait_for_more("store")
                cluster.promote(cluster.primary_of(counter_of(one, cluster)))
                seen.wait_for_more("store")
            assert_bounded(use_up(one, seen), IN_FLIGHT)

    def test_a_dead_primary_without_a_successor_fails_its_keys_alone(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, timeout=2) as one:
            keys = [f"key-{n}" for n in range(30)]
            assert {one.hit(key).source for key in keys} == {"store"}
            old = cluster.primaries()[0]
            old.kill()
            sources = {key: one.hit(key).source for key in keys}
            assert set(sources.values()) == {"store", "fail_closed"}
            cluster.promote(old)
            for key in keys:
                one.wait_until_decided(key)


class TestResharding:
    def test_a_counter_on_the_move_is_counted_exactly(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, bucket(LIMIT)) as one:
            with one.hammering(callers=CALLERS, pause=0.01) as seen:
                seen.wait_for_more("store")
                slot = cluster.slot_of(counter_of(one, cluster))
                target = next(n for n in cluster.primaries() if n is not cluster.owner_of(slot))
                with cluster.migrating(slot, target) as migration:
                    seen.wait_for_more("store")
                    assert migration.move_keys() >= 1
                    seen.wait_for_more("store")
                assert cluster.owner_of(slot) is target
                seen.wait_for_more("store")
            assert seen.sources == {"store"}
            assert use_up(one, seen) == LIMIT

    def test_counters_that_begin_while_their_slot_moves_are_counted_exactly(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, bucket(50)) as one:
            assert one.hit().allowed
            slot = cluster.slot_of(counter_of(one, cluster))
            one.driven.reset("key")
            target = next(n for n in cluster.primaries() if n is not cluster.owner_of(slot))
            with cluster.migrating(slot, target):
                decisions = one.hit_together([("key", 1)] * 40)
            decisions += one.hit_together([("key", 1)] * 40)
            assert {decision.source for decision in decisions} == {"store"}
            assert sum(decision.allowed for decision in decisions) == 50

    def test_the_counters_of_a_stack_may_move_one_by_one(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        stack = [bucket(LIMIT), bucket(LIMIT * 2)]
        with limiting(kind, cluster.url, stack) as one:
            with one.hammering(callers=CALLERS, pause=0.01) as seen:
                seen.wait_for_more("store")
                names = [n for node in cluster.primaries() for n in node.cli("--scan").split()]
                slots = {cluster.slot_of(name) for name in names if one.namespace in name}
                (slot,) = slots
                target = next(n for n in cluster.primaries() if n is not cluster.owner_of(slot))
                with cluster.migrating(slot, target) as migration:
                    assert migration.move_keys(most=1) == 1
                seen.wait_for_more("store")
            assert seen.sources == {"store"}
            assert use_up(one, seen) == LIMIT

    def test_slots_that_move_back_and_forth_lose_nothing(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, bucket(LIMIT)) as one:
            with one.hammering(callers=CALLERS, pause=0.01) as seen:
                seen.wait_for_more("store")
                slot = cluster.slot_of(counter_of(one, cluster))
                for target in cluster.primaries() * 2:
                    cluster.move_slot(slot, target)
            assert seen.sources == {"store"}
            assert use_up(one, seen) == LIMIT
