"""The links of one node to the other regions: pauses, log lines, metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import OptionError
from headgate.observability import METRICS
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.clock import Clock
    from headgate.errors import HeadgateError
    from headgate.stores.layers.replication.usage import RegionUsage


LOG: Final = logging.getLogger("headgate.stores.layers.replication")

LONGEST_PAUSE_NS: Final = 2 * SECOND
"""The longest pause before the next report to a region that could not be reached."""

JITTER: Final = 0.25
"""The part of itself by which a pause is shorter or longer: a fleet must not report in step."""


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
        self.merged = METRICS.counter(
            "region_exchanges", "Reports that another region has merged.", peer=peer
        )
        self._failed = METRICS.counter(
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


class Lag:
    """The gauge of one region: it ends with this object."""

    def __init__(self, usage: RegionUsage, peer: int, name: str, clock: Clock) -> None:
        self._usage = usage
        self._peer = peer
        self._clock = clock
        text = "Age in seconds of the oldest usage that a region does not know."
        METRICS.gauge("region_lag_seconds", text, self.seconds, peer=name)

    def seconds(self) -> float:
        return self._usage.lag_ns(self._peer, self._clock()) / SECOND


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
