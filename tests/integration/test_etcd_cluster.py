"""A cluster of three etcds: members that restart, die and hang cost no change and no certainty."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.control.etcd import EtcdSource
from headgate.control.revision import ConflictError, Revision, SourceError
from tests.support.etcd_watch import SOON, Watcher, committed
from tests.support.policy_source_contract import revision
from tests.support.servers.etcd import EtcdCluster, EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def opened(
    members: tuple[EtcdServer, ...], prefix: str, options: str = "timeout=6&heartbeat=0.2"
) -> Iterator[EtcdSource]:
    places = ",".join(member.address for member in members)
    storage = EtcdSource.open(f"etcd://{places}{prefix}?{options}")
    try:
        yield storage
    finally:
        storage.close()


@pytest.fixture
def prefix() -> str:
    """A place that nobody has used."""
    return f"/place-{next(_numbers)}/"


def test_every_member_in_turn_restarts_while_changes_go_on(
    cluster: EtcdCluster, prefix: str
) -> None:
    """Three nodes that know different members all see the last change, and none is lost."""

    done = threading.Event()
    with (
        ThreadPoolExecutor(1) as pool,
        opened(cluster.members, prefix) as writer,
        opened(cluster.members, prefix) as one,
        opened(cluster.members[:2], prefix) as two,
        opened(cluster.members[1:], prefix) as three,
        Watcher(one) as first,
        Watcher(two) as second,
        Watcher(three) as third,
    ):
        writing = pool.submit(_write, writer, done)
        for member in cluster.members:
            member.stop()
            time.sleep(0.2)
            member.launch()
            member.wait()
        done.set()
        last = writing.result(SOON)
        for watcher in (first, second, third):
            watcher.reaches(last)
            numbers = [one.number for one in watcher.given]
            assert numbers == sorted(set(numbers))
        history = writer.history(most=last)
        assert [number for number, _ in history] == [*range(last, max(last - 100, 0), -1)]
        assert last > 10


def _write(storage: EtcdSource, done: threading.Event) -> int:
    number = 0
    while not done.is_set():
        number += 1
        committed(storage, revision(number, f"r{number}"))
        time.sleep(0.01)
    return number


def test_a_leader_that_dies_costs_no_change(cluster: EtcdCluster, prefix: str) -> None:
    with (
        opened(cluster.members, prefix) as storage,
        opened(cluster.members, prefix) as other,
        Watcher(other) as watcher,
    ):
        for number in range(1, 6):
            storage.commit(revision(number, "a"))
        watcher.reaches(5)
        leader = cluster.leader()
        leader.kill()
        storage.commit(revision(6, "b"))  # waits for the new leader by itself
        watcher.reaches(6)
        assert not watcher.losses
        assert storage.at(5) == revision(5, "a")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_member_that_hangs_is_left_within_the_deadline(
    cluster: EtcdCluster, prefix: str, which: int
) -> None:
    """Be it the leader or not, and be it the one that was asked until now or not."""

    with (
        opened(cluster.members, prefix) as storage,
        opened(cluster.members, prefix) as other,
        Watcher(other) as watcher,
    ):
        storage.commit(revision(1, "a"))
        watcher.reaches(1)
        cluster.members[which].pause()
        storage.commit(revision(2, "b"))
        assert storage.head() == revision(2, "b")
        watcher.reaches(2)


def test_a_member_without_the_others_says_so(cluster: EtcdCluster, prefix: str) -> None:
    """It must neither serve what is old nor let a watch wait for ever."""

    alone, *others = cluster.members
    with (
        opened(cluster.members, prefix) as every,
        opened((alone,), prefix, "timeout=1&heartbeat=0.2") as storage,
        Watcher(storage) as watcher,
    ):
        every.commit(revision(1, "a"))
        watcher.reaches(1)
        for other in others:
            other.pause()
        watcher.until(lambda self: self.losses)
        with pytest.raises(SourceError, match=r"no leader|in time"):
            storage.head()
        with pytest.raises(SourceError, match=r"no leader|in time"):
            storage.commit(revision(2, "b"))
        for other in others:
            other.resume()
        newest = (every.head()).number
        committed(every, revision(newest + 1, "c"))
        watcher.reaches(newest + 1)


def test_writers_through_all_members_lose_no_update_while_the_leader_dies(
    cluster: EtcdCluster, prefix: str
) -> None:
    """Each change that was said to be made is there, once."""
    made: set[str] = set()

    def write(name: str, members: tuple[EtcdServer, ...]) -> None:
        with opened(members, prefix) as storage:
            for turn in range(8):
                _add(storage, f"{name}-{turn}")
                made.add(f"{name}-{turn}")

    turned = [cluster.members[n:] + cluster.members[:n] for n in range(3)]
    leader = cluster.leader()
    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, f"w{n}", turned[n]) for n in range(3)]
        time.sleep(0.1)
        leader.kill()
        for one in writing:
            one.result(20)
    with opened(cluster.members, prefix) as storage:
        head = storage.head()
    rules = [rule["id"] for rule in head.document["rules"]]
    assert made == set(rules)
    assert len(rules) == len(made) == head.number == 24


def _add(storage: EtcdSource, rule: str) -> None:
    """Add *rule*, whatever it takes; but never twice."""
    while True:
        head = storage.head()
        rules = [one["id"] for one in head.document["rules"]]
        if rule in rules:
            return  # nobody could say so, and it was made after all
        try:
            storage.commit(revision(head.number + 1, *rules, rule))
        except ConflictError:
            continue
        except SourceError:
            time.sleep(0.05)
        else:
            return


class TestWithoutMembers:
    def test_none_at_all_is_said_at_once(self) -> None:
        members = tuple(EtcdServer() for _ in range(3))  # not started
        with opened(members, "/nowhere/", "timeout=600") as storage:
            with pytest.raises(SourceError, match="cannot be reached"):
                storage.head()
            with pytest.raises(SourceError, match="cannot be reached"):
                storage.commit(revision(1, "a"))
            for _ in members:
                storage.wait(Revision(0), 60)  # another member might be there
            with pytest.raises(SourceError, match="cannot be reached"):
                storage.wait(Revision(0), 60)
        for member in members:
            member.close()

    def test_one_that_is_there_later_is_found(self, prefix: str) -> None:
        server = EtcdServer()
        with opened((server,), prefix) as storage, Watcher(storage) as watcher:
            watcher.until(lambda self: self.losses)
            server.start()
            committed(storage, revision(1, "a"))
            watcher.reaches(1)
        server.close()
