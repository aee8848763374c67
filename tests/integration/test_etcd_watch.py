"""A watch on a real etcd misses nothing: compaction, deletion, restarts, hangs."""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd import EtcdSource
from headgate.control.etcd.errors import EtcdError
from headgate.control.revision import Revision, SourceError
from tests.support.etcd_watch import Watcher, committed
from tests.support.policy_source_contract import in_thread, revision
from tests.support.servers import SilentProxy, wait_until
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@contextmanager
def opened(port: int, prefix: str, options: str = "") -> Iterator[EtcdSource]:
    storage = EtcdSource.open(f"etcd://127.0.0.1:{port}{prefix}?{options or 'timeout=5'}")
    try:
        yield storage
    finally:
        storage.close()


def test_a_change_between_the_look_and_the_watch_is_seen(server: EtcdServer, prefix: str) -> None:
    with opened(server.port, prefix, "timeout=5&heartbeat=60") as storage:
        storage.commit(revision(1, "a"))
        begin = storage._client.watch
        started: list[int] = []

        def late(key: str, start: int) -> Any:
            if not started:
                storage.commit(revision(2, "b"))
            started.append(start)
            return begin(key, start)

        storage._client.watch = late  # type: ignore[method-assign]
        at = server.revision
        storage.wait(storage.head(), 60)
        assert started == [at + 1]
        assert storage.head() == revision(2, "b")


class TestCompaction:
    def test_while_watching_changes_nothing(self, server: EtcdServer, prefix: str) -> None:
        with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
            for number in range(1, 6):
                storage.commit(revision(number, f"r{number}"))
                server.compact()
            watcher.reaches(5)
            assert not watcher.losses

    def test_while_away_leads_to_a_fresh_look(self, server: EtcdServer, prefix: str) -> None:
        """The revision to watch from is gone when the watch begins."""

        with opened(server.port, prefix) as storage:
            storage.commit(revision(1, "a"))
            begin = storage._client.watch
            starts: list[int] = []

            def late(key: str, start: int) -> Any:
                starts.append(start)
                if len(starts) == 1:
                    for number in (2, 3, 4):
                        storage.commit(revision(number, "b"))
                    server.compact()
                return begin(key, start)

            storage._client.watch = late  # type: ignore[method-assign]
            with Watcher(storage) as watcher:
                watcher.reaches(4)
                assert [one.number for one in watcher.given] == [1, 4]
                assert not watcher.losses
                assert len(starts) == 2
                storage.commit(revision(5, "c"))
                watcher.reaches(5)


class TestDeletion:
    def test_of_everything_is_revision_0(self, server: EtcdServer, prefix: str) -> None:
        with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
            storage.commit(revision(1, "a"))
            watcher.reaches(1)
            server.ctl("del", "--prefix", prefix)
            watcher.reaches(0)
            assert watcher.given[-1] == Revision(0)
            storage.commit(revision(1, "again"))
            watcher.reaches(1)
            assert watcher.given[-1] == revision(1, "again")
            assert not watcher.losses

    def test_of_the_key_alone_is_no_change(self, server: EtcdServer, prefix: str) -> None:
        with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
            storage.commit(revision(1, "a"))
            watcher.reaches(1)
            server.ctl("del", f"{prefix}policy")
            storage.commit(revision(2, "b"))
            watcher.reaches(2)
            assert [one.number for one in watcher.given] == [1, 2]

    def test_a_revision_made_again_with_the_same_number_is_given(
        self, server: EtcdServer, prefix: str
    ) -> None:
        with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
            storage.commit(revision(1, "a"))
            watcher.reaches(1)
            server.ctl("del", "--prefix", prefix)
            storage.commit(revision(1, "other"))
            watcher.until(lambda self: self.given[-1] == revision(1, "other"))


class TestSilence:
    def test_is_asked_about_and_outlived(self, server: EtcdServer, prefix: str) -> None:
        options = "timeout=5&heartbeat=0.02"
        with opened(server.port, prefix, options) as storage, Watcher(storage) as watcher:
            storage.commit(revision(1, "a"))
            watcher.reaches(1)
            time.sleep(0.3)  # a dozen heartbeats
            storage.commit(revision(2, "b"))
            watcher.reaches(2)
            assert not watcher.losses

    def test_of_a_server_that_hangs_is_noticed_and_ends_with_it(self, prefix: str) -> None:
        with EtcdServer() as server:
            options = "timeout=1&heartbeat=0.1"
            with (
                opened(server.port, prefix, options) as storage,
                Watcher(storage) as watcher,
            ):
                storage.commit(revision(1, "a"))
                watcher.reaches(1)
                server.pause()
                watcher.until(lambda self: self.losses)
                with pytest.raises(SourceError, match="does not answer in time"):
                    storage.head()
                with pytest.raises(SourceError, match="does not answer in time"):
                    storage.commit(revision(2, "b"))
                server.resume()
                watcher.losses.clear()
                with opened(server.port, prefix) as other:
                    newest = (other.head()).number
                    other.commit(revision(newest + 1, "c"))
                watcher.reaches(newest + 1)

    def test_of_a_network_that_swallows_is_noticed(self, server: EtcdServer, prefix: str) -> None:
        with SilentProxy(server.port) as proxy:
            options = "timeout=0.4&heartbeat=0.1"
            with (
                opened(server.port, prefix) as direct,
                opened(proxy.port, prefix, options) as storage,
                Watcher(storage) as watcher,
            ):
                direct.commit(revision(1, "a"))
                watcher.reaches(1)
                proxy.swallow_replies()
                direct.commit(revision(2, "b"))
                watcher.until(lambda self: self.losses)
                assert watcher.given[-1].number == 1
                proxy.heal()
                proxy.cut_connections()
                watcher.reaches(2)


def test_a_server_that_restarts_is_found_again_with_what_was_changed(
    server: EtcdServer, prefix: str
) -> None:
    with opened(server.port, prefix) as storage, Watcher(storage) as watcher:
        storage.commit(revision(1, "a"))
        watcher.reaches(1)
        for number in (2, 3):
            server.restart()
            committed(storage, revision(number, "b"))
            watcher.reaches(number)


def test_a_connection_that_is_cut_costs_no_change(server: EtcdServer, prefix: str) -> None:
    with (
        SilentProxy(server.port) as proxy,
        opened(server.port, prefix) as direct,
        opened(proxy.port, prefix) as storage,
        Watcher(storage) as watcher,
    ):
        for number in range(1, 6):
            direct.commit(revision(number, f"r{number}"))
            watcher.reaches(number)
            proxy.cut_connections()
        direct.commit(revision(6, "last"))
        watcher.reaches(6)


def test_a_watch_ends_when_the_source_is_closed(server: EtcdServer, prefix: str) -> None:
    with opened(server.port, prefix) as storage:
        newest = storage.head()
        with in_thread(storage.wait, newest, 60) as waiting:
            wait_until(lambda: storage._stream is not None, "the watch has begun")
            storage.close()
            with pytest.raises(SourceError, match="closed"):
                waiting.result(10)
        with pytest.raises(SourceError, match="closed"):
            storage.head()


def test_a_watch_that_is_closed_between_two_calls_ends_the_same_way(
    server: EtcdServer, prefix: str
) -> None:
    with opened(server.port, prefix) as storage:
        newest = storage.head()
        ping = storage._client.ping

        def ping_before_the_close(endpoint: Any, key: str) -> int:
            written = ping(endpoint, key)
            storage._client.close()
            storage._is_closed = True
            storage.wake()
            return written

        storage._client.ping = ping_before_the_close  # type: ignore[method-assign]
        with pytest.raises(SourceError, match="closed"):
            storage.wait(newest, 60)


def test_a_watch_that_never_lives_is_given_up(server: EtcdServer, prefix: str) -> None:
    """Not gone on with for ever, as fast as it goes."""
    with opened(server.port, prefix) as storage:
        calls = itertools.count()

        def broken(key: str, start: int) -> Any:
            next(calls)
            raise EtcdError("host", "unreachable", "the watch has ended")

        storage._client.watch = broken  # type: ignore[method-assign]
        storage.commit(revision(1, "a"))
        storage.wait(storage.head(), 60)  # another member might keep one alive
        newest = storage.head()
        with pytest.raises(SourceError, match="the watch has ended"):
            storage.wait(newest, 60)
        assert next(calls) == 2


def test_a_watch_that_fell_silent_is_noticed_by_the_heartbeat(
    server: EtcdServer, prefix: str
) -> None:
    with opened(server.port, prefix, "timeout=5&heartbeat=0.05") as storage:
        known = storage.head()
        with in_thread(storage.wait, known, 60) as waiting:
            wait_until(lambda: storage._stream is not None, "the watch has begun")
            storage._stream.wait = lambda *_: False  # type: ignore[method-assign, union-attr]
            storage.commit(revision(1, "a"))
            waiting.result(10)
