"""The transport under the Redis store in a real cluster: moves, splits and failovers."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest

from headgate.stores.redis.naming import slot_of
from tests.support.redis_transport import KINDS, Bundle, Script, drive, reason
from tests.support.servers import ClusterSetup, RedisServer, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

PASSWORD = secrets.token_hex(8)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup(password=PASSWORD) as cluster:
        yield cluster


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tag() -> str:
    """A slot of one's own, most likely."""
    return secrets.token_hex(4)


def neighbour(cluster: ClusterSetup, node: RedisServer) -> RedisServer:
    return next(one for one in cluster.primaries() if one is not node)


def test_slots_are_what_the_cluster_says(cluster: ClusterSetup) -> None:
    for key in ("", "key", "{tag}key", "a{b}{c}", "{}key", "{open", "a}b{c}", "ключ"):
        assert slot_of(key.encode()) == cluster.slot_of(key)


def test_requests_go_to_the_nodes_that_own_their_keys(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    keys = [f"{tag}-{number}" for number in range(60)]
    with drive(kind, cluster.url, timeout=5) as driver:
        assert driver.ask_all(*keys, *keys) == [1] * 60 + [2] * 60
        for node in cluster.primaries():
            node.cli("script", "flush")
        assert driver.ask_all(*keys) == [3] * 60


def test_one_node_is_enough_to_find_the_others(cluster: ClusterSetup, kind: str, tag: str) -> None:
    first = cluster.nodes[0]
    url = f"redis+cluster://{first.credentials}{first.address}"
    with drive(kind, url, timeout=5) as driver:
        assert driver.ask_all(*[f"{tag}-{number}" for number in range(20)]) == [1] * 20


def test_a_slot_that_has_moved_is_found(cluster: ClusterSetup, kind: str, tag: str) -> None:
    slot, key = cluster.slot_of(tag), tag
    with drive(kind, cluster.url, timeout=5) as driver:
        assert driver.ask(key) == 1
        source = cluster.owner_of(slot)
        target = neighbour(cluster, source)
        cluster.move_slot(slot, target)
        assert driver.ask_all(key, key) == [2, 3]
        assert driver.ask(key) == 4
        cluster.move_slot(slot, source)
        assert driver.ask(key) == 5


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
    with drive(kind, cluster.url, timeout=0.4) as driver:
        assert driver.ask_all(*keys) == [1] * 2
        with cluster.migrating(slot, target) as migration:
            migration.move_keys(most=1)
            begin = time.monotonic()
            # It is asked again until the deadline, which may come while an answer is awaited.
            assert reason(driver.ask(*keys)) in ("cluster_down", "timeout")
            assert time.monotonic() - begin < 4


def test_a_dead_primary_has_a_successor(cluster: ClusterSetup, kind: str, tag: str) -> None:
    others = [node for node in cluster.primaries() if node is not cluster.primary_of(tag)]
    there = cluster.key_on(others[0], prefix=tag)
    with drive(kind, cluster.url, timeout=0.5) as driver:
        assert driver.ask_all(tag, there) == [1, 1]
        dead = cluster.primary_of(tag)
        dead.kill()
        assert reason(driver.ask(tag)) in ("unreachable", "timeout")
        assert driver.ask(there) == 2
        cluster.promote(dead)
        wait_until(lambda: isinstance(driver.ask(tag), int), "the new one is asked")
        dead.restart()
        cluster.wait_until_ok()
        assert isinstance(driver.ask(there), int)
        assert isinstance(driver.ask(tag), int)


def test_a_hung_primary_fails_its_own_requests_within_the_deadline(
    cluster: ClusterSetup, kind: str, tag: str
) -> None:
    hung = cluster.primary_of(tag)
    there = cluster.key_on(neighbour(cluster, hung), prefix=tag)
    with drive(kind, cluster.url, timeout=0.3) as driver:
        driver.ask_all(tag, there)
        hung.pause()
        try:
            mine, other = Script(tag), Script(there)
            driver.perform([mine, other])
        finally:
            hung.resume()
        assert reason(mine.outcome) == "timeout"
        assert other.outcome == 2
    cluster.wait_until_ok()


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


def test_a_closed_transport_fails_as_closed(cluster: ClusterSetup, tag: str) -> None:
    driver = drive("sync", cluster.url, timeout=5)
    driver.ask(tag)
    driver.close()
    assert reason(driver.ask(tag)) == "closed"
