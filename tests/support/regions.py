"""Regions with a real Redis server each, and links between them that are slow and can be cut."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from headgate.stores.base import Store
from headgate.stores.layers.replication import ReplicatedStore
from headgate.stores.operations import Check, MergeUsage, Operation, Take
from headgate.stores.redis import RedisStore
from headgate.units import MILLISECOND, SECOND
from tests.support.faults.proxy import FaultyProxy
from tests.support.servers import RedisServer, wait_until
from tests.support.servers.urls import with_options

if TYPE_CHECKING:
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.limits import Limit

NAMES = ("eu", "us", "ap")
GROUP = "shared"
DELAY_MS = 40.0
"""The delay of a report between two regions, and of its reply."""


@dataclass(frozen=True)
class Allowed:
    """A unit: some time between *asked* and *answered*, in seconds, the server has charged it."""

    asked: float
    answered: float
    region: str


class Recording(Store):
    """The store of another region, and the times at which it merged reports."""

    grants_leases = True

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.merged: list[tuple[float, MergeUsage]] = []

    def run(self, operation: Operation[Any]) -> Any:
        reply = self._inner.run(operation)
        assert isinstance(operation, MergeUsage)
        self.merged.append((time.monotonic(), operation))
        return reply

    def close(self) -> None:
        self._inner.close()


class Regions:
    """Three regions; `links[a, b]` is the way from *a* to the server of *b*."""

    def __init__(self) -> None:
        self.servers = {name: RedisServer() for name in NAMES}
        self.links: dict[tuple[str, str], FaultyProxy] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for server in self.servers.values():
            self._stack.enter_context(server)
        for a in NAMES:
            for b in NAMES:
                if a != b:
                    proxy = FaultyProxy(self.servers[b].port)
                    self.links[a, b] = self._stack.enter_context(proxy)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def part(self) -> None:
        """No region reaches another."""
        for link in self.links.values():
            link.partition()

    def heal(self) -> None:
        """All reach each other, as slowly as ever."""
        for link in self.links.values():
            link.heal()
            link.delay_requests(ms=DELAY_MS)
            link.delay_replies(ms=DELAY_MS)

    def link_url(self, a: str, b: str, *, timeout: float) -> str:
        return with_options(self.links[a, b].url, timeout=timeout)


class World:
    """A node in each of the regions, and what it has allowed."""

    def __init__(
        self,
        regions: Regions,
        limit: Limit,
        *,
        key: str,
        timeout: float = 1.0,
        clocks: dict[str, Clock] | None = None,
        max_debt: Fraction | None = None,
    ) -> None:
        regions.heal()
        self.limit = limit
        self.key = key
        self.allowed: list[Allowed] = []
        self.recording: dict[tuple[str, str], Recording] = {}
        self.stores: dict[str, ReplicatedStore] = {}
        clocks = clocks or {}
        for a in NAMES:
            peers: dict[str, Store] = {}
            for b in NAMES:
                if a != b:
                    url = regions.link_url(a, b, timeout=timeout)
                    peer = Recording(RedisStore(url, clock=clocks.get(b)))
                    peers[b] = self.recording[a, b] = peer
            local = RedisStore(regions.servers[a].url, clock=clocks.get(a))
            self.stores[a] = ReplicatedStore(
                local,
                region=a,
                peers=peers,
                every_ns=50 * MILLISECOND,
                max_debt=max_debt,
                clock=clocks.get(a),
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self.stores.values():
            store.close()

    def hit(self, region: str, cost: int = 1) -> bool:
        asked = time.monotonic()
        (outcome,) = self.stores[region].run(Take((self._check(cost),)))
        if outcome.allowed:
            self.allowed += [Allowed(asked, time.monotonic(), region)] * cost
        return outcome.allowed

    def exhaust(self, region: str) -> int:
        """Hit until it is denied; how much was allowed."""
        count = 0
        while self.hit(region):
            count += 1
        return count

    def look(self) -> Take:
        """A hit that takes nothing."""
        return Take((self._check(1),), consume=False)

    def used(self, region: str) -> int:
        """What the store of *region* says is used; for limits that come back very slowly."""
        (outcome,) = self.stores[region].run(Take((self._check(0),), consume=False))
        return -(-outcome.reset_after_ns * self.limit.quota // self.limit.period_ns)

    def lag(self) -> int:
        return max(store.lag_ns() for store in self.stores.values())

    def wait_until_reported(self) -> None:
        wait_until(lambda: self.lag() == 0, "all regions to know everything")

    def longest_delay(self) -> float:
        """The longest, in seconds, that it took until a unit was known in another region."""
        longest = 0.0
        for (a, _), peer in self.recording.items():
            times = [one.asked for one in self.allowed if one.region == a]
            known: dict[tuple[str, int], int] = {}
            reported = 0
            for at, merge in peer.merged:
                (total,) = [check.cost for check in merge.checks if check.key == self.key]
                place = (merge.origin, merge.window)
                known[place] = max(known.get(place, 0), total)
                if sum(known.values()) > reported:
                    longest = max(longest, at - times[reported])
                    reported = sum(known.values())
        return longest

    def excess(self, *, delay: float) -> float:
        """By how much, at the worst, any interval holds more than the bound.

        C + R t, and what the other regions have allowed within *delay* before its end.
        """
        rate = self.limit.quota * SECOND / self.limit.period_ns
        found = float("-inf")
        for n, last in enumerate(self.allowed):
            unknown = sum(
                one.region != last.region and one.answered > last.asked - delay
                for one in self.allowed[: n + 1]
            )
            for inside, first in enumerate(reversed(self.allowed[: n + 1]), start=1):
                t = last.answered - first.asked
                found = max(found, inside - unknown - self.limit.quota - rate * t)
        return found

    def _check(self, cost: int) -> Check:
        return Check(GROUP, self.key, self.limit, cost)
