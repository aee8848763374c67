"""The store layer of a region, which reports usage to the stores of other regions."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import islice
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.chance import chance
from headgate.clock import MonotonicClock
from headgate.errors import HeadgateError, OptionError
from headgate.fork import watch_forks
from headgate.observability import METRICS
from headgate.runtime.background import BackgroundWork
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Close, Interrupted, RunAll, Sleep
from headgate.stores.base import Layer, Prepared, address_of
from headgate.stores.layers.replication.usage import MOST_COUNTERS, RegionUsage
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Store
    from headgate.stores.layers.replication.usage import Report
    from headgate.stores.operations import Operation, Outcomes

R = TypeVar("R")

MOST_AT_ONCE: Final = 16
"""Reports to one region that are in flight together."""

DEFAULT_EVERY_NS: Final = 100 * MILLISECOND
"""The period of reports."""

DEFAULT_MAX_KEYS: Final = 20_000
"""The most totals that a node remembers."""

DEFAULT_MAX_DEBT: Final = Fraction(1)
"""The largest debt of a counter after a failed link: one window, or one burst."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds for which a store that is closed goes on reporting."""


LOG: Final = logging.getLogger("headgate.stores.layers.replication")

LONGEST_PAUSE_NS: Final = 2 * SECOND
"""The longest pause before the next report to a region that could not be reached."""

JITTER: Final = 0.25
"""The part of itself by which a pause is shorter or longer: a fleet must not report in step."""


class ReplicatedStore(Layer):
    """Counters in *inner*, the store of *region*; usage is reported to *peers*, those of others.

    Every decision is made by *inner* alone: exact within the region, and one round trip within it.
    Usage is charged in the other regions' stores within *every_ns* and the time that a report
    takes, in the background, so none of them delays anything. A region that cannot be reached gets
    the report later; usage that it does not know does not count there meanwhile.

    Counters of *groups* alone are shared; None: all. At most *max_keys* counters are remembered for
    the reports to each region. Where more is used than a limit allows, because regions could not
    reach each other, the debt is worked off before anything more is allowed; what exceeds
    *max_debt*, a share of the limit, is forgiven. None: nothing is. The store owns *inner* and
    *peers*.
    """

    def __init__(
        self,
        inner: Store,
        *,
        region: str,
        peers: Mapping[str, Store],
        every_ns: int = DEFAULT_EVERY_NS,
        groups: Collection[str] | None = None,
        max_keys: int = DEFAULT_MAX_KEYS,
        max_debt: Fraction | None = DEFAULT_MAX_DEBT,
        clock: Clock | None = None,
    ) -> None:
        checked_peers(region, inner, peers)
        for name, value, least in (
            ("every_ns", every_ns, MILLISECOND),
            ("max_keys", max_keys, 1),
        ):
            if type(value) is not int or value < least:
                raise OptionError(f"{name} is {value!r}; expected an integer of at least {least}")
        max_debt = checked_debt(max_debt)
        super().__init__(inner)
        self.where = address_of(inner)
        self._region = region
        self._groups = groups
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self._peers: list[Peer] = []
        self._reporting: list[BackgroundWork[ReplicatedStore]] = []
        for name in sorted(peers):
            link = Link(region, name, every_ns=every_ns, chance=chance)
            usage = RegionUsage(
                self._new_origin(), max_keys=max_keys, groups=groups, max_debt=max_debt
            )
            peer = Peer(peers[name], link, usage, Lag(usage, name, self._clock))
            due_ns = partial(ReplicatedStore._due_ns, peer=peer)
            report = partial(ReplicatedStore._report, peer=peer)
            work = BackgroundWork(self, f"headgate-region-{name}", self._clock, due_ns, report)
            self._peers.append(peer)
            self._reporting.append(work)
        self._is_closed = False
        watch_forks(self)

    def __repr__(self) -> str:
        others = ", ".join(peer.link.peer for peer in self._peers)
        return f"<{type(self).__name__} of {self._region}, reporting to {others}>"

    def effects(self, operation: Operation[R]) -> Effects[R]:
        try:
            reply = yield from self.inner.effects(operation)
        except Interrupted as interrupt:
            if interrupt.is_known and interrupt.error is None:
                self._record(operation, interrupt.reply)
            raise
        if self._record(operation, reply) or self._is_cut_off:
            self._begin_reports()
        return reply

    def _record(self, operation: Operation[R], reply: R) -> bool:
        """Count the usage by *operation*; True if a report is needed that was not needed before."""
        now_ns, is_needed = self._clock(), False
        for peer in self._peers:
            is_needed |= peer.usage.record(operation, reply, now_ns)
        return is_needed

    def prepare(self, places: Sequence[Place]) -> Prepared:
        inner, kept = self.inner.prepare(places), tuple(places)
        usages, clock = [peer.usage for peer in self._peers], self._clock

        def record(keys: Sequence[str], costs: Sequence[int], outcomes: Outcomes) -> bool:
            is_needed = self._is_cut_off
            if all(one.allowed for one in outcomes):
                now_ns = clock()
                for usage in usages:
                    is_needed |= usage.record_take(kept, keys, costs, now_ns)
            return is_needed

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            try:
                outcomes = yield from inner.effects(keys, costs)
            except Interrupted as interrupt:
                if interrupt.is_known and interrupt.error is None:
                    record(keys, costs, interrupt.reply)
                raise
            if record(keys, costs, outcomes):
                self._begin_reports()
            return outcomes

        return Prepared(effects)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        """Share the groups that are `across_regions`; if none is, those of the constructor."""
        self.inner.set_accuracies(accuracies)
        named = {g: how.max_region_debt for g, how in accuracies.items() if how.across_regions}
        for peer in self._peers:
            peer.usage.share(named or self._groups, named)

    def share(self, groups: Collection[str] | None) -> None:
        """Report the usage of *groups* from now on; None: of all groups.

        What was counted before is still reported.
        """
        for peer in self._peers:
            peer.usage.share(groups)

    def exchange(self) -> None:
        """Report everything now. Blocks until the regions have answered or failed.

        There is no need to call it: reports are sent in the background.
        """
        drive(self._report_to_all())

    async def aexchange(self) -> None:
        """Do what `exchange` does, in an event loop."""
        await adrive(self._report_to_all())

    def closing(self) -> Effects[None]:
        """Report the rest, for a second at most, and close all stores."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline = monotonic() + CLOSE_TIMEOUT
        for work in self._reporting:
            yield from work.closing(max(deadline - monotonic(), 0))
        for peer in self._peers:
            peer.lag = None  # it would grow for ever
            if counters := peer.usage.pending:
                text = "region %s: closed before all usage of %d counters was reported to %s"
                LOG.warning(text, self._region, counters, peer.link.peer)
        for store in (*[peer.store for peer in self._peers], self.inner):
            yield Close(store)

    def after_fork(self) -> None:
        """Forget what was counted so far: the parent process reports it."""
        for peer in self._peers:
            peer.usage.after_fork(self._new_origin())
        for work in self._reporting:
            work.after_fork()

    def lag_ns(self) -> int:
        """The age of the oldest usage that some region does not know."""
        now_ns = self._clock()
        return max(peer.usage.lag_ns(now_ns) for peer in self._peers)

    @property
    def _is_cut_off(self) -> bool:
        """True if reports ended before a peer knew everything."""
        return any(work.is_cut_off for work in self._reporting)

    def _new_origin(self) -> str:
        return f"{self._region}/{token_hex(6)}"

    def _begin_reports(self) -> None:
        """Begin to report in the background."""
        for work in self._reporting:
            work.start()

    def _due_ns(self, *, peer: Peer) -> int | None:
        """The time of the next reports to *peer*; None if it knows everything, or if the store is
        closed and *peer* cannot be reached."""
        if not peer.usage.pending or (self._is_closed and not peer.link.is_up):
            return None
        pause_ns = 0 if self._is_closed else peer.link.pause_ns(peer.spent_ns)
        return self._clock() + pause_ns

    def _report_to_all(self) -> Effects[None]:
        for peer in self._peers:
            for _ in range(-(-peer.usage.pending // MOST_COUNTERS)):
                if not (yield from self._report(peer=peer)):
                    break

    def _report(self, *, peer: Peer) -> Effects[bool]:
        """Report to one region what it does not know; False if some of it failed.

        A region that could not be reached the last time gets one report first.
        """
        link, began_ns = peer.link, self._clock()
        reports = peer.usage.reports(self._clock, is_late=not link.is_up)
        most = MOST_AT_ONCE if link.is_up else 1
        failure: HeadgateError | None = None
        while batch := (yield from _next_reports(reports, most)):
            replies = yield RunAll(peer.store, [one.operation for one in batch])
            is_gone = False
            for report, reply in zip(batch, replies, strict=True):
                if isinstance(reply, HeadgateError):
                    failure = reply
                    # The others would fare no better, unless this one alone was rejected.
                    is_gone |= getattr(reply, "reason", "refused") != "refused"
                else:
                    link.merged.add()
                    peer.usage.acknowledge(report)
            if is_gone:
                break
            most = MOST_AT_ONCE
            if failure is None:
                link.succeeded()
        if failure is not None:
            link.failed(failure)
        peer.spent_ns = self._clock() - began_ns
        return failure is None


def _next_reports(reports: Iterator[Report], most: int) -> Effects[list[Report]]:
    """Up to *most* of *reports*. Making one takes a while: others may run in between."""
    batch = []
    for report in islice(reports, most):
        batch.append(report)
        yield Sleep(0)
    return batch


# The links of one node to the other regions: pauses, log lines, metrics.


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

    def __init__(self, usage: RegionUsage, name: str, clock: Clock) -> None:
        self._usage = usage
        self._clock = clock
        text = "Age in seconds of the oldest usage that a region does not know."
        METRICS.gauge("region_lag_seconds", text, self.seconds, peer=name)

    def seconds(self) -> float:
        return self._usage.lag_ns(self._clock()) / SECOND


@dataclass(slots=True, eq=False)
class Peer:
    """Another region: its store, the link to it, and the usage that it does not know."""

    store: Store
    link: Link
    usage: RegionUsage
    lag: Lag | None
    spent_ns: int = 0
    """The time that the last reports took."""


def checked_debt(max_debt: Fraction | None) -> Fraction | None:
    """*max_debt* as a fraction; an `OptionError` unless it is one of at least 0, or None."""
    is_number = isinstance(max_debt, int | Fraction) and not isinstance(max_debt, bool)
    if max_debt is not None and not (is_number and max_debt >= 0):
        expected = "a share of the limit such as Fraction(1, 2), or None"
        raise OptionError(f"max_debt is {max_debt!r}; expected {expected}")
    return None if max_debt is None else Fraction(max_debt)


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
