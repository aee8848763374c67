"""A cluster of three etcds: members that restart, die and hang cost no change and no certainty."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.control.etcd import EtcdStorage
from headgate.control.revision import ConflictError, StorageError
from tests.support.etcd_watch import Watcher, committed
from tests.support.policy_storage_contract import revision, soon
from tests.support.servers.etcd import EtcdCluster, EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.skipif(not etcd_is_installed(), reason="run scripts/install-servers")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared() -> Iterator[EtcdCluster]:
    with EtcdCluster() as running:
        yield running


@pytest.fixture
def cluster(shared: EtcdCluster) -> Iterator[EtcdCluster]:
    """The shared cluster, with all members well before and after."""
    yield shared
    for member in shared.members:
        if not member.is_running:
            member.start()
        elif not member.is_answering:
            member.resume()
            member.wait()


@asynccontextmanager
async def opened(
    members: tuple[EtcdServer, ...], prefix: str, options: str = "timeout=6&heartbeat=0.2"
) -> AsyncIterator[EtcdStorage]:
    places = ",".join(member.address for member in members)
    storage = EtcdStorage.open(f"etcd://{places}{prefix}?{options}")
    try:
        yield storage
    finally:
        await storage.aclose()


@pytest.fixture
def prefix() -> str:
    """A place that nobody has used."""
    return f"/place-{next(_numbers)}/"


def test_every_member_in_turn_restarts_while_changes_go_on(
    cluster: EtcdCluster, prefix: str
) -> None:
    """Three nodes that know different members all see the last change, and none is lost."""

    async def main() -> None:
        done = asyncio.Event()
        async with (
            opened(cluster.members, prefix) as writer,
            opened(cluster.members, prefix) as one,
            opened(cluster.members[:2], prefix) as two,
            opened(cluster.members[1:], prefix) as three,
            Watcher(one) as first,
            Watcher(two) as second,
            Watcher(three) as third,
        ):
            writing = asyncio.ensure_future(_write(writer, done))
            for member in cluster.members:
                await asyncio.to_thread(member.stop)
                await asyncio.sleep(0.2)
                member.launch()
                await asyncio.to_thread(member.wait)
            done.set()
            last = await soon(writing)
            for watcher in (first, second, third):
                await watcher.reaches(last)
                numbers = [one.number for one in watcher.given]
                assert numbers == sorted(set(numbers))
            history = await writer.history(most=last)
            assert [number for number, _ in history] == [*range(last, max(last - 100, 0), -1)]
            assert last > 10

    asyncio.run(main())


async def _write(storage: EtcdStorage, done: asyncio.Event) -> int:
    number = 0
    while not done.is_set():
        number += 1
        await committed(storage, revision(number, f"r{number}"))
        await asyncio.sleep(0.01)
    return number


def test_a_leader_that_dies_costs_no_change(cluster: EtcdCluster, prefix: str) -> None:
    async def main() -> None:
        async with (
            opened(cluster.members, prefix) as storage,
            opened(cluster.members, prefix) as other,
            Watcher(other) as watcher,
        ):
            for number in range(1, 6):
                await storage.commit(revision(number, "a"))
            await watcher.reaches(5)
            leader = await asyncio.to_thread(cluster.leader)
            leader.kill()
            await storage.commit(revision(6, "b"))  # waits for the new leader by itself
            await watcher.reaches(6)
            assert not watcher.losses
            assert await storage.at(5) == revision(5, "a")

    asyncio.run(main())


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_member_that_hangs_is_left_within_the_deadline(
    cluster: EtcdCluster, prefix: str, which: int
) -> None:
    """Be it the leader or not, and be it the one that was asked until now or not."""

    async def main() -> None:
        async with (
            opened(cluster.members, prefix) as storage,
            opened(cluster.members, prefix) as other,
            Watcher(other) as watcher,
        ):
            await storage.commit(revision(1, "a"))
            await watcher.reaches(1)
            cluster.members[which].pause()
            await storage.commit(revision(2, "b"))
            assert await storage.head() == revision(2, "b")
            await watcher.reaches(2)

    asyncio.run(main())


def test_a_member_without_the_others_says_so(cluster: EtcdCluster, prefix: str) -> None:
    """It must neither serve what is old nor let a watch wait for ever."""

    async def main() -> None:
        alone, *others = cluster.members
        async with (
            opened(cluster.members, prefix) as every,
            opened((alone,), prefix, "timeout=1&heartbeat=0.2") as storage,
            Watcher(storage) as watcher,
        ):
            await every.commit(revision(1, "a"))
            await watcher.reaches(1)
            for other in others:
                other.pause()
            await watcher.until(lambda self: self.losses)
            with pytest.raises(StorageError, match=r"no leader|in time"):
                await storage.head()
            with pytest.raises(StorageError, match=r"no leader|in time"):
                await storage.commit(revision(2, "b"))
            for other in others:
                other.resume()
            newest = (await every.head()).number
            await committed(every, revision(newest + 1, "c"))
            await watcher.reaches(newest + 1)

    asyncio.run(main())


def test_writers_through_all_members_lose_no_update_while_the_leader_dies(
    cluster: EtcdCluster, prefix: str
) -> None:
    """Each change that was said to be made is there, once."""
    made: set[str] = set()

    async def write(name: str, members: tuple[EtcdServer, ...]) -> None:
        async with opened(members, prefix) as storage:
            for turn in range(8):
                await _add(storage, f"{name}-{turn}")
                made.add(f"{name}-{turn}")

    async def main() -> None:
        turned = [cluster.members[n:] + cluster.members[:n] for n in range(3)]
        leader = await asyncio.to_thread(cluster.leader)
        writing = [asyncio.ensure_future(write(f"w{n}", turned[n])) for n in range(3)]
        await asyncio.sleep(0.1)
        leader.kill()
        async with asyncio.timeout(20):
            await asyncio.gather(*writing)
        async with opened(cluster.members, prefix) as storage:
            head = await storage.head()
        rules = [rule["id"] for rule in head.document["rules"]]
        assert made == set(rules)
        assert len(rules) == len(made) == head.number == 24

    asyncio.run(main())


async def _add(storage: EtcdStorage, rule: str) -> None:
    """Add *rule*, whatever it takes; but never twice."""
    while True:
        head = await storage.head()
        rules = [one["id"] for one in head.document["rules"]]
        if rule in rules:
            return  # nobody could say so, and it was made after all
        try:
            await storage.commit(revision(head.number + 1, *rules, rule))
        except ConflictError:
            continue
        except StorageError:
            await asyncio.sleep(0.05)
        else:
            return


class TestWithoutMembers:
    def test_none_at_all_is_said_at_once(self) -> None:
        async def main() -> None:
            members = tuple(EtcdServer() for _ in range(3))  # not started
            async with opened(members, "/nowhere/", "timeout=600") as storage:
                with pytest.raises(StorageError, match="cannot be reached"):
                    await soon(storage.head())
                with pytest.raises(StorageError, match="cannot be reached"):
                    await soon(storage.commit(revision(1, "a")))
                with pytest.raises(StorageError, match="cannot be reached"):
                    await soon(anext(storage.watch(0)))
            for member in members:
                member.close()

        asyncio.run(main())

    def test_one_that_is_there_later_is_found(self, prefix: str) -> None:
        async def main() -> None:
            server = EtcdServer()
            async with opened((server,), prefix) as storage, Watcher(storage) as watcher:
                await watcher.until(lambda self: self.losses)
                server.start()
                await committed(storage, revision(1, "a"))
                await watcher.reaches(1)
            server.close()

        asyncio.run(main())
