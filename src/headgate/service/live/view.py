"""The figures of all workers of a node, as any one of them reports them.

Once a second it samples the counters and publishes a snapshot. A request publishes one too and
reads the others, so figures never go backwards between workers. Errors here are logged once and
do not affect requests.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.observability import METRICS, RECORDER
from headgate.observability.candidates import CANDIDATES
from headgate.observability.metrics import PREFIX
from headgate.runtime.supervised_task import SupervisedTask
from headgate.service.live.envoy_counts import EnvoyCounts
from headgate.service.live.fleet import EVERY_S
from headgate.service.live.merged_view import (
    DECISIONS,
    encoded_view,
    is_live,
    merged_view,
    metrics_text,
)
from headgate.service.live.recorder import Recorder
from headgate.service.live.shared_snapshots import SharedSnapshotError
from headgate.service.live.snapshot import (
    Snapshot,
    SnapshotError,
    policy_state,
    queues_in,
    store_state,
    top_keys,
)
from headgate.service.live.traffic import traffic_view
from headgate.service.logs import LOG
from headgate.stores.factory import health_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.control.watcher import PolicyWatcher
    from headgate.observability import DecisionRecorder, MetricRegistry
    from headgate.observability.metrics import Labels
    from headgate.policy.model import Policy
    from headgate.service.core import Core
    from headgate.service.live.fleet import Fleet
    from headgate.service.live.recorder import Name
    from headgate.service.live.shared_snapshots import SharedSnapshots

T = TypeVar("T")

_AFTER_NS: Final = 2_000_000
"""Delay after the end of a second before its points are recorded."""

SHADOW_NS: Final = 5 * SECOND
KEYS_NS: Final = 3 * SECOND
"""Maximum age of the figures of shadow rules, and of the busiest keys."""


class _Cached(Generic[T]):
    """A value from *make*, cached for *lasts_ns*."""

    def __init__(self, lasts_ns: int, make: Callable[[], T]) -> None:
        self._lasts_ns = lasts_ns
        self._make = make
        self._made: tuple[int, T] | None = None

    def value(self, now_ns: int, *, is_new: bool) -> T:
        """The cached value, or a new one if it expired or *is_new*."""
        if is_new or self._made is None or now_ns >= self._made[0]:
            self._made = now_ns + self._lasts_ns, self._make()
        return self._made[1]


class Live:
    """The figures for `/admin/v1/live` and `/metrics`. *shared_snapshots* is None with one worker.

    *store* is the store's URL, without a password, *worker* the number of this worker. *fleet* are
    the nodes that share the store.

    *store_trouble* describes what is wrong with the store; by default *core* does. Call `start` in
    the event loop; without it there are only points of the times of requests.
    """

    def __init__(
        self,
        core: Core,
        watcher: PolicyWatcher | None = None,
        *,
        store: str = "memory://",
        worker: int = 0,
        shared_snapshots: SharedSnapshots | None = None,
        store_trouble: Callable[[], tuple[str, ...]] | None = None,
        fleet: Fleet | None = None,
        decisions: DecisionRecorder = RECORDER,
        measures: MetricRegistry = METRICS,
        monotonic: Clock = time.monotonic_ns,
    ) -> None:
        self._core = core
        self._watcher = watcher
        self._store = store
        self._worker = worker
        self._trouble = store_trouble or core.trouble
        self._began = core.clock() / SECOND
        self._clock = core.clock
        self._monotonic = monotonic
        self._shared = shared_snapshots
        self._fleet = fleet
        self._envoy: EnvoyCounts | None = None
        self._publishing = SupervisedTask(self._publish_node, name="headgate-fleet", pause=EVERY_S)
        self._decisions = decisions
        self._measures = measures
        self._recorder = Recorder(decisions)
        self._ticking = SupervisedTask(self._tick, name="headgate-live", pause=1.0)
        self._previous: Snapshot | None = None
        self._candidates = _Cached(SHADOW_NS, self._all_candidates)
        self._keys = _Cached(KEYS_NS, partial(top_keys, core, decisions))
        self._policy: Policy | None = None
        self._publish_lock = threading.Lock()
        self._published_ns = 0
        self._has_failed = False
        self._unread: set[int] = set()
        self._asking = asyncio.Lock()
        self._next_answer: asyncio.Future[bytes] | None = None

    def start(self) -> None:
        """Sample once a second from now on, continuing the counts of the previous worker."""
        previous = self._read_slot(self._worker)
        if previous is not None:
            self._previous = previous.ended()
            self._recorder.seconds = previous.seconds
            self._recorder.minutes = previous.minute_series()
        self._recorder.sample(self._clock())
        if self._shared is not None and self._worker == 0:
            is_successor = previous is not None
            self._envoy = EnvoyCounts(self._shared, self._decisions, is_successor=is_successor)
        self._ticking.start()
        if self._fleet is not None and self._fleet.is_possible and self._worker == 0:
            self._publishing.start()

    async def aclose(self) -> None:
        """Stop sampling; the counts stay published."""
        await self._publishing.aclose()
        await self._ticking.aclose()
        self._recorder.finish(self._clock())
        self.publish()

    async def view(self, *, in_full: bool = True) -> dict[str, Any]:
        """The figures of all workers; unless *in_full*, keys may be a few seconds old."""
        own, at_ns = self._snapshot(in_full=in_full), self._clock()
        policy = self._core.rules.in_force.policy
        rules = [(rule.id, rule.mode, rule.candidate_of) for rule in policy.rules]

        def merged() -> dict[str, Any]:
            return merged_view(
                self._all_with(own),
                rules,
                now_ns=self._monotonic(),
                at_ns=at_ns,
                show_key=self._core.show_key,
                node="" if self._fleet is None else self._fleet.node,
            )

        return await asyncio.to_thread(merged)

    async def traffic(self, range_name: str, rule: str | None = None) -> dict[str, Any]:
        """The traffic of all workers over a time range, of *rule* or of all rules."""
        own, at_ns = self._snapshot(), self._clock()

        def merged() -> dict[str, Any]:
            return traffic_view(
                self._all_with(own),
                range_name=range_name,
                rule=rule,
                now_ns=self._monotonic(),
                at_ns=at_ns,
                show_key=self._core.show_key,
            )

        return await asyncio.to_thread(merged)

    async def busy_keys(self) -> dict[tuple[str | None, str], tuple[float, float]]:
        """Requests and denials per second of the busiest keys, by rule and key."""
        own = self._snapshot()

        def found() -> dict[tuple[str | None, str], tuple[float, float]]:
            rates: dict[tuple[str | None, str], tuple[float, float]] = {}
            for one in self._all_with(own):
                for place, rows in enumerate((one.keys.busiest, one.keys.denied)):
                    for rule, key, least, _ in rows if is_live(one, own.seen_ns) else ():
                        known = rates.get((rule, key), (0.0, 0.0))
                        rates[rule, key] = (
                            known[0] + least * (1 - place),
                            known[1] + least * place,
                        )
            return rates

        return await asyncio.to_thread(found)

    async def answer(self) -> bytes:
        """The same as JSON. Concurrent requests are answered one after the other, and those that
        wait share an answer."""
        if self._next_answer is None:
            self._next_answer = asyncio.ensure_future(self._answer())
        return await asyncio.shield(self._next_answer)

    async def text(self) -> str:
        """The metrics of all workers as Prometheus text."""
        own = self._snapshot(in_full=False)

        def text() -> str:
            return metrics_text(self._published_with(own), self._monotonic())

        return await asyncio.to_thread(text)

    def publish(self) -> Snapshot:
        """Publish a snapshot and return it."""
        made = self._snapshot()
        self._publish(made)
        return made

    async def _answer(self) -> bytes:
        async with self._asking:
            self._next_answer = None
            found = await self.view()
            return await asyncio.to_thread(encoded_view, found)

    async def _tick(self) -> None:
        while True:
            now_ns = self._clock()
            pause_ns = SECOND - now_ns % SECOND + _AFTER_NS
            await asyncio.sleep(pause_ns / SECOND)
            if self._shared is None:
                self._sample()
            else:
                await asyncio.to_thread(self._publish, self._snapshot(in_full=False))

    async def _publish_node(self) -> None:
        while self._fleet is not None and self._fleet.is_possible:
            await self._fleet.publish(await self.view(in_full=False))
            await asyncio.sleep(EVERY_S)

    def _sample(self) -> None:
        if self._envoy is not None:
            self._envoy.record()
        self._recorder.is_out = self._core.rules.engine.fallback.is_out
        self._recorder.sample(self._clock())

    def _snapshot(self, *, in_full: bool = True) -> Snapshot:
        """A new snapshot.

        The figures of shadow rules and of the busiest keys are expensive and change slowly: unless
        *in_full*, those of a few seconds ago are used. A new policy refreshes the shadow rules at
        once.
        """
        now_ns, recorder, in_force = self._monotonic(), self._recorder, self._core.rules.in_force
        is_other, self._policy = in_force.policy is not self._policy, in_force.policy
        self._sample()
        metrics = tuple(self._measures.snapshot(bare=(DECISIONS,)))
        samples = {one.name.removeprefix(PREFIX): one.samples for one in metrics}
        cells: dict[Name, int] = dict(self._decisions.counts())
        health = health_of(self._core.rules.engine.store)
        recent = zip(cells, recorder.recent.rates(), strict=False)
        made = Snapshot(
            seen_ns=now_ns,
            began=self._began,
            policy=policy_state(self._core, self._watcher),
            store=store_state(
                self._store, self._trouble(), samples, None if health is None else health.outage()
            ),
            factor=float(in_force.scale.factor),
            requests=(self._decisions.requests[False][0], self._decisions.allowed_requests()),
            latency=recorder.latency.counts(),
            cells=cells,
            rates={name: rate for name, rate in recent if rate},
            keys=self._keys.value(now_ns, is_new=in_full),
            queues=queues_in(samples),
            seconds=replace(recorder.seconds),
            minutes=replace(recorder.minutes),
            candidates=self._candidates.value(now_ns, is_new=in_full or is_other),
            metrics=metrics,
            previous={},
            nodes=[] if self._fleet is None else self._fleet.nodes,
        )
        return made if self._previous is None else made.continuing(self._previous)

    def _all_candidates(self) -> list[dict[str, Any]]:
        previous = [] if self._previous is None else self._previous.candidates
        return [CANDIDATES.snapshot(), *previous]

    def _publish(self, snapshot: Snapshot) -> None:
        """Publish *snapshot*, unless a newer one is published already. Thread-safe."""
        if self._shared is None:
            return
        with self._publish_lock:
            if snapshot.seen_ns >= self._published_ns:
                self._published_ns = snapshot.seen_ns
                self._write(self._shared, snapshot)

    def _write(self, shared_snapshots: SharedSnapshots, snapshot: Snapshot) -> None:
        slot = self._worker
        try:
            try:
                shared_snapshots.write(slot, snapshot.encoded())
            except SharedSnapshotError:
                shared_snapshots.write(slot, snapshot.without_series().encoded())
                raise
        except SharedSnapshotError as error:
            if not self._has_failed:
                LOG.warning("other workers lack some figures of this worker: %s", error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _all_with(self, own: Snapshot) -> list[Snapshot]:
        return [one for _, one in self._published_with(own)]

    def _published_with(self, own: Snapshot) -> list[tuple[Labels, Snapshot]]:
        """Publish *own*, and return the snapshots of all workers with their labels."""
        if self._shared is None:
            return [((), own)]
        self._publish(own)
        found: list[tuple[Labels, Snapshot]] = []
        for slot in range(self._shared.count):
            # If publishing failed, other workers know less: then this one reports no more than
            # they.
            is_own = slot == self._worker
            snapshot = None if is_own and not self._has_failed else self._read_slot(slot)
            if is_own and snapshot is None:
                snapshot = own
            if snapshot is not None:
                found.append(((("worker", str(slot)),), snapshot))
        return found

    def _read_slot(self, slot: int) -> Snapshot | None:
        data = None if self._shared is None else self._shared.read(slot)
        if data is None:
            return None
        try:
            found = Snapshot.decoded(data)
        except SnapshotError as error:
            if slot not in self._unread:
                LOG.warning("the figures of worker %d are missing here: %s", slot, error)
            self._unread.add(slot)
            return None
        self._unread.discard(slot)
        return found
