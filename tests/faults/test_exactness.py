"""Processes that flood one key while something breaks: never more than the stated bound.

Every process hits under four settings at once: exact limits and leases, with the default failure
policy and with `fail_closed`. One judge counts: in any interval of any length t, what the store
allowed is at most what the limit allows within t, and the units of the leases, and one more limit
for each time the store lost its memory; what one process allowed without the store is at most its
share, however often the store was gone. docs/outages.md states these bounds.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING

import pytest

from headgate.limits import SlidingWindowLog, parse_limit
from headgate.runtime.local_share import HERE
from headgate.stores.redis.naming import Names
from tests.support.faults.flooder import (
    BATCH,
    CANCELLED,
    KEY,
    SETTINGS,
    Orders,
    read_notes,
)
from tests.support.faults.proxy import FaultyProxy
from tests.support.fleet_bounds import Allowed, excess, most_in_any_span
from tests.support.servers import ClusterSetup, RedisServer, is_installed, wait_until
from tests.support.servers.process import Process
from tests.support.shm_stores import fresh_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.faults.flooder import Note

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

LIMITS = ("40/s burst 40", "40/s sliding_window_log")
NODES = 3
IN_LOOP = 1
"""Of the processes, the one with an event loop, whose callers are cancelled."""
WITHOUT = HERE | {"fallback", "fail_closed"}
"""The sources of decisions without the store."""
FLAPS = 4


class Node:
    """A process, and where it notes what it is told."""

    def __init__(self, orders: Orders, path: Path, log: Path) -> None:
        self.process = Process(orders.call(), log)
        self.settings = range(len(orders.settings))
        self.is_in_loop = orders.in_loop
        self._path = path

    @property
    def notes(self) -> list[Note]:
        return read_notes(self._path)

    def has_seen(self, setting: int, since_ns: int, *, without: bool | None) -> bool:
        """True if it was told something since then, by the store or *without* it; None: by any."""
        return any(
            note.setting == setting
            and note.asked_ns >= since_ns
            and note.source != CANCELLED
            and without in (None, note.source in WITHOUT)
            for note in self.notes
        )


class Fleet:
    """Processes on the store at *url*, which end with the block."""

    def __init__(
        self, url: str, directory: Path, *, limit: str, settings: tuple[str, ...] = SETTINGS
    ) -> None:
        self.url = url
        self.limit = limit
        self.settings = settings
        self.nodes: list[Node] = []
        self.losses = 0
        """How often the store has lost its memory."""
        self._directory = directory
        self._namespace = token_hex(4)
        self._numbers = count()
        self._ends = ExitStack()

    def __enter__(self) -> Fleet:
        with ExitStack() as ends:
            ends.callback(self._ends.close)
            for number in range(NODES):
                self.start(in_loop=number == IN_LOOP)
            self.wait_until_seen(without=False)
            ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def start(self, *, in_loop: bool = False) -> Node:
        path = self._directory / f"notes-{next(self._numbers)}"
        orders = Orders(
            self.url, str(path), self._namespace, self.limit, self.settings, in_loop=in_loop
        )
        node = Node(orders, path, self._directory / "log")
        self._ends.callback(node.process.kill)
        self.nodes.append(node)
        return node

    def wait_until_seen(self, *, without: bool | None) -> None:
        """Wait until every running process was told something under every setting, by the store or
        *without* it; None: by any."""
        since_ns = time.monotonic_ns()
        who = {True: "the processes", False: "the store", None: "anybody"}[without]
        for node in self.nodes:
            for setting in node.settings:
                if node.process.is_running and not node.process.is_paused:
                    seen = partial(node.has_seen, setting, since_ns, without=without)
                    wait_until(seen, f"{who} decided under {self.settings[setting]}")

    def be_without_store(self) -> None:
        """The store is gone: wait until every process has decided without it."""
        self.wait_until_seen(without=True)

    def flood(self, units: int = 40) -> None:
        """Wait until *units* more were allowed under each setting."""
        wanted = {n: self._allowed(n) + units for n in range(len(self.settings))}
        wait_until(
            lambda: all(self._allowed(n) >= most for n, most in wanted.items()),
            f"{units} more were allowed",
        )

    def _allowed(self, setting: int) -> int:
        return sum(one.setting == setting and one.allowed for n in self.nodes for one in n.notes)

    def judge(self) -> None:
        """Compare what was allowed with the bounds."""
        for node in self.nodes:
            node.process.kill()
        limit = parse_limit(self.limit)
        everything = [node.notes for node in self.nodes]
        for number, setting in enumerate(self.settings):
            all_mine = [[note for note in some if note.setting == number] for some in everything]
            mine = [[note for note in some if note.allowed] for some in all_mine]
            by_store = [note for some in mine for note in some if note.source not in HERE]
            leased = BATCH * len(self.nodes) if setting.startswith("leased") else 0
            units = leased + self.losses * limit.quota
            if isinstance(limit, SlidingWindowLog):  # which returns the newest unit
                cancelled = [
                    (note.asked_ns, 1)
                    for some in all_mine
                    for note in some
                    if note.source == CANCELLED
                ]
                units += most_in_any_span(cancelled, 2 * limit.window_ns)
            worst = excess(map(interval, by_store), [limit], units)
            assert worst <= 0, f"{setting}: the store allowed {worst} beyond its bound"
            for some in mine:
                here = [note for note in some if note.source in HERE]
                assert not here or setting.endswith("default"), f"{setting}: {here}"
                worst = excess(map(interval, here), [limit])
                assert worst <= 0, f"{setting}: a process allowed {worst} beyond its share"


def interval(note: Note) -> Allowed:
    return Allowed(note.asked_ns, note.decided_ns)


def killed_process(fleet: Fleet, _server: RedisServer) -> None:
    fleet.nodes[0].process.kill()
    fleet.start()
    fleet.flood()


def stopped_process(fleet: Fleet, _server: RedisServer) -> None:
    fleet.nodes[0].process.pause()
    for _ in range(5):
        fleet.wait_until_seen(without=None)  # by the process, if the stopped one has the lock
    fleet.nodes[0].process.resume()


def killed_server(fleet: Fleet, server: RedisServer) -> None:
    server.kill()
    fleet.be_without_store()
    fleet.losses += 1
    server.restart()


def stopped_server(fleet: Fleet, server: RedisServer) -> None:
    server.pause()
    fleet.be_without_store()
    server.resume()


def flushed_data(fleet: Fleet, server: RedisServer) -> None:
    for _ in range(2):
        fleet.losses += 1
        server.cli("flushall")
        fleet.flood()


def flushed_scripts(fleet: Fleet, server: RedisServer) -> None:
    for _ in range(5):
        server.cli("script", "flush")
        fleet.flood(5)


def no_memory(fleet: Fleet, server: RedisServer) -> None:
    server.cli("config", "set", "maxmemory", "1")
    fleet.be_without_store()
    server.cli("config", "set", "maxmemory", "0")


FAULTS: dict[str, Callable[[Fleet, RedisServer], None]] = {
    "kill -9 of a process": killed_process,
    "SIGSTOP of a process": stopped_process,
    "kill -9 of the server": killed_server,
    "SIGSTOP of the server": stopped_server,
    "FLUSHALL": flushed_data,
    "SCRIPT FLUSH": flushed_scripts,
    "out of memory": no_memory,
}


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as setup:
        yield setup


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fleet_on_redis_stays_within_its_bound(
    server: RedisServer, tmp_path: Path, fault: str
) -> None:
    limit = LIMITS[list(FAULTS).index(fault) % 2]
    with Fleet(server.bare_url, tmp_path, limit=limit) as fleet:
        FAULTS[fault](fleet, server)
        fleet.wait_until_seen(without=False)
        fleet.flood()
        fleet.judge()


@pytest.mark.parametrize("limit", ["1/s burst 40", "40/minute sliding_window_log"])
def test_a_store_that_comes_and_goes_does_not_add_up(
    server: RedisServer, tmp_path: Path, limit: str
) -> None:
    with (
        FaultyProxy(server.port) as proxy,
        Fleet(f"redis://{proxy.address}/0", tmp_path, limit=limit) as fleet,
    ):
        for number in range(FLAPS):
            if number % 2:
                proxy.partition()
            else:
                proxy.refuse_connections()
                proxy.reset_connections()
            fleet.be_without_store()
            proxy.heal()
            fleet.wait_until_seen(without=False)
        fleet.judge()


def killed_primary(fleet: Fleet, cluster: ClusterSetup, old: RedisServer) -> None:
    fleet.losses += 1  # of what its replica had not received
    old.kill()
    fleet.be_without_store()
    cluster.promote(old)
    old.restart()


def stopped_primary(fleet: Fleet, cluster: ClusterSetup, old: RedisServer) -> None:
    fleet.losses += 1
    old.pause()
    fleet.be_without_store()
    cluster.promote(old)
    old.resume()


def empty_replica(fleet: Fleet, cluster: ClusterSetup, old: RedisServer) -> None:
    fleet.losses += 1
    new = cluster.replica_of(old)
    old.pause()
    new.cli("config", "set", "replica-read-only", "no")
    new.cli("flushall")
    cluster.promote(old)
    old.resume()


FAILOVERS: dict[str, Callable[[Fleet, ClusterSetup, RedisServer], None]] = {
    "kill -9 of a primary": killed_primary,
    "SIGSTOP of a primary": stopped_primary,
    "failover to an empty replica": empty_replica,
}


@pytest.mark.parametrize("fault", [*FAILOVERS, "FLUSHALL", "SCRIPT FLUSH", "out of memory"])
def test_a_fleet_on_a_cluster_stays_within_its_bound(
    cluster: ClusterSetup, tmp_path: Path, fault: str
) -> None:
    cluster.wait_until_ok()
    tag = Names(has_tags=True).counter("group", KEY).partition(b"}")[0].decode()
    with Fleet(cluster.bare_url, tmp_path, limit=LIMITS[0]) as fleet:
        primary = cluster.primary_of(f"{tag}}}")
        if fault in FAILOVERS:
            FAILOVERS[fault](fleet, cluster, primary)
        else:
            FAULTS[fault](fleet, primary)
        cluster.wait_until_ok()
        fleet.wait_until_seen(without=False)
        fleet.flood()
        fleet.judge()


@pytest.mark.parametrize("fault", [killed_process, stopped_process])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_fleet_on_shared_memory_stays_within_its_bound(
    tmp_path: Path, fault: Callable[[Fleet, RedisServer | None], None], limit: str
) -> None:
    with (
        fresh_url("size=2MB") as url,
        Fleet(url, tmp_path, limit=limit, settings=SETTINGS[:2]) as fleet,
    ):
        fault(fleet, None)
        fleet.wait_until_seen(without=False)
        fleet.flood()
        fleet.judge()
