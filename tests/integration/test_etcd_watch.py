"""A watch on a real etcd misses nothing: compaction, deletion, restarts, hangs."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd import EtcdStorage
from headgate.control.etcd.messages import WATCH
from headgate.control.revision import Revision, StorageError
from tests.support.etcd_watch import Watcher, committed
from tests.support.policy_storage_contract import following, revision, soon
from tests.support.servers import SilentProxy
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.skipif(not etcd_is_installed(), reason="run scripts/install-servers")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared() -> Iterator[EtcdServer]:
    with EtcdServer() as running:
        yield running


@pytest.fixture
def server(shared: EtcdServer) -> EtcdServer:
    """The shared server, in good health."""
    if not shared.is_running:
        shared.start()
    return shared


@pytest.fixture
def prefix() -> str:
    """A place that nobody has used."""
    return f"/place-{next(_numbers)}/"


@asynccontextmanager
async def opened(port: int, prefix: str, options: str = "") -> AsyncIterator[EtcdStorage]:
    storage = EtcdStorage.open(f"etcd://127.0.0.1:{port}{prefix}?{options or 'timeout=5'}")
    try:
        yield storage
    finally:
        await storage.aclose()


def test_a_change_between_the_look_and_the_watch_is_seen(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        async with opened(server.port, prefix) as storage:
            await storage.commit(revision(1, "a"))
            begin = storage._client.watch
            started: list[int] = []

            async def late(key: bytes, start: int) -> Any:
                if not started:
                    await storage.commit(revision(2, "b"))
                started.append(start)
                return await begin(key, start)

            storage._client.watch = late  # type: ignore[method-assign]
            at = server.revision
            watch = storage.watch(1)
            assert await soon(anext(watch)) == revision(2, "b")
            assert started == [at + 1]
            await watch.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


class TestCompaction:
    def test_while_watching_changes_nothing(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            async with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
                for number in range(1, 6):
                    await storage.commit(revision(number, f"r{number}"))
                    server.compact()
                await watcher.reaches(5)
                assert not watcher.losses

        asyncio.run(main())

    def test_while_away_leads_to_a_fresh_look(self, server: EtcdServer, prefix: str) -> None:
        """The revision to watch from is gone when the watch begins."""

        async def main() -> None:
            async with opened(server.port, prefix) as storage:
                await storage.commit(revision(1, "a"))
                begin = storage._client.watch
                starts: list[int] = []

                async def late(key: bytes, start: int) -> Any:
                    starts.append(start)
                    if len(starts) == 1:
                        for number in (2, 3, 4):
                            await storage.commit(revision(number, "b"))
                        server.compact()
                    return await begin(key, start)

                storage._client.watch = late  # type: ignore[method-assign]
                async with Watcher(storage, after=1) as watcher:
                    await watcher.reaches(4)
                    assert [one.number for one in watcher.given] == [4]
                    assert not watcher.losses
                    assert len(starts) == 2
                    await storage.commit(revision(5, "c"))
                    await watcher.reaches(5)

        asyncio.run(main())


class TestDeletion:
    def test_of_everything_is_revision_0(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            async with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
                await storage.commit(revision(1, "a"))
                await watcher.reaches(1)
                server.ctl("del", "--prefix", prefix)
                await watcher.reaches(0)
                assert watcher.given[-1] == Revision(0)
                await storage.commit(revision(1, "again"))
                await watcher.reaches(1)
                assert watcher.given[-1] == revision(1, "again")
                assert not watcher.losses

        asyncio.run(main())

    def test_of_the_key_alone_is_no_change(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            async with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
                await storage.commit(revision(1, "a"))
                await watcher.reaches(1)
                server.ctl("del", f"{prefix}policy")
                await storage.commit(revision(2, "b"))
                await watcher.reaches(2)
                assert [one.number for one in watcher.given] == [1, 2]

        asyncio.run(main())

    def test_a_revision_made_again_with_the_same_number_is_given(
        self, server: EtcdServer, prefix: str
    ) -> None:
        async def main() -> None:
            async with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
                await storage.commit(revision(1, "a"))
                await watcher.reaches(1)
                server.ctl("del", "--prefix", prefix)
                await storage.commit(revision(1, "other"))
                await watcher.until(lambda self: self.given[-1] == revision(1, "other"))

        asyncio.run(main())


class TestSilence:
    def test_is_asked_about_and_outlived(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            options = "timeout=5&heartbeat=0.02"
            async with opened(server.port, prefix, options) as storage, Watcher(storage) as watcher:
                await storage.commit(revision(1, "a"))
                await watcher.reaches(1)
                await asyncio.sleep(0.3)  # a dozen heartbeats
                await storage.commit(revision(2, "b"))
                await watcher.reaches(2)
                assert not watcher.losses

        asyncio.run(main())

    def test_of_a_server_that_hangs_is_noticed_and_ends_with_it(self, prefix: str) -> None:
        async def main() -> None:
            with EtcdServer() as server:
                options = "timeout=1&heartbeat=0.1"
                async with (
                    opened(server.port, prefix, options) as storage,
                    Watcher(storage) as watcher,
                ):
                    await storage.commit(revision(1, "a"))
                    await watcher.reaches(1)
                    server.pause()
                    await watcher.until(lambda self: self.losses)
                    with pytest.raises(StorageError, match="does not answer in time"):
                        await storage.head()
                    with pytest.raises(StorageError, match="does not answer in time"):
                        await storage.commit(revision(2, "b"))
                    server.resume()
                    watcher.losses.clear()
                    async with opened(server.port, prefix) as other:
                        newest = (await other.head()).number
                        await other.commit(revision(newest + 1, "c"))
                    await watcher.reaches(newest + 1)

        asyncio.run(main())

    def test_of_a_network_that_swallows_is_noticed(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            with SilentProxy(server.port) as proxy:
                options = "timeout=0.4&heartbeat=0.1"
                async with (
                    opened(server.port, prefix) as direct,
                    opened(proxy.port, prefix, options) as storage,
                    Watcher(storage) as watcher,
                ):
                    await direct.commit(revision(1, "a"))
                    await watcher.reaches(1)
                    proxy.swallow_replies()
                    await direct.commit(revision(2, "b"))
                    await watcher.until(lambda self: self.losses)
                    assert watcher.given[-1].number == 1
                    proxy.heal()
                    proxy.cut_connections()
                    await watcher.reaches(2)

        asyncio.run(main())


def test_a_server_that_restarts_is_found_again_with_what_was_changed(
    server: EtcdServer, prefix: str
) -> None:
    async def main() -> None:
        async with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
            await storage.commit(revision(1, "a"))
            await watcher.reaches(1)
            for number in (2, 3):
                server.restart()
                await committed(storage, revision(number, "b"))
                await watcher.reaches(number)

    asyncio.run(main())


def test_a_connection_that_is_cut_costs_no_change(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        with SilentProxy(server.port) as proxy:
            async with (
                opened(server.port, prefix) as direct,
                opened(proxy.port, prefix) as storage,
                Watcher(storage) as watcher,
            ):
                for number in range(1, 6):
                    await direct.commit(revision(number, f"r{number}"))
                    await watcher.reaches(number)
                    proxy.cut_connections()
                await direct.commit(revision(6, "last"))
                await watcher.reaches(6)

    asyncio.run(main())


def test_a_watch_ends_when_the_storage_is_closed(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        async with opened(server.port, prefix) as storage:
            watch = storage.watch(0)
            waiting = asyncio.ensure_future(anext(watch))
            await storage.commit(revision(1, "a"))
            assert await soon(waiting) == revision(1, "a")
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0.05)
            await storage.aclose()
            with pytest.raises(StorageError, match="closed"):
                await soon(waiting)
            with pytest.raises(StorageError, match="closed"):
                await storage.head()

    asyncio.run(main())


def test_a_watch_that_its_reader_gives_up_leaves_nothing_behind(
    server: EtcdServer, prefix: str
) -> None:
    async def main() -> None:
        async with opened(server.port, prefix) as storage:
            before = len(asyncio.all_tasks())
            for _ in range(3):
                reading = asyncio.ensure_future(following(storage.watch(0), 1))
                await asyncio.sleep(0.05)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            await storage.commit(revision(1, "a"))
            await asyncio.sleep(0.05)
            assert len(asyncio.all_tasks()) == before

    asyncio.run(main())


def test_a_watch_that_never_lives_is_given_up(server: EtcdServer, prefix: str) -> None:
    """Not gone on with for ever, as fast as it goes."""

    async def main() -> None:
        async with opened(server.port, prefix) as storage:
            (endpoint,) = storage._client._endpoints
            stream, calls = endpoint.stream, itertools.count()

            def broken(method: Any, *, metadata: Any) -> Any:
                assert method is WATCH
                next(calls)
                call = stream(method, metadata=metadata)
                call.cancel()
                return call

            endpoint.stream = broken  # type: ignore[method-assign]
            await storage.commit(revision(1, "a"))
            with pytest.raises(StorageError):
                await soon(anext(storage.watch(1)))
            assert next(calls) <= 3

    asyncio.run(main())
