"""The links of one node to the other regions, and the usage that it reports over them."""

from __future__ import annotations

import logging
import random
import threading
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import MonotonicClock
from headgate.errors import OptionError
from headgate.observability import MEASURES
from headgate.stores.layers.replication.usage import MOST_COUNTERS, RegionUsage, usage_of
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.errors import HeadgateError
    from headgate.stores.base import Place
    from headgate.stores.layers.replication.usage import Report
    from headgate.stores.operations import Operation, Outcomes


LOG: Final = logging.getLogger("headgate.stores.layers.replication")

LONGEST_PAUSE_NS: Final = 2 * SECOND
"""The longest pause before the next report to a region that could not be reached."""

JITTER: Final = 0.25
"""The part of itself by which a pause is shorter or longer: a fleet must not report in step."""

DEFAULT_EVERY_NS: Final = 100 * MILLISECOND
"""The period of reports."""

DEFAULT_MAX_KEYS: Final = 20_000
"""The most totals that a node remembers."""

CLOSE_TIMEOUT_NS: Final = SECOND
"""The time for which a store that is closed goes on reporting."""


class Link:
    """The link from *region* to *peer*, used every *every_ns* while there is something to report.

    After a failure it pauses for a time that doubles each time, up to `LONGEST_PAUSE_NS`, cut at
    random to between its half and its whole. *chance* gives random numbers from 0 to 1.
    """

    def __init__(
        self, region: str, peer: str, *, every_ns: int, chance: Callable[[], float]
    ) -> None:
        self.peer = peer
        self._region = region
        self._every_ns = every_ns
        self._chance = chance
        self._failures = 0
        self._reports = MEASURES.counter(
            "region_exchanges", "Reports that another region has merged.", peer=peer
        )
        self._failed = MEASURES.counter(
            "region_failures", "Reports to another region that failed.", peer=peer
        )

    @property
    def is_up(self) -> bool:
        """True if the last report has arrived."""
        return self._failures == 0

    def acknowledged(self) -> None:
        """Count a report that has arrived."""
        self._reports.add()

    def succeeded(self) -> None:
        """Record that all reports have arrived."""
        if self._failures:
            LOG.warning(
                "region %s: %s can be reached again after %d failed attempts",
                self._region,
                self.peer,
                self._failures,
            )
        self._failures = 0

    def failed(self, error: HeadgateError) -> None:
        """Record that a report has failed, or its result is unknown."""
        self._failed.add()
        if not self._failures:
            LOG.warning(
                "region %s: cannot report usage to %s, retrying: %s",
                self._region,
                self.peer,
                error,
            )
        self._failures += 1

    def closed(self, counters: int) -> None:
        """Record that the store is closed, and the region does not know all of *counters*."""
        LOG.warning(
            "region %s: closed before all usage of %d counters was reported to %s",
            self._region,
            counters,
            self.peer,
        )

    def pause_ns(self, spent_ns: int = 0) -> int:
        """The pause before the next reports if those before took *spent_ns*."""
        if self._failures:
            longest = min(self._every_ns << min(self._failures, 20), LONGEST_PAUSE_NS)
            longest = max(longest, self._every_ns)
            return int(longest * (1 + self._chance()) / 2)
        pause = int(self._every_ns * (1 - JITTER + 2 * JITTER * self._chance()))
        return max(pause - spent_ns, 0)


class Exchange:
    """The usage of this node and its links to the other regions. Safe to share among threads.

    The region is *region*, the others are *peers*, by their names; they get reports every
    *every_ns*. *groups* and *max_debt_ns* are as for `RegionUsage`. *clock* numbers the windows.
    """

    def __init__(
        self,
        region: str,
        peers: Iterable[str],
        *,
        every_ns: int,
        groups: Collection[str] | None,
        max_keys: int,
        max_debt_ns: int | None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        _check_least(every_ns, "every_ns", MILLISECOND)
        _check_least(max_keys, "max_keys", 1)
        if max_debt_ns is not None:
            _check_least(max_debt_ns, "max_debt_ns", 0)
        self.region = region
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.links = tuple(
            Link(region, peer, every_ns=every_ns, chance=chance) for peer in sorted(peers)
        )
        self._max_keys = max_keys
        self._max_debt_ns = max_debt_ns
        self._groups = groups
        self._dropped = MEASURES.counter(
            "region_keys_dropped", "Counters whose usage was not reported in full."
        )
        self._spared = MEASURES.counter(
            "region_units_spared", "Units that were not reported to a region in debt."
        )
        self._gauges = [Lag(self, n) for n in range(len(self.links))]
        for link, gauge in zip(self.links, self._gauges, strict=True):
            text = "Age in seconds of the oldest usage that a region does not know."
            MEASURES.gauge("region_lag_seconds", text, gauge.seconds, peer=link.peer)
        self.after_fork()

    def after_fork(self) -> None:
        """Start without usage: the parent process reports its own."""
        self._lock = threading.Lock()
        self._usage = RegionUsage(
            f"{self.region}/{token_hex(6)}",
            peers=len(self.links),
            max_keys=self._max_keys,
            groups=self._groups,
            max_debt_ns=self._max_debt_ns,
        )

    def share(self, groups: Collection[str] | None) -> None:
        """Count the usage of *groups* from now on; None: of all."""
        with self._lock:
            self._groups = groups
            self._usage.share(groups)

    def record(self, operation: Operation[Any], reply: Any) -> bool:
        """Count the usage by *operation*; True if a report is needed that was not needed before."""
        used = list(usage_of(operation, reply))
        if not used:
            return False
        now_ns = self.clock()
        is_new = False
        with self._lock:
            for check, amount in used:
                is_new |= self._usage.add(check.group, check.key, check.limit, amount, now_ns)
        return is_new

    def record_take(
        self, places: Sequence[Place], keys: Sequence[str], costs: Sequence[int]
    ) -> bool:
        """Count the *costs* of *keys* in *places*; the result as of `record`."""
        now_ns = self.clock()
        is_new = False
        with self._lock:
            for (group, limit), key, cost in zip(places, keys, costs, strict=True):
                is_new |= self._usage.add(group, key, limit, cost, now_ns)
        return is_new

    def rounds(self, peer: int) -> int:
        """The number of times that all `reports` have to be sent until *peer* knows everything."""
        return -(-self._usage.pending(peer) // MOST_COUNTERS)

    def reports(self, peer: int) -> Iterator[Report]:
        """The reports to the region of number *peer*. Each is made when it is needed: requests,
        or an event loop, wait meanwhile."""
        for _ in range(self._usage.batches(peer)):
            now_ns = self.clock()
            with self._lock:
                self._usage.sweep(now_ns)
                batch = self._usage.reports(peer, now_ns)
                self._count()
            yield from batch

    def acknowledge(self, peer: int, report: Report, outcomes: Outcomes) -> None:
        """Record that the region of number *peer* has merged *report*."""
        self.links[peer].acknowledged()
        with self._lock:
            self._usage.acknowledge(peer, report, outcomes)
            self._count()

    def finished(self, peer: int, error: HeadgateError | None) -> None:
        """Record that a round of reports to the region of number *peer* has ended.

        *error* is that of a report that failed.
        """
        if error is None:
            self.links[peer].succeeded()
        elif self._gauges:  # else the log has it already
            self.links[peer].failed(error)

    def is_up_to_date(self, peer: int) -> bool:
        """True if the region of number *peer* knows everything."""
        return self._usage.is_up_to_date(peer)

    def close(self) -> None:
        """Report nothing any more."""
        self._gauges.clear()  # their lag would grow for ever
        for peer, link in enumerate(self.links):
            counters = self._usage.pending(peer)
            if counters:
                link.closed(counters)

    def lag_ns(self, peer: int) -> int:
        """The age of the oldest usage that the region of number *peer* does not know."""
        with self._lock:
            return self._usage.lag_ns(peer, self.clock())

    def _count(self) -> None:
        usage = self._usage
        if usage.dropped:
            self._dropped.add(usage.dropped)
            usage.dropped = 0
        if usage.spared:
            self._spared.add(usage.spared)
            usage.spared = 0


class Lag:
    """The gauge of one region."""

    def __init__(self, exchange: Exchange, peer: int) -> None:
        self._exchange = exchange
        self._peer = peer

    def seconds(self) -> float:
        """The age of the oldest usage that it does not know."""
        return self._exchange.lag_ns(self._peer) / SECOND


def checked_peers(region: str, local: object, peers: Mapping[str, Any]) -> None:
    """Raise `OptionError` unless *region* and its *peers* can exchange anything."""
    for name in (region, *peers):
        if type(name) is not str or not name or "/" in name:
            raise OptionError(f"{name!r} is not a region; expected a name such as 'eu', without /")
    if not peers:
        raise OptionError(f"the region {region!r} has no peers; use its store as it is")
    if region in peers:
        raise OptionError(f"the region {region!r} is among its own peers; name the others alone")
    for name, store in peers.items():
        if store is local:
            raise OptionError(f"the store of {name!r} is that of {region!r}; all would count twice")
        if not store.grants_leases:
            raise OptionError(
                f"the store of {name!r} cannot merge the usage of others; expected one on Redis"
            )


def _check_least(value: object, what: str, least: int) -> None:
    if type(value) is not int or value < least:
        raise OptionError(f"{what} is {value!r}; expected an integer of at least {least}")
