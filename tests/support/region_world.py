"""Regions on virtual time: stores with clocks of their own, nodes, and links that lose messages."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.errors import StoreError
from headgate.stores.layers.replication.store import Link
from headgate.stores.layers.replication.usage import RegionUsage
from headgate.stores.operations import Check, MergeUsage, Take
from headgate.units import MILLISECOND, MINUTE, SECOND
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from fractions import Fraction

    from headgate.limits import Limit
    from headgate.stores.layers.replication.usage import Report

GROUP = "shared"
TIMEOUT = 300 * MILLISECOND


@dataclass
class Faults:
    """How often which thing happens to a message."""

    lost: float = 0.0
    unanswered: float = 0.0
    repeated: float = 0.0
    late: float = 0.0


@dataclass
class Node:
    """What one node has used, its links to the other regions, and its clock, which is wrong."""

    region: str
    usages: list[RegionUsage]
    links: list[Link]
    clock: Callable[[], int]


@dataclass
class Region:
    """A region's store, on a clock that is wrong, and its nodes."""

    name: str
    store: LeaseGrantingStore
    nodes: list[Node] = field(default_factory=list)
    merged: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Allowed:
    at: int
    region: str
    key: str
    cost: int


class World:
    """*names* of regions with *nodes* nodes each, all under *limit*; the time is `now`."""

    def __init__(
        self,
        limit: Limit,
        chance: random.Random,
        *,
        names: tuple[str, ...] = ("eu", "us"),
        nodes: int = 1,
        every_ns: int = 100 * MILLISECOND,
        latency_ns: int = 20 * MILLISECOND,
        faults: Faults | None = None,
        max_skew_ns: int = 10 * MINUTE,
        max_keys: int = 1_000,
        max_debt: Fraction | None = None,
    ) -> None:
        self.now = 1_000 * MINUTE
        self.limit = limit
        self.chance = chance
        self.latency_ns = latency_ns
        self.faults = faults or Faults()
        self.cut: set[tuple[str, str]] = set()
        self.allowed_units: list[Allowed] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.regions = {
            name: Region(name, LeaseGrantingStore(clock=self._clock(max_skew_ns))) for name in names
        }
        for region in self.regions.values():
            others = [name for name in names if name != region.name]
            for _ in range(nodes):
                origin = f"{region.name}/{next(self._numbers)}"
                usages = [RegionUsage(origin, max_keys=max_keys, max_debt=max_debt) for _ in others]
                links = [
                    Link(region.name, peer, every_ns=every_ns, chance=chance.random)
                    for peer in others
                ]
                node = Node(region.name, usages, links, self._clock(max_skew_ns))
                region.nodes.append(node)
                for peer in range(len(others)):
                    self._tick(node, peer)

    def _clock(self, max_skew_ns: int) -> Callable[[], int]:
        skew = self.chance.randint(-max_skew_ns, max_skew_ns)
        return lambda: self.now + skew

    def at(self, when: int, what: Callable[[], None]) -> None:
        """Have *what* done at *when*."""
        heapq.heappush(self._events, (when, next(self._numbers), what))

    def run_for(self, duration_ns: int) -> None:
        """Let time pass."""
        end = self.now + duration_ns
        while self._events and self._events[0][0] <= end:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = end

    def hit(self, region: Region, key: str, cost: int = 1) -> bool:
        """A request arrives at one of the nodes of *region*."""
        node = self.chance.choice(region.nodes)
        take = Take((Check(GROUP, key, self.limit, cost),))
        outcomes = region.store.run(take)
        for usage in node.usages:
            usage.record(take, outcomes, node.clock())
        if outcomes[0].allowed and cost:
            self.allowed_units.append(Allowed(self.now, region.name, key, cost))
        return outcomes[0].allowed

    def used(self, region: Region, key: str) -> int:
        return region.store.used_in(GROUP, key)

    def wait(self, region: Region, key: str) -> int:
        """How long *region* would deny *key*."""
        look = Take((Check(GROUP, key, self.limit),), consume=False)
        return region.store.run(look)[0].retry_after_ns or 0

    def total(self, key: str, *, without: str | None = None) -> int:
        """What all regions, or all but one, have allowed."""
        return sum(
            one.cost for one in self.allowed_units if one.key == key and one.region != without
        )

    def is_quiet(self) -> bool:
        nodes = [node for region in self.regions.values() for node in region.nodes]
        return not any(usage.pending for node in nodes for usage in node.usages)

    def heal(self) -> None:
        self.cut.clear()
        self.faults = Faults()

    def _tick(self, node: Node, peer: int, spent_ns: int = 0) -> None:
        """Messages from *node* to one region go out, until that is done; then it pauses."""

        def go() -> None:
            is_late = not node.links[peer].is_up
            reports = list(node.usages[peer].reports(node.clock, is_late=is_late))
            self._send(node, peer, reports, self.now)

        self.at(self.now + node.links[peer].pause_ns(spent_ns), go)

    def _send(self, node: Node, peer: int, left: list[Report], began: int) -> None:
        if not left:
            node.links[peer].succeeded()
            self._tick(node, peer, self.now - began)
            return
        report, *rest = left
        target = self.regions[node.links[peer].peer]
        luck = self.chance.random
        faults = self.faults

        def deliver() -> None:
            self._merge(target, report.operation)

        def answer() -> None:
            self._merge(target, report.operation)
            self.at(self.now + self.latency_ns, acknowledge)

        def acknowledge() -> None:
            node.usages[peer].acknowledge(report)
            self._send(node, peer, rest, began)

        def missed() -> None:
            node.links[peer].failed(StoreError("no reply", reason="timeout"))
            self._tick(node, peer)

        if (node.region, target.name) in self.cut or luck() < faults.lost:
            self.at(self.now + TIMEOUT, missed)
            return
        if luck() < faults.late:
            self.at(self.now + self.latency_ns + self.chance.randint(0, 5 * SECOND), deliver)
            self.at(self.now + TIMEOUT, missed)
            return
        if luck() < faults.repeated:
            self.at(self.now + self.latency_ns + self.chance.randint(0, 2 * SECOND), deliver)
        if luck() < faults.unanswered:
            self.at(self.now + self.latency_ns, deliver)
            self.at(self.now + TIMEOUT, missed)
            return
        self.at(self.now + self.latency_ns, answer)

    def _merge(self, region: Region, merge: MergeUsage) -> None:
        """Hand a message to the store of *region*, and put down what it has charged."""
        before = {check.key: self.used(region, check.key) for check in merge.checks}
        region.store.run(merge)
        for key, used in before.items():
            more = self.used(region, key) - used
            region.merged[key] = region.merged.get(key, 0) + more
