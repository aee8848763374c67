"""The links of one node to the other regions, and the usage that it reports over them."""

from __future__ import annotations

import logging
import random
import threading
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import MonotonicClock
from headgate.errors import OptionError
from headgate.observability import MEASURES
from headgate.stores.layers.replication.usage import (
    MOST_CHECKS,
    MOST_COUNTERS,
    RegionUsage,
    usage_of,
)
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
        self.merged = MEASURES.counter(
            "region_exchanges", "Reports that another region has merged.", peer=peer
        )
        self._failed = MEASURES.counter(
            "region_failures", "Reports to another region that failed.", peer=peer
        )

    @property
    def is_up(self) -> bool:
        """True if the last report has arrived."""
        return self._failures == 0

    def succeeded(self) -> None:
        """Record that all reports have arrived."""
        if self._failures:
            text = "region %s: %s can be reached again after %d failed attempts"
            LOG.warning(text, self._region, self.peer, self._failures)
        self._failures = 0

    def failed(self, error: HeadgateError) -> None:
        """Record that a report has failed, or its result is unknown."""
        self._failed.add()
        if not self._failures:
            text = "region %s: cannot report usage to %s, retrying: %s"
            LOG.warning(text, self._region, self.peer, error)
        self._failures += 1

    def pause_ns(self, spent_ns: int = 0) -> int:
        """The pause before the next reports if those before took *spent_ns*."""
        if self._failures:
            longest = min(self._every_ns << min(self._failures, 20), LONGEST_PAUSE_NS)
            return int(max(longest, self._every_ns) * (1 + self._chance()) / 2)
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
        for name, value, least in (
            ("every_ns", every_ns, MILLISECOND),
            ("max_keys", max_keys, 1),
            ("max_debt_ns", max_debt_ns or 0, 0),
        ):
            if type(value) is not int or value < least:
                raise OptionError(f"{name} is {value!r}; expected an integer of at least {least}")
        self.region = region
        self.clock: Clock = MonotonicClock() if clock is None else clock
        self.links = tuple(
            Link(region, peer, every_ns=every_ns, chance=chance) for peer in sorted(peers)
        )
        self._groups = groups
        self._new_usage = partial(
            RegionUsage, peers=len(self.links), max_keys=max_keys, max_debt_ns=max_debt_ns
        )
        self._dropped = MEASURES.counter(
            "region_keys_dropped", "Counters whose usage was not reported in full."
        )
        self._spared = MEASURES.counter(
            "region_units_spared", "Units that were not reported to a region in debt."
        )
        self._lags = [Lag(self, peer) for peer in range(len(self.links))]
        self.after_fork()

    def after_fork(self) -> None:
        """Start without usage: the parent process reports its own."""
        self._lock = threading.Lock()
        self._usage = self._new_usage(f"{self.region}/{token_hex(6)}", groups=self._groups)

    def share(self, groups: Collection[str] | None) -> None:
        """Count the usage of *groups* from now on; None: of all."""
        with self._lock:
            self._groups = groups
            self._usage.share(groups)

    def record(self, operation: Operation[Any], reply: Any) -> bool:
        """Count the usage by *operation*; True if a report is needed that was not needed before."""
        used = [(check, amount) for check, amount in usage_of(operation, reply) if amount]
        places = [(check.group, check.limit) for check, _ in used]
        keys, amounts = [check.key for check, _ in used], [amount for _, amount in used]
        return bool(used) and self.record_take(places, keys, amounts)

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

    def pending(self, peer: int) -> int:
        """The number of counters of which the region of number *peer* does not know all."""
        return self._usage.pending(peer)

    def reports(self, peer: int) -> Iterator[Report]:
        """The reports to the region of number *peer*, of `MOST_COUNTERS` at most. Each is made when
        it is needed: requests, or an event loop, wait meanwhile."""
        counters = min(self._usage.pending(peer), MOST_COUNTERS)
        for _ in range(-(-counters // MOST_CHECKS)):
            now_ns = self.clock()
            with self._lock:
                self._usage.sweep(now_ns)
                batch = self._usage.reports(peer, now_ns)
                self._count()
            yield from batch

    def acknowledge(self, peer: int, report: Report, outcomes: Outcomes) -> None:
        """Record that the region of number *peer* has merged *report*."""
        self.links[peer].merged.add()
        with self._lock:
            self._usage.acknowledge(peer, report, outcomes)
            self._count()

    def finished(self, peer: int, error: HeadgateError | None) -> None:
        """Record that a round of reports to the region of number *peer* has ended.

        *error* is that of a report that failed.
        """
        if error is None:
            self.links[peer].succeeded()
        elif self._lags:  # else the log has it already
            self.links[peer].failed(error)

    def close(self) -> None:
        """Report nothing any more."""
        self._lags.clear()  # they would grow for ever
        for peer, link in enumerate(self.links):
            if counters := self.pending(peer):
                text = "region %s: closed before all usage of %d counters was reported to %s"
                LOG.warning(text, self.region, counters, link.peer)

    def lag_ns(self, peer: int) -> int:
        """The age of the oldest usage that the region of number *peer* does not know."""
        with self._lock:
            return self._usage.lag_ns(peer, self.clock())

    def _count(self) -> None:
        usage = self._usage
        if usage.dropped or usage.spared:
            self._dropped.add(usage.dropped)
            self._spared.add(usage.spared)
            usage.dropped = usage.spared = 0


class Lag:
    """The gauge of one region: it ends with this object."""

    def __init__(self, exchange: Exchange, peer: int) -> None:
        self._exchange = exchange
        self._peer = peer
        text = "Age in seconds of the oldest usage that a region does not know."
        name = exchange.links[peer].peer
        MEASURES.gauge("region_lag_seconds", text, self.seconds, peer=name)

    def seconds(self) -> float:
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
