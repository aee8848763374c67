"""A node that follows a policy in etcd enforces it, through whatever happens to etcd."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.control.etcd import EtcdSource
from headgate.control.watcher import PolicyWatcher
from headgate.engine.request import Request
from headgate.policy.model import Policy
from headgate.rule_engine import AsyncRuleEngine
from tests.support.etcd_watch import committed
from tests.support.policy_source_contract import revision
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from headgate.control.watcher import State

pytestmark = pytest.mark.skipif(not etcd_is_installed(), reason="run scripts/install-servers")


@pytest.fixture
def server() -> Iterator[EtcdServer]:
    with EtcdServer() as running:
        yield running


class Node:
    """An engine that a watcher keeps up to date."""

    def __init__(self, storage: EtcdSource, keep: Path | None) -> None:
        self.engine = AsyncRuleEngine(Policy())
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.watcher = PolicyWatcher(
            storage,
            self.engine.replace,
            keep=keep,
            longest_wait=0.1,
            on_change=self._hear,
        )

    def _hear(self, state: State) -> None:
        self._loop.call_soon_threadsafe(self._news.set)

    async def quotas(self) -> list[int]:
        """By what quotas a request is decided now."""
        verdict = await self.engine.check(Request(peer="192.0.2.1"))
        return [one.decision.limit.quota for one in verdict.rules]

    async def revision(self) -> int:
        """The revision in a decision made now."""
        return (await self.engine.check(Request(peer="192.0.2.1"))).revision

    async def enforces(self, quota: int) -> None:
        """Wait until requests are decided by *quota*."""
        async with asyncio.timeout(10):
            self._news.clear()
            while await self.quotas() != [quota]:
                await self._news.wait()
                self._news.clear()

    async def hears_of(self, condition: Callable[[State], bool]) -> None:
        """Wait until the state of the watcher is as *condition* says."""
        async with asyncio.timeout(10):
            while not condition(self.watcher.state):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def following(server: EtcdServer, keep: Path | None = None) -> AsyncIterator[Node]:
    storage = EtcdSource.open(f"{server.url}?timeout=2&heartbeat=0.2")
    node = Node(storage, keep)
    try:
        async with node.watcher:
            yield node
    finally:
        storage.close()


def test_three_nodes_come_to_enforce_every_change(server: EtcdServer) -> None:
    async def main() -> None:
        storage = EtcdSource.open(server.url)
        async with following(server) as one, following(server) as two, following(server) as three:
            for number in range(1, 6):
                storage.commit(revision(number, "a", limit=f"{number}/minute"))
                for node in (one, two, three):
                    await node.enforces(number)
        storage.close()

    asyncio.run(main())


def test_every_node_says_the_revision_of_etcd(server: EtcdServer) -> None:
    async def main() -> None:
        storage = EtcdSource.open(server.url)
        async with following(server) as early:
            assert await early.revision() == 0
            storage.commit(revision(1, "a", limit="1/minute"))
            storage.commit(revision(2, "a", limit="2/minute"))
            async with following(server) as late:
                for node in (early, late):
                    await node.enforces(2)
                    assert await node.revision() == node.watcher.state.revision == 2
                server.ctl("del", "--prefix", "/headgate/")
                storage.commit(revision(1, "a", limit="7/minute"))
                for node in (early, late):
                    await node.enforces(7)
                    assert await node.revision() == node.watcher.state.revision == 1
        storage.close()

    asyncio.run(main())


def test_a_node_that_starts_while_etcd_is_down_runs_on_the_last_good_policy(
    server: EtcdServer, tmp_path: Path
) -> None:
    async def main() -> None:
        keep = tmp_path / "kept.json"
        storage = EtcdSource.open(server.url)
        storage.commit(revision(1, "a", limit="5/minute"))
        async with following(server, keep) as node:
            await node.enforces(5)
        server.stop()
        async with following(server, keep) as node:
            assert await node.quotas() == [5]
            assert node.watcher.state.is_stale
            assert "cannot be reached" in str(node.watcher.state.trouble)
            server.start()
            committed(storage, revision(2, "a", limit="6/minute"))
            await node.enforces(6)
            assert not node.watcher.state.is_stale
        storage.close()

    asyncio.run(main())


def test_a_prefix_that_was_deleted_lifts_no_limit(server: EtcdServer) -> None:
    async def main() -> None:
        storage = EtcdSource.open(server.url)
        storage.commit(revision(1, "a", limit="5/minute"))
        storage.commit(revision(2, "a", limit="6/minute"))
        async with following(server) as node:
            await node.enforces(6)
            server.ctl("del", "--prefix", "/headgate/")
            await node.hears_of(lambda state: state.problems is not None)
            assert "the source is empty; revision 2 stays in force" in str(node.watcher.state)
            assert await node.quotas() == [6]
            storage.commit(revision(1, "a", limit="7/minute"))
            await node.enforces(7)
        storage.close()

    asyncio.run(main())
