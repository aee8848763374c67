"""A primary that dies, hangs or steps down, behind Sentinels and in a cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.faults.invariants import ordeal
from tests.support.servers import ClusterSetup, RedisServer, SentinelSetup, is_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.faults.invariants import Effect

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")


@pytest.fixture(scope="module")
def sentinels() -> Iterator[SentinelSetup]:
    with SentinelSetup() as setup:
        yield setup


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as setup:
        yield setup


def mended(servers: tuple[RedisServer, ...]) -> None:
    """Bring back all of *servers* that were killed."""
    for server in servers:
        if not server.is_running:
            server.restart()


def killed_behind_sentinels(setup: SentinelSetup) -> Iterator[None]:
    primary = setup.primary()
    assert primary.replicates()
    primary.kill()
    yield
    setup.promote()


def stopped_behind_sentinels(setup: SentinelSetup) -> Iterator[None]:
    primary = setup.primary()
    assert primary.replicates()
    primary.pause()
    yield
    setup.promote()
    primary.kill()  # one that goes on as if nothing had happened is not told by its clients


def stepping_down(setup: SentinelSetup) -> Iterator[None]:
    setup.switch_over()
    yield


@pytest.mark.parametrize(
    ("inflict", "effect"),
    [
        (killed_behind_sentinels, "all"),
        (stopped_behind_sentinels, "all"),
        (stepping_down, "some"),
    ],
)
def test_the_invariants_hold_behind_sentinels(
    sentinels: SentinelSetup,
    inflict: Callable[[SentinelSetup], Iterator[None]],
    effect: Effect,
) -> None:
    mended(sentinels.servers)
    sentinels.wait_until_ok()
    with ordeal(sentinels.url) as one:
        one.suffer(contextmanager(inflict)(sentinels), sentinels.url, effect=effect)


def killed_in_a_cluster(cluster: ClusterSetup) -> Iterator[None]:
    primary = cluster.primaries()[0]
    primary.kill()
    yield
    cluster.promote(primary)


def stopped_in_a_cluster(cluster: ClusterSetup) -> Iterator[None]:
    primary = cluster.primaries()[0]
    primary.pause()
    yield
    cluster.promote(primary)
    primary.resume()
    cluster.wait_until_ok()


def deposed_in_a_cluster(cluster: ClusterSetup) -> Iterator[None]:
    cluster.promote(cluster.primaries()[0])
    yield


@pytest.mark.parametrize(
    "inflict", [killed_in_a_cluster, stopped_in_a_cluster, deposed_in_a_cluster]
)
def test_the_invariants_hold_in_a_cluster(
    cluster: ClusterSetup, inflict: Callable[[ClusterSetup], Iterator[None]]
) -> None:
    mended(cluster.nodes)
    cluster.wait_until_ok()
    with ordeal(cluster.url) as one:
        one.suffer(replicated(cluster, inflict), cluster.url, effect="some")


@contextmanager
def replicated(
    cluster: ClusterSetup, inflict: Callable[[ClusterSetup], Iterator[None]]
) -> Iterator[None]:
    """As *inflict*, after the replicas have got what was charged so far."""
    cluster.wait_until_ok()
    yield from inflict(cluster)
