"""A cluster of six nodes, whose primaries can die and whose slots can move.

A replica takes over when the test says so (CLUSTER FAILOVER TAKEOVER), without an election. Left to
the nodes it takes some seconds, more when the votes are split, and on a busy machine a node that is
only late loses its slots as well.
"""

from __future__ import annotations

from binascii import crc_hqx
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.support.servers.instance import EXECUTABLE
from tests.support.servers.migration import Migration
from tests.support.servers.process import ServerError
from tests.support.servers.server import RedisServer
from tests.support.servers.urls import PATIENCE, with_options
from tests.support.servers.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLOTS = 16_384
_CONFIG = (
    "cluster-enabled yes",
    "cluster-config-file nodes.conf",
    "cluster-node-timeout 20000",  # nobody is taken for dead who is only late
    "cluster-replica-no-failover yes",  # unless it is told to
    "cluster-require-full-coverage no",  # who hangs for long takes only its own slots along
    "cluster-allow-replica-migration no",  # nothing moves that a test has not moved
)
_PROBES = tuple(f"probe-{number}" for number in range(1_000))


@dataclass(frozen=True, slots=True)
class Member:
    """A node as another one sees it: a line of CLUSTER NODES."""

    id: str
    port: int
    flags: frozenset[str]
    primary_id: str
    slots: tuple[range, ...]

    @classmethod
    def parse(cls, line: str) -> Member:
        """Of `id host:port@bus flags primary ping pong epoch link slots...`."""
        name, place, flags, primary_id, *_ = fields = line.split()
        port = int(place.partition("@")[0].rpartition(":")[2])
        slots = tuple(_slots(text) for text in fields[8:] if not text.startswith("["))
        return cls(name, port, frozenset(flags.split(",")), primary_id, slots)

    @property
    def is_primary(self) -> bool:
        """Whether it owns slots, and nobody holds it for dead."""
        return "master" in self.flags and "fail" not in self.flags and bool(self.slots)


def _slots(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class ClusterSetup:
    """Three primaries with a replica each, made by `redis-cli --cluster create`.

    Nothing happens to a node that hangs or dies until the test promotes its replica. *config* are
    more lines for redis.conf.
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        config: Sequence[str] = (),
        executable: str = EXECUTABLE,
    ) -> None:
        lines = [*_CONFIG, *config, *([f"masterauth {password}"] if password else [])]
        self.nodes = tuple(
            RedisServer(password=password, config=lines, executable=executable) for _ in range(6)
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """redis+cluster://host:port,host:port,... with all six nodes, and `PATIENCE`."""
        return with_options(self.bare_url, timeout=PATIENCE)

    @property
    def bare_url(self) -> str:
        """The same without options."""
        places = ",".join(node.address for node in self.nodes)
        return f"redis+cluster://{self.nodes[0].credentials}{places}"

    def start(self) -> None:
        """Start the nodes, make them a cluster, and wait until all of them are content."""
        for node in self.nodes:
            node.start()
            node.cli("config", "set", "cluster-node-timeout", "1000")  # they get acquainted sooner
        places = [node.address for node in self.nodes]
        options = ("--cluster-replicas", "1", "--cluster-yes")
        self.nodes[0].cli("--cluster", "create", *places, *options, within=30.0)
        self.wait_until_ok()
        for node in self.nodes:
            node.cli("config", "set", "cluster-node-timeout", "20000")

    def stop(self) -> None:
        """End all six."""
        for node in self.nodes:
            node.close()

    def primaries(self) -> list[RedisServer]:
        """The nodes that own slots now."""
        ports = {member.port for member in self.members() if member.is_primary}
        return [node for node in self.nodes if node.port in ports]

    def members(self) -> list[Member]:
        """The nodes, as the first of those that answer sees them."""
        return _members(self._answering()[0])

    def id_of(self, node: RedisServer) -> str:
        """The id that the cluster knows *node* by."""
        return next(member.id for member in self.members() if member.port == node.port)

    def slot_of(self, key: str) -> int:
        """The slot that *key* belongs to."""
        return int(self._answering()[0].cli("cluster", "keyslot", key))

    def primary_of(self, key: str) -> RedisServer:
        """The node that owns *key*."""
        return self.owner_of(self.slot_of(key))

    def owner_of(self, slot: int) -> RedisServer:
        """The node that owns *slot*."""
        for member in self.members():
            if member.is_primary and any(slot in part for part in member.slots):
                return next(node for node in self.nodes if node.port == member.port)
        raise ServerError(f"slot {slot} has no owner")

    def key_on(self, node: RedisServer, *, prefix: str = "key") -> str:
        """A key that belongs to *node*, which is a primary."""
        return next(
            key
            for key in (f"{prefix}-{number}" for number in range(SLOTS))
            if self.primary_of(key) is node
        )

    def fail_over(self, key: str) -> RedisServer:
        """Kill the node that owns *key* and have its replica take over, which is the result.

        `restart()` of the dead one makes it a replica; `wait_until_ok` waits for that.
        """
        old = self.primary_of(key)
        old.kill()
        return self.promote(old)

    def promote(self, old: RedisServer) -> RedisServer:
        """Have the replica of *old* take its slots, be *old* dead, hung or well; the replica."""
        new = self.replica_of(old)
        new.cli("cluster", "failover", "takeover")
        wait_until(lambda: new in self.primaries(), f"{new} has taken over from {old}")
        self.wait_until_ok()
        return new

    def replica_of(self, primary: RedisServer) -> RedisServer:
        """The node that follows *primary*."""
        name = self.id_of(primary)
        port = next(member.port for member in self.members() if member.primary_id == name)
        return next(node for node in self.nodes if node.port == port)

    def move_slot(self, slot: int, target: RedisServer) -> None:
        """Make *target* the owner of *slot* and of all its keys, while clients go on."""
        with self.migrating(slot, target):
            pass

    @contextmanager
    def migrating(self, slot: int, target: RedisServer) -> Iterator[Migration]:
        """Begin to move *slot* to *target*; keys move when the test says so.

        The rest of the move is done at the end, unless the test did it itself.
        """
        migration = Migration(slot, self.owner_of(slot), target, self.primaries(), self.id_of)
        migration.begin()
        try:
            yield migration
        except BaseException:
            with suppress(ServerError):  # the test's own failure is what matters
                self._finish(migration)
            raise
        self._finish(migration)

    def _finish(self, migration: Migration) -> None:
        migration.finish()
        self.wait_until_ok()

    def wait_until_ok(self) -> None:
        """Wait until the nodes that run own all slots and agree on everything; replicas follow."""
        wait_until(self._is_ok, "the nodes of the cluster agree", every=0.05)
        for node in self._answering():
            wait_until(lambda node=node: self._is_replicated(node), f"a replica follows {node}")  # type: ignore[misc]

    def _is_ok(self) -> bool:
        nodes = self._answering()
        ports = {node.port for node in nodes}
        views = {_roles(node, ports) for node in nodes}
        owners = {port for view in views for port, _, slots in view if slots}
        return len(views) == 1 and owners <= ports and all(map(_is_content, nodes))

    def _is_replicated(self, node: RedisServer) -> bool:
        """Whether a replica gets what is written to *node*; True if there is none that could."""
        members = _members(node)
        myself = next(member for member in members if member.port == node.port)
        ports = {one.port for one in self._answering()}
        if not any(one.primary_id == myself.id and one.port in ports for one in members):
            return True
        return node.replicates(next(key for key in _PROBES if _owns(myself, key)))

    def _answering(self) -> list[RedisServer]:
        if nodes := [node for node in self.nodes if node.is_answering]:
            return nodes
        raise ServerError("no node of the cluster runs")


def _owns(member: Member, key: str) -> bool:
    return any(crc_hqx(key.encode(), 0) % SLOTS in part for part in member.slots)


def _members(node: RedisServer) -> list[Member]:
    return [Member.parse(line) for line in node.cli("cluster", "nodes").splitlines()]


def _roles(node: RedisServer, ports: set[int]) -> frozenset[tuple[int, str, tuple[range, ...]]]:
    """Whom those on *ports* follow and which slots they own, as *node* has it; all other owners."""
    members = [one for one in _members(node) if one.slots or one.port in ports]
    return frozenset((one.port, one.primary_id, one.slots) for one in members)


def _is_content(node: RedisServer) -> bool:
    state = node.cli("cluster", "info")
    if "cluster_state:ok" not in state or f"cluster_slots_ok:{SLOTS}" not in state:
        return False
    return node.info("replication").get("master_link_status", "up") == "up"
