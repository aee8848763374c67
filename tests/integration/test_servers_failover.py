"""Sentinels and clusters replace a primary when a test tells them to, and then leave it at that."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from tests.support.servers import (
    ClusterSetup,
    RedisServer,
    SentinelSetup,
    ServerError,
    is_installed,
    valkey_binary,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

PASSWORD = secrets.token_hex(8)


@pytest.fixture(scope="module")
def setup() -> Iterator[SentinelSetup]:
    with SentinelSetup(password=PASSWORD) as setup:
        yield setup


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup(password=PASSWORD) as cluster:
        yield cluster


def assert_refuses_writes(server: RedisServer) -> None:
    with pytest.raises(ServerError, match="READONLY"):
        server.cli("set", "key", "value")


class TestSentinels:
    def test_they_are_all_in_the_url_with_the_password(self, setup: SentinelSetup) -> None:
        places = ",".join(sentinel.address for sentinel in setup.sentinels)
        assert setup.bare_url == f"redis+sentinel://:{PASSWORD}@{places}/mymaster/0"

    def test_a_dead_primary_is_replaced_and_comes_back_as_a_replica(
        self, setup: SentinelSetup
    ) -> None:
        old = setup.primary()
        new = setup.fail_over()
        assert new is setup.primary() is not old
        assert new.cli("set", "key", "value") == "OK"

        old.restart()
        setup.wait_until_ok()
        assert setup.primary() is new
        assert setup.replica() is old
        wait_until(lambda: old.cli("get", "key") == "value", "the data are there")
        assert_refuses_writes(old)

    def test_two_healthy_servers_swap_roles(self, setup: SentinelSetup) -> None:
        old, new = setup.primary(), setup.replica()
        assert setup.switch_over() is new is setup.primary()
        assert_refuses_writes(old)
        assert new.cli("set", "key", "value") == "OK"

    def test_a_hung_primary_is_replaced_and_becomes_a_replica_when_it_goes_on(
        self, setup: SentinelSetup
    ) -> None:
        old = setup.primary()
        old.pause()
        new = setup.promote()
        assert new is setup.primary() is not old
        old.resume()
        setup.wait_until_ok()
        assert setup.primary() is new
        assert_refuses_writes(old)


class TestCluster:
    def test_the_replica_of_a_dead_primary_takes_over(self, cluster: ClusterSetup) -> None:
        old = cluster.primary_of("key")
        new = cluster.fail_over("key")
        assert new is cluster.primary_of("key") is not old
        assert new.cli("set", "key", "value") == "OK"

        old.restart()
        cluster.wait_until_ok()
        assert len(cluster.primaries()) == 3
        assert cluster.replica_of(new) is old

    def test_the_replica_of_a_hung_primary_takes_over(self, cluster: ClusterSetup) -> None:
        old = cluster.primary_of("key")
        old.pause()
        new = cluster.promote(old)
        assert new is cluster.primary_of("key") is not old
        old.resume()
        cluster.wait_until_ok()
        assert cluster.replica_of(new) is old


@pytest.mark.skipif(valkey_binary() is None, reason="no valkey-server is installed")
class TestValkey:
    def test_it_runs_in_place_of_redis(self) -> None:
        with RedisServer(executable=str(valkey_binary())) as server:
            assert server.info("server")["server_name"] == "valkey"

    def test_its_sentinels_replace_a_primary(self) -> None:
        with SentinelSetup(executable=str(valkey_binary())) as setup:
            old = setup.primary()
            assert setup.fail_over() is not old
            old.restart()
            setup.wait_until_ok()
            assert setup.replica() is old

    def test_its_cluster_replaces_a_primary(self) -> None:
        with ClusterSetup(executable=str(valkey_binary())) as cluster:
            old = cluster.primary_of("key")
            assert cluster.fail_over("key") is cluster.primary_of("key") is not old
