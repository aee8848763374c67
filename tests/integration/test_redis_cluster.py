"""In a cluster keys of different slots are checked as one, and only primaries are asked."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate import Hit
from headgate.errors import StoreError
from headgate.stores.operations import Check, Take, TakeEach
from headgate.stores.redis import RedisStore
from headgate.stores.redis.naming import Names, slot_of
from headgate.testing import ManualClock
from tests.support.limiters import KINDS, bucket, limiting
from tests.support.redis_transport import Bundle, drive, reason
from tests.support.servers import ClusterSetup, RedisServer, is_installed, wait_until
from tests.support.servers.urls import with_options
from tests.support.store_calls import Calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.limiters import Limiting

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers"),
    pytest.mark.parametrize("kind", KINDS),
]

NOW = 1_700_000_000
A_DOOMED_CLIENT = f"""
import sys
from headgate import Hit
from headgate.testing import ManualClock
from tests.support.limiters import bucket, limiting

kind, url, namespace, *keys = sys.argv[1:]
options = dict(namespace=namespace, timeout=60.0, clock=ManualClock({NOW}))
with limiting(kind, url, bucket(10), **options) as one:
    for key in keys:
        one.driven.peek(key)
    print("ready", flush=True)
    sys.stdin.readline()
    one.driven.hit_all([Hit(key, bucket(10), 3, name="part") for key in keys])
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup(password=token_hex(8)) as cluster:
        yield cluster


@pytest.fixture
def tag() -> str:
    """A slot of one's own, most likely."""
    return token_hex(4)


def neighbour(cluster: ClusterSetup, node: RedisServer) -> RedisServer:
    return next(one for one in cluster.primaries() if one is not node)


def homes(one: Limiting, cluster: ClusterSetup) -> dict[str, RedisServer]:
    """Keys, one on each primary, and where they are; the node with the lowest port is first."""
    primaries = [member for member in cluster.members() if member.is_primary]
    nodes = {node.port: node for node in cluster.nodes}
    ports: dict[int, str] = {}
    for key in (f"key-{n}" for n in range(30)):
        slot = slot_of(Names(has_tags=True).counter("", key))
        owner = next(one for one in primaries if any(slot in part for part in one.slots))
        ports.setdefault(owner.port, key)
    found = {key: nodes[port] for port, key in sorted(ports.items())}
    assert len(found) == 3
    # So that all nodes know the scripts.
    assert one.driven.hit_all([Hit(key, bucket(1), name="known") for key in found])
    return found


@contextmanager
def paused(node: RedisServer) -> Iterator[None]:
    """*node* hangs until the block ends."""
    node.pause()
    try:
        yield
    finally:
        node.resume()


def calls(nodes: list[RedisServer]) -> int:
    return sum(node.calls("evalsha") + node.calls("eval") for node in nodes)


class TestDifferentSlots:
    def test_hit_all_charges_all_or_nothing(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, bucket(10)) as one:
            keys = list(homes(one, cluster))

            def hit_all(*costs: int) -> bool:
                hits = [Hit(k, bucket(10), c, name="n") for k, c in zip(keys, costs, strict=True)]
                decision = one.driven.hit_all(hits)
                assert decision.source == "store"
                return decision.allowed

            assert hit_all(3, 5, 10)
            assert not hit_all(1, 1, 1)
            assert not hit_all(7, 6, 0)
            assert hit_all(7, 5, 0)
            assert not hit_all(1, 0, 0)

    def test_hit_all_of_many_callers_never_exceeds_and_never_splits(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url, bucket(30)) as one:
            keys = list(homes(one, cluster))
            hits = [Hit(key, bucket(30), 1, name="n") for key in keys]
            decisions = one.together(lambda: one.driven.hit_all(hits), times=80)
            admitted = sum(decision.allowed for decision in decisions)
            assert {decision.source for decision in decisions} == {"store"}
            assert 0 < admitted <= 30
            looks = [one.driven.hit_all([Hit(key, bucket(30), 0, name="n")]) for key in keys]
            assert [look.remaining for look in looks] == [30 - admitted] * 3

    @pytest.mark.parametrize("verb", ["hit_many", "hit_all"])
    def test_other_nodes_are_asked_while_one_hangs(
        self, kind: str, verb: str, cluster: ClusterSetup
    ) -> None:
        limit = bucket(10)
        with (
            limiting(kind, cluster.url, limit, timeout=30) as one,
            limiting("sync", cluster.url, limit, namespace=one.namespace) as other,
            ThreadPoolExecutor(1) as pool,
        ):
            (silent, hung), *others = homes(one, cluster).items()
            keys = [silent, *[key for key, _ in others]]

            def ask() -> bool:
                if verb == "hit_many":
                    return all(one.driven.hit_many(keys))
                return bool(one.driven.hit_all([Hit(key, limit, name="api") for key in keys]))

            def left(key: str) -> int:
                if verb == "hit_many":
                    return 10 - other.used(key)
                return other.driven.hit_all([Hit(key, limit, 0, name="api")]).remaining

            assert [left(key) for key in keys] == [10] * 3  # now the nodes are connected
            with paused(hung):
                asked = pool.submit(ask)
                for key, _ in others:
                    wait_until(lambda key=key: left(key) == 9, f"{key} is charged or held")  # type: ignore[misc]
            assert asked.result(60)

    def test_hit_many_serves_keys_of_all_slots(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, bucket(2)) as one:
            keys = [f"key-{n}" for n in range(150)]
            for allowed in (True, True, False):
                decisions = one.driven.hit_many(keys)
                assert [decision.key for decision in decisions] == keys
                assert {decision.source for decision in decisions} == {"store"}
                assert {decision.allowed for decision in decisions} == {allowed}

    def test_many_hits_at_once_are_each_served(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, bucket(2)) as one:
            decisions = one.hit_together([(f"key-{n % 100}", 1) for n in range(300)])
            assert {decision.source for decision in decisions} == {"store"}
            assert sum(decision.allowed for decision in decisions) == 200

    def test_the_limits_of_one_caller_are_one_call(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, [bucket(10), bucket(20), bucket(30)]) as one:
            one.hit()
            before = calls(cluster.primaries())
            assert one.hit().remaining == 8
            assert calls(cluster.primaries()) - before == 1

    def test_a_part_of_a_cost_is_granted(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, [bucket(10), bucket(20)]) as one:
            parts = [one.driven.hit_up_to(f"key-{n}", 4 * n).granted for n in range(5)]
            assert parts == [0, 4, 8, 10, 10]


class TestCrash:
    def test_a_client_that_dies_between_reserving_and_confirming_leaks_that_much_for_seconds(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        clock = ManualClock(NOW)
        with limiting(kind, cluster.url, bucket(10), clock=clock) as one:
            (first, _), (second, hung), _ = homes(one, cluster).items()

            def used(key: str) -> int:
                look = one.driven.hit_all([Hit(key, bucket(10), 0, name="part")])
                assert look.source == "store"
                return 10 - look.remaining

            call = [sys.executable, "-c", A_DOOMED_CLIENT, kind, cluster.url, one.namespace]
            with subprocess.Popen(  # noqa: S603
                [*call, first, second],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as client:
                assert client.stdin is not None
                assert client.stdout is not None
                assert client.stdout.readline() == "ready\n"
                with paused(hung):
                    client.stdin.write("go\n")
                    client.stdin.flush()
                    wait_until(lambda: used(first) == 3, "a part is reserved")
                    client.send_signal(signal.SIGKILL)
                    client.wait()
            one.wait_until_decided(second)
            assert used(second) <= 3
            clock.advance(15)
            assert (used(first), used(second)) == (0, 0)

    def test_a_part_that_fails_gives_the_others_back(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        clock = ManualClock(NOW)
        with limiting(kind, cluster.url, bucket(10), clock=clock, timeout=1) as one:
            (second, hung), (first, _), _ = homes(one, cluster).items()
            with paused(hung):
                hits = [Hit(key, bucket(10), 3, name="part") for key in (first, second)]
                decision = one.driven.hit_all(hits)
                assert (decision.source, decision.allowed) == ("fail_closed", False)
                look = one.driven.hit_all([Hit(first, bucket(10), 0, name="part")])
                assert (look.source, look.remaining) == ("store", 10)
            one.wait_until_decided(second)
            clock.advance(15)
            decision = one.driven.hit_all([Hit(second, bucket(10), 10, name="part")])
            assert decision.allowed


class TestNodes:
    def test_replicas_are_never_asked(self, kind: str, cluster: ClusterSetup) -> None:
        replicas = [node for node in cluster.nodes if node not in cluster.primaries()]
        before = calls(replicas)
        with limiting(kind, cluster.url) as one:
            for key in (f"key-{n}" for n in range(30)):
                assert one.hit(key).source == one.driven.peek(key).source == "store"
        assert calls(replicas) == before

    def test_the_first_callers_may_come_all_at_once(self, kind: str, cluster: ClusterSetup) -> None:
        for _ in range(5):
            with limiting(kind, cluster.url) as one:
                decisions = one.hit_together([(f"key-{n}", 1) for n in range(40)])
                assert {decision.source for decision in decisions} == {"store"}

    def test_one_node_of_the_url_that_answers_is_enough(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        dead, node = "127.0.0.1:1", cluster.nodes[5]
        with limiting(kind, f"redis+cluster://{node.credentials}{dead},{node.address}") as one:
            one.wait_until_decided()
            assert {one.hit(f"key-{n}").source for n in range(30)} == {"store"}

    def test_a_hung_node_fails_its_own_keys_alone(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, timeout=1) as one:
            (silent, hung), (first, _), (second, _) = homes(one, cluster).items()
            with paused(hung):
                asked = [(key, 1) for key in (silent, first, second)] * 6
                decisions = one.hit_together(asked)
            for (key, _), decision in zip(asked, decisions, strict=True):
                assert decision.source == ("fail_closed" if key == silent else "store")
            one.wait_until_decided(silent)
            assert (one.used(first), one.used(second)) == (6, 6)

    def test_takes_that_span_nodes_fail_each_for_itself(
        self, kind: str, cluster: ClusterSetup
    ) -> None:
        with limiting(kind, cluster.url) as one:
            (silent, hung), (first, _), (second, _) = homes(one, cluster).items()

        def take(*keys: str, consume: bool = True) -> Take:
            checks = tuple([Check(one.namespace, key, bucket(10), 1) for key in keys])
            return Take(checks, consume=consume)

        store = RedisStore(with_options(cluster.url, timeout=1))
        driver = Calls("blocking" if kind == "sync" else "async")
        with paused(hung):
            several = TakeEach((take(first, silent), take(first, second), take(silent)))
            lost, granted, gone = driver.run(store, several)
        (left,) = driver.run(store, take(first, consume=False))
        driver.close(store)
        driver.end()
        assert reason(lost) == reason(gone) == "timeout"
        assert not isinstance(granted, StoreError)
        assert [outcome.remaining for outcome in granted] == [9, 9]
        assert left.remaining == 9  # what was reserved beside the silent key is given back

    def test_no_node_that_answers_is_unreachable(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, "redis+cluster://127.0.0.1:1,127.0.0.1:2") as one:
            assert one.reason() == "unreachable"
            assert one.hit().source == "fail_closed"


def test_requests_go_to_the_nodes_that_own_their_keys(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    keys = [f"{tag}-{number}" for number in range(60)]
    with drive(kind, cluster.url, timeout=5) as driver:
        assert driver.ask_all(*keys, *keys) == [1] * 60 + [2] * 60
        for node in cluster.primaries():
            node.cli("script", "flush")
        assert driver.ask_all(*keys) == [3] * 60
    for key in ("", "key", "{tag}key", "a{b}{c}", "{}key", "{open", "a}b{c}", "ключ"):
        assert slot_of(key.encode()) == cluster.slot_of(key)


def test_a_key_is_asked_for_where_it_is_while_its_slot_moves(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    old, new = f"{{{tag}}}old", f"{{{tag}}}new"
    slot = cluster.slot_of(old)
    target = neighbour(cluster, cluster.owner_of(slot))
    with drive(kind, cluster.url, timeout=5) as driver:
        assert driver.ask(old) == 1
        with cluster.migrating(slot, target) as migration:
            target.cli("script", "flush")
            assert driver.ask_all(old, new, old) == [2, 1, 3]  # the new one lives with the target
            migration.move_keys()
            assert driver.ask_all(old, new) == [4, 2]
        assert driver.ask_all(old, new) == [5, 3]


def test_keys_that_are_apart_are_asked_for_one_by_one_if_they_can_be(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    keys = [f"{{{tag}}}{number}" for number in range(4)]
    slot = cluster.slot_of(keys[0])
    target = neighbour(cluster, cluster.owner_of(slot))
    with drive(kind, cluster.url, timeout=5) as driver:
        assert driver.ask_all(*keys) == [1] * 4
        with cluster.migrating(slot, target) as migration:
            assert migration.move_keys(most=2) == 2
            bundle = Bundle(*keys)
            driver.perform([bundle])
            assert [piece.outcome for piece in bundle.pieces] == [2] * 4
        assert driver.ask_all(*keys) == [3] * 4


def test_keys_that_stay_apart_fail_at_the_deadline(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    keys = [f"{{{tag}}}{number}" for number in range(2)]
    slot = cluster.slot_of(keys[0])
    target = neighbour(cluster, cluster.owner_of(slot))
    with drive(kind, cluster.url, timeout=2) as driver:
        assert driver.ask_all(*keys) == [1] * 2
        with cluster.migrating(slot, target) as migration:
            migration.move_keys(most=1)
            # It is asked again until the deadline, which may come while a reply is awaited.
            assert reason(driver.ask(*keys)) in ("cluster_down", "timeout")


def test_a_server_that_is_no_cluster_says_so(kind: str) -> None:
    with RedisServer() as server, drive(kind, f"redis+cluster://{server.address}") as driver:
        error = driver.ask("key")
    assert reason(error) == "refused"
    assert "cluster support disabled" in str(error)


def test_a_node_asked_as_a_single_server_says_what_would_be_right(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    node = neighbour(cluster, cluster.primary_of(tag))
    with drive(kind, node.url) as driver:
        error = driver.ask(tag)
    assert reason(error) == "refused"
    assert "redis+cluster://" in str(error)


def test_a_closed_store_fails_as_closed(kind: str, cluster: ClusterSetup) -> None:
    take = Take((Check("group", "key", bucket(10)),))

    async def use() -> None:
        await store.arun(take)
        await store.aclose()
        with pytest.raises(StoreError, match="is closed") as failure:
            await store.arun(take)
        assert failure.value.reason == "closed"

    store = RedisStore(cluster.url)
    if kind == "async":
        asyncio.run(use())
        return
    store.run(take)
    store.close()
    with pytest.raises(StoreError, match="is closed") as failure:
        store.run(take)
    assert failure.value.reason == "closed"
