"""The Redis stores keep the contract: on Redis and on Valkey, on one server and on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from headgate.stores.redis import RedisStore
from tests.contract.layer_operations import LayerStoreContract
from tests.support.servers import ClusterSetup, RedisServer, is_installed, valkey_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.testing import ManualClock

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

needs_valkey = pytest.mark.skipif(valkey_binary() is None, reason="no valkey-server is installed")


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.fixture(scope="module")
def valkey_url() -> Iterator[str]:
    with RedisServer(executable=str(valkey_binary())) as server:
        yield server.url.replace("redis:", "valkey:")


@pytest.fixture(scope="module")
def cluster_url() -> Iterator[str]:
    with ClusterSetup() as cluster:
        yield cluster.url


@pytest.fixture(scope="class", autouse=True)
def _url(request: pytest.FixtureRequest) -> None:
    cls: type[OnServer] = request.cls
    cls.url = request.getfixturevalue(cls.server)


class OnServer(LayerStoreContract):
    """The contract, over a store at the *url* that the fixture called *server* gives."""

    tick_ns = 1_000
    server: ClassVar[str]
    url: ClassVar[str]

    def make_store(self, clock: ManualClock) -> RedisStore:
        return RedisStore(self.url, clock=clock)


class TestRedisStore(OnServer):
    server = "redis_url"


class TestAsyncRedisStore(OnServer):
    server = "redis_url"
    in_loop = True
    histories = 1


@needs_valkey
class TestRedisStoreOnValkey(OnServer):
    server = "valkey_url"
    histories = 1


class TestAsyncRedisStoreOnCluster(OnServer):
    server = "cluster_url"
    in_loop = True
    histories = 1
