"""The store layer of a region, which reports usage to the stores of other regions."""

from __future__ import annotations

import asyncio
import threading
import weakref
from inspect import GEN_CREATED, getgeneratorstate
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from headgate.errors import HeadgateError
from headgate.fork import watch_forks
from headgate.runtime.drivers import Background, adrive, drive
from headgate.runtime.effects import Close, Interrupted, RunAll, Signal, Sleep, Wait
from headgate.stores.base import Layer, Prepared, address_of
from headgate.stores.layers.replication.exchange import (
    CLOSE_TIMEOUT_NS,
    DEFAULT_EVERY_NS,
    DEFAULT_MAX_KEYS,
    Exchange,
    checked_peers,
)
from headgate.stores.layers.replication.usage import MOST_COUNTERS
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Accuracies, Place, Store
    from headgate.stores.layers.replication.usage import Report
    from headgate.stores.operations import Operation, Outcomes

R = TypeVar("R")

MOST_AT_ONCE: Final = 16
"""Reports to one region that are in flight together."""


class Worker(NamedTuple):
    """Reports to one peer in the background: in *loop*, or in a thread if that is None."""

    loop: asyncio.AbstractEventLoop | None
    ended: Signal

    @property
    def is_stalled(self) -> bool:
        """True if its event loop does not run."""
        return self.loop is not None and not self.loop.is_running()


class ReplicatedStore(Layer):
    """Counters in *inner*, the store of *region*; usage is reported to *peers*, those of others.

    Every decision is made by *inner* alone: exact within the region, and one round trip within it.
    Usage is charged in the other regions' stores within *every_ns* and the time that a report
    takes, in the background, so none of them delays anything. A region that cannot be reached gets
    the report later; usage that it does not know does not count there meanwhile.

    Counters of *groups* alone are shared; None: all. At most *max_keys* counters are remembered for
    reports. Where more is used than a limit allows, because regions could not reach each other, the
    debt is worked off before anything more is allowed; with *max_debt_ns* a region whose counter
    denies for longer than that is spared the rest. The store owns *inner* and *peers*.
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
        max_debt_ns: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        checked_peers(region, inner, peers)
        super().__init__(inner)
        self.where = address_of(inner)
        self._groups = groups
        self._exchange = Exchange(
            region,
            peers,
            every_ns=every_ns,
            groups=groups,
            max_keys=max_keys,
            max_debt_ns=max_debt_ns,
            clock=clock,
        )
        self._peers = tuple(peers[link.peer] for link in self._exchange.links)
        self._is_closed = False
        self._start_over()
        watch_forks(self)

    def __repr__(self) -> str:
        others = ", ".join(link.peer for link in self._exchange.links)
        return f"<{type(self).__name__} of {self._exchange.region}, reporting to {others}>"

    def effects(self, operation: Operation[R]) -> Effects[R]:
        try:
            reply = yield from self.inner.effects(operation)
        except Interrupted as interrupt:
            if interrupt.is_known and interrupt.error is None:
                self._exchange.record(operation, interrupt.reply)
            raise
        if self._exchange.record(operation, reply) or self._is_cut_off:
            yield from self._begin_reports(reply)
        return reply

    def _begin_reports(self, reply: object) -> Effects[None]:
        """Begin to report in the background; an interruption has the *reply* of the operation."""
        started = self._idle()
        try:
            for peer, work in started:
                try:
                    yield Background(work, self._name(peer))
                except RuntimeError:  # no thread to be had: the next usage tries again
                    self._has_ended(peer)
        except Interrupted as interrupt:
            for peer, work in started:
                if getgeneratorstate(work) == GEN_CREATED:  # it may not have been started
                    self._has_ended(peer)
            raise Interrupted(reply, is_known=True) from interrupt.__cause__

    def prepare(self, places: Sequence[Place]) -> Prepared:
        inner, kept = self.inner.prepare(places), tuple(places)
        record_take = self._exchange.record_take

        def record(keys: Sequence[str], costs: Sequence[int], outcomes: Outcomes) -> bool:
            is_new = all(one.allowed for one in outcomes) and record_take(kept, keys, costs)
            return is_new or self._is_cut_off

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            try:
                outcomes = yield from inner.effects(keys, costs)
            except Interrupted as interrupt:
                if interrupt.is_known and interrupt.error is None:
                    record(keys, costs, interrupt.reply)
                raise
            if record(keys, costs, outcomes):
                yield from self._begin_reports(outcomes)
            return outcomes

        return Prepared(effects)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        """Share the groups whose accuracy says so; if none does, those of the constructor."""
        self.inner.set_accuracies(accuracies)
        named = {group for group, how in accuracies.items() if how.across_regions}
        self.share(named or self._groups)

    def share(self, groups: Collection[str] | None) -> None:
        """Report the usage of *groups* from now on; None: of all groups.

        What was counted before is still reported.
        """
        self._exchange.share(groups)

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
        self._closing.set()
        deadline = monotonic() + CLOSE_TIMEOUT_NS / SECOND
        for worker in list(self._workers.values()):
            yield Wait(worker.ended, max(deadline - monotonic(), 0))
        self._exchange.close()
        for store in (*self._peers, self.inner):
            yield Close(store)

    def after_fork(self) -> None:
        """Forget what was counted so far: the parent process reports it."""
        self._exchange.after_fork()
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._closing = Signal()
        self._workers: dict[int, Worker] = {}
        """The work that reports to each peer, while there is something to report."""
        self._is_cut_off = False
        """True if reports ended before a peer knew everything: their event loop has ended."""

    def _idle(self) -> list[tuple[int, Effects[None]]]:
        """The peers that nothing is being reported to, and the work to do so from now on.

        An event loop that has reports to send but does not run does not count.
        """
        with self._lock:
            idle = [
                peer
                for peer in range(0 if self._is_closed else len(self._peers))
                if (worker := self._workers.get(peer)) is None or worker.is_stalled
            ]
            started = []
            for peer in idle:
                worker = Worker(asyncio._get_running_loop(), Signal())  # noqa: SLF001 (documented for such checks)
                self._workers[peer], self._is_cut_off = worker, False
                work = _keep_reporting(weakref.ref(self), peer, worker, self._closing)
                started.append((peer, work))
            return started

    def _name(self, peer: int) -> str:
        return f"headgate-region-{self._exchange.links[peer].peer}"

    def _is_done(self, peer: int) -> bool:
        """True, and reports have ended, if *peer* knows everything."""
        with self._lock:
            if self._exchange.pending(peer):
                return False
            self._workers.pop(peer, None)
            return True

    def _has_ended(self, peer: int, worker: Worker | None = None) -> None:
        with self._lock:
            if worker is None or self._workers.get(peer) is worker:
                self._workers.pop(peer, None)
                self._is_cut_off = True

    def _report_to_all(self) -> Effects[None]:
        for peer in range(len(self._peers)):
            for _ in range(-(-self._exchange.pending(peer) // MOST_COUNTERS)):
                if not (yield from self._report(peer)):
                    break

    def _report(self, peer: int) -> Effects[bool]:
        """Report to one region what it does not know; False if some of it failed.

        A region that could not be reached the last time gets one report first.
        """
        reports = self._exchange.reports(peer)
        most = MOST_AT_ONCE if self._exchange.links[peer].is_up else 1
        failure: HeadgateError | None = None
        while batch := (yield from _next_reports(reports, most)):
            replies = yield RunAll(self._peers[peer], [one.operation for one in batch])
            is_gone = False
            for report, reply in zip(batch, replies, strict=True):
                if isinstance(reply, HeadgateError):
                    failure = reply
                    # The others would fare no better, unless this one alone was rejected.
                    is_gone |= getattr(reply, "reason", "refused") != "refused"
                else:
                    self._exchange.acknowledge(peer, report, reply)
            if is_gone:
                break
            most = MOST_AT_ONCE
            self._exchange.finished(peer, failure)
        if failure is not None:
            self._exchange.finished(peer, failure)
        return failure is None


def _next_reports(reports: Iterator[Report], most: int) -> Effects[list[Report]]:
    """Up to *most* of *reports*. Making one takes a while: others may run in between."""
    batch = []
    for report in islice(reports, most):
        batch.append(report)
        yield Sleep(0)
    return batch


def _keep_reporting(
    me: weakref.ref[ReplicatedStore], peer: int, worker: Worker, closing: Signal
) -> Effects[None]:
    """Report to one region until it knows everything, as long as the store lives."""
    spent_ns = 0
    try:
        while (store := me()) is not None and not store._is_done(peer):  # noqa: SLF001 (its own work)
            pause = store._exchange.links[peer].pause_ns(spent_ns) / SECOND  # noqa: SLF001
            del store  # a pause must not keep it alive
            yield Wait(closing, pause)
            if (store := me()) is None:
                return
            began_ns = store._exchange.clock()  # noqa: SLF001
            has_arrived = yield from store._report(peer)  # noqa: SLF001
            spent_ns = store._exchange.clock() - began_ns  # noqa: SLF001
            del store
            if closing.is_set and not has_arrived:
                return
    finally:
        worker.ended.set()
        if (store := me()) is not None:
            store._has_ended(peer, worker)  # noqa: SLF001
