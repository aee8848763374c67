"""In a cluster keys of different slots are checked as one, and only primaries are asked."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate import Hit
from headgate.testing import ManualClock
from tests.support.limiters import KINDS, bucket, limiting
from tests.support.servers import ClusterSetup, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.limiters import Limiting
    from tests.support.servers import RedisServer

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
    with ClusterSetup() as cluster:
        yield cluster


def homes(one: Limiting, cluster: ClusterSetup) -> dict[str, RedisServer]:
    """Keys, one on each primary, and where they are; the node with the lowest port is first."""
    found: dict[str, RedisServer] = {}
    for key in (f"key-{n}" for n in range(30)):
        one.driven.charge(key, 1)
        for node in cluster.primaries():
            names = node.cli("--scan", "--pattern", f"*{one.namespace}*:{key}").split()
            if names and node not in found.values():
                found[key] = node
        one.driven.reset(key)
    assert len(found) == 3
    # So that all nodes know the scripts.
    assert one.driven.hit_all([Hit(key, bucket(1), name="known") for key in found])
    return dict(sorted(found.items(), key=lambda item: item[1].port))


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
        with limiting(kind, cluster.url, bucket(10), clock=clock, timeout=0.5) as one:
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
        dead = "127.0.0.1:1"
        with limiting(kind, f"redis+cluster://{dead},{cluster.nodes[5].address}") as one:
            one.wait_until_decided()
            assert {one.hit(f"key-{n}").source for n in range(30)} == {"store"}

    def test_a_hung_node_fails_its_own_keys_alone(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, cluster.url, timeout=1.0) as one:
            (silent, hung), (first, _), (second, _) = homes(one, cluster).items()
            with paused(hung):
                asked = [(key, 1) for key in (silent, first, second)] * 20
                decisions = one.hit_together(asked)
            for (key, _), decision in zip(asked, decisions, strict=True):
                assert decision.source == ("fail_closed" if key == silent else "store")
            one.wait_until_decided(silent)
            assert (one.used(first), one.used(second)) == (20, 20)

    def test_no_node_that_answers_is_unreachable(self, kind: str, cluster: ClusterSetup) -> None:
        with limiting(kind, "redis+cluster://127.0.0.1:1,127.0.0.1:2") as one:
            assert one.reason() == "unreachable"
            assert one.hit().source == "fail_closed"
