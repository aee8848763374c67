"""The quota service: gateways report their usage and receive assignments."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.observability import RECORDER
from headgate.observability.decision_recorder import GATEWAY
from headgate.runtime.heartbeat import new_name
from headgate.runtime.supervised_task import SupervisedTask
from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs.charges import Charges
from headgate.service.rlqs.gateway import DemandEstimate, Gateway, Share
from headgate.service.rlqs.ledger import NEVER
from headgate.service.rlqs.messages import Action, reported_bytes
from headgate.service.rlqs.rates import limits_of
from headgate.service.rlqs.reports import read_reports
from headgate.service.rlqs.shared import MemoryLedgerStore, SharedCounter
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.service.core import Core
    from headgate.service.rlqs.messages import BucketId
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rlqs.rates import BucketLimits
    from headgate.service.rlqs.reports import Usage
    from headgate.service.rlqs.shared import LedgerStore


# Decisions of gateways, recorded in the journal of this process when they are reported.
#
# Their durations are unknown, so they are not among the recorded times.


def record_usage(limits: BucketLimits, usage: Usage) -> None:
    """Record requests that a gateway allowed and denied; denials count for the tightest limit."""
    allowed, denied = usage.allowed, usage.denied
    RECORDER.requests[True][0] += allowed
    RECORDER.requests[False][0] += denied
    RECORDER.reported[True] += allowed
    RECORDER.reported[False] += denied
    seen: set[str] = set()
    for place, binding in enumerate(limits.bindings):
        rule = binding.rule.id
        if rule in seen:
            continue
        seen.add(rule)
        RECORDER.record_many(rule, "allowed", GATEWAY, binding.check.key, allowed)
        if place == 0:
            RECORDER.record_many(rule, "denied", GATEWAY, binding.check.key, denied)


_LOG: Final = logging.getLogger("headgate.service.rlqs")
_TICK_S: Final = 1.0
_REPLAN_BATCH: Final = 256
"""Buckets per step when a new policy is applied; other work runs between steps."""
_PARALLEL_UPDATES: Final = 64
_LOG_EVERY_NS: Final = 60 * SECOND
"""Shortest time between two log records about the same problem."""


class QuotaCalls:
    """The handler of `StreamRateLimitQuotas`. Closes *ledgers* when it is closed.

    Without a *ledgers* it must be the only replica: with a shared store, replicas must share a
    ledger store too. *clock* is monotonic: assignments last for a duration, whatever the time of
    day. Use it in one event loop.
    """

    def __init__(
        self,
        core: Core,
        options: RlqsOptions,
        *,
        ledgers: LedgerStore | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        if ledgers is None:
            if core.rules.engine.store.waits:
                raise OptionError(
                    "the store is shared, so replicas must share their ledgers too:"
                    " pass ledgers=RedisLedgerStore(url) with the URL of the store"
                )
            ledgers = MemoryLedgerStore(clock, options)
        self._core = core
        self._clock = clock
        self._options = options
        self._ledgers = ledgers
        self._engine = core.rules.in_force.compiled
        self._factor: Fraction | None = core.rules.in_force.scale.factor
        self._charges = Charges(core.rules.engine.store)
        self._gateways: dict[str, Gateway] = {}
        self._counters: dict[str, SharedCounter] = {}
        self._buckets = 0
        self._logged_ns: dict[str, int] = {}
        self._ticker = SupervisedTask(self._run, name="headgate-rlqs", pause=_TICK_S, log=_LOG)
        self._is_draining = False

    async def start(self) -> None:
        """Start the periodic work: once a second, and when a changed assignment has arrived."""
        self._ticker.start()

    async def aclose(self) -> None:
        """End all streams in order, accept no more, and close the ledger store."""
        self._is_draining = True
        await self._ticker.aclose()
        for gateway in list(self._gateways.values()):
            gateway.end()
            self._disconnect(gateway)
        await self._divide(self._counters.values())  # so that other replicas know
        await self._ledgers.aclose()

    async def stream_usage(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Serve one stream: reports in, assignments out."""
        gateway = self._connect()
        reading = asyncio.get_running_loop().create_task(self._read(gateway, requests))
        reading.add_done_callback(gateway.on_input_end)
        try:
            async for message in gateway.messages():
                yield message
        finally:
            self._disconnect(gateway)
            reading.cancel()
            await asyncio.wait([reading])

    async def tick(self) -> None:
        """Do all periodic work. `start` calls this once a second.

        A failing step is logged; the other steps run, and all run again the next time.
        """
        now_ns = self._clock()
        for step in (
            self._follow_policy,
            self._charge_ahead,
            self._check_gateways,
            self._divide_due,
        ):
            try:
                await step(now_ns)
            except Exception as error:  # noqa: BLE001 (no error may end the periodic work)
                self._log_error(error, now_ns)

    async def _run(self) -> None:
        while True:
            due_ns = min((one.due_ns for one in self._counters.values()), default=self._clock())
            until_due = (due_ns - self._clock()) / SECOND
            await asyncio.sleep(until_due if 0 < until_due < _TICK_S else _TICK_S)
            await self.tick()

    async def _follow_policy(self, _now_ns: int) -> None:
        """Apply a changed policy, or limits that were scaled by pressure."""
        in_force = self._core.rules.in_force
        factor = in_force.scale.factor
        if in_force.compiled is self._engine and factor == self._factor:
            return
        self._engine, self._factor = in_force.compiled, None  # after an error: again the next time
        shares = [share for one in self._gateways.values() for share in one.shares.values()]
        for place in range(0, len(shares), _REPLAN_BATCH):
            some = shares[place : place + _REPLAN_BATCH]
            await self._replan([one for one in some if one.gateway.shares.get(one.bucket) is one])
            await asyncio.sleep(0)
        self._factor = factor

    async def _charge_ahead(self, now_ns: int) -> None:
        await self._charges.charge_ahead(self._counters.values(), now_ns)

    async def _check_gateways(self, now_ns: int) -> None:
        for gateway in list(self._gateways.values()):
            self._check_gateway(gateway, now_ns)

    async def _divide_due(self, now_ns: int) -> None:
        await self._divide([one for one in self._counters.values() if one.due_ns <= now_ns])
        self._counters = {name: one for name, one in self._counters.items() if not one.is_over}

    def _connect(self) -> Gateway:
        if self._is_draining:
            raise CallError(
                Code.UNAVAILABLE, "the service is stopping; reconnect to another replica"
            )
        if len(self._gateways) >= self._options.most_streams:
            most = self._options.most_streams
            raise CallError(Code.RESOURCE_EXHAUSTED, f"the maximum of {most} streams is reached")
        gateway = Gateway(new_name(), self._clock, self._options.ttl)
        self._gateways[gateway.name] = gateway
        return gateway

    def _disconnect(self, gateway: Gateway) -> None:
        self._gateways.pop(gateway.name, None)
        for share in list(gateway.shares.values()):
            self._drop(share, is_replaced=False)

    async def _read(self, gateway: Gateway, requests: AsyncIterator[bytes]) -> None:
        """Process the gateway's messages until it sends no more."""
        async for message in requests:
            await self._process(gateway, message)

    async def _process(self, gateway: Gateway, message: bytes) -> None:
        reports = read_reports(message, self._options)
        gateway.set_domain(reports.domain)
        now_ns = self._clock()
        found = [(self._share(gateway, one, now_ns), one) for one in reports.usages]
        unfit = [*reports.unfit, *[one.bucket for share, one in found if share is None]]
        self._abandon(gateway, unfit, now_ns)
        reported = [(share, one) for share, one in found if share is not None]
        if self._engine.policy.overrides:  # they can end without a policy change
            await self._replan([share for share, _ in reported])
        for share, usage in reported:
            record_usage(share.limits, usage)
        await self._charges.charge_reported(
            [
                (share.limits, share.estimate.record_report(usage, now_ns))
                for share, usage in reported
            ]
        )
        touched: dict[str, SharedCounter] = {}
        for share, _ in reported:
            if share.limits.is_shared and share.limits.ledger in self._counters:
                touched[share.limits.ledger] = self._counters[share.limits.ledger]
            elif share.assigned_ns == NEVER:
                share.assign(None, is_open=not share.limits.is_closed)
        await self._divide(touched.values())

    def _abandon(self, gateway: Gateway, buckets: Sequence[BucketId], now_ns: int) -> None:
        """Make the gateway forget *buckets* that exceed the bounds; otherwise it would keep
        reporting them, and clients could add more."""
        for bucket in buckets:
            gateway.send(Action(bucket, is_abandoned=True))
        if buckets and self._may_log("unfit", now_ns):
            _LOG.warning(
                "a gateway reported %d buckets that are too many or too long; they were abandoned",
                len(buckets),
            )

    def _share(self, gateway: Gateway, usage: Usage, now_ns: int) -> Share | None:
        """The share for *usage*, or None if there are too many."""
        known = gateway.shares.get(usage.bucket)
        if known is not None:
            return known
        options = self._options
        size = reported_bytes(usage.bucket)
        is_full = len(gateway.shares) >= options.most_buckets
        is_full = is_full or gateway.reported_bytes + size > options.room
        if is_full or self._buckets >= options.most_buckets_in_all:
            return None
        if usage.elapsed_ns and usage.allowed:
            self._ledgers.begin_recovery()  # the bucket is older than its stream
        limits = limits_of(self._engine, gateway.domain, usage.bucket)
        estimate = DemandEstimate(now_ns, now_ns)
        name = f"{gateway.name}/{new_name()}"
        share = Share(gateway, usage.bucket, name, limits, estimate)
        gateway.shares[usage.bucket] = share
        gateway.reported_bytes += size
        self._buckets += 1
        self._join(share)
        return share

    def _join(self, share: Share) -> None:
        if share.limits.is_shared:
            name = share.limits.ledger
            if name not in self._counters:
                whole = share.limits.bindings[0].allowance
                self._counters[name] = SharedCounter(name, whole, self._ledgers, self._options)
            self._counters[name].join(share)

    def _drop(self, share: Share, *, is_replaced: bool) -> None:
        if share.gateway.shares.pop(share.bucket, None) is not None:
            share.gateway.reported_bytes -= reported_bytes(share.bucket)
            self._buckets -= 1
        if share.limits.is_shared and share.limits.ledger in self._counters:
            self._counters[share.limits.ledger].leave(share, is_replaced=is_replaced)

    async def _replan(self, shares: Iterable[Share]) -> None:
        """Apply the policy in force to *shares*.

        Usage that was charged ahead to counters that no longer apply is refunded: the next report
        is charged to the new counters in full.
        """
        ahead: list[tuple[BucketLimits, int]] = []
        for share in shares:
            limits = limits_of(self._engine, share.gateway.domain, share.bucket)
            if limits == share.limits:
                continue
            before, share.limits = share.limits, limits
            if before.charged != limits.charged:
                ahead.append((before, -share.estimate.take_ahead()))
            if before.is_shared and limits.is_shared and before.ledger == limits.ledger:
                self._counters[limits.ledger].due_ns = NEVER
                continue
            if before.is_shared:
                self._counters[before.ledger].leave(share, is_replaced=True)
            share.assigned_ns = NEVER
            self._join(share)
        await self._charges.charge_reported(ahead)

    def _check_gateway(self, gateway: Gateway, now_ns: int) -> None:
        """Drop silent and idle buckets, renew assignments, end a stream whose peer does not
        read."""
        if gateway.is_stuck(self._options.delivery_ns):
            problem = f"the gateway read nothing for {self._options.delivery} seconds"
            gateway.fail(CallError(Code.RESOURCE_EXHAUSTED, problem))
            self._disconnect(gateway)
            return
        for share in list(gateway.shares.values()):
            if now_ns - share.estimate.reported_ns > self._options.silence_ns:
                self._drop(share, is_replaced=False)
            elif now_ns - share.estimate.requested_ns >= self._options.idle_ns:
                share.abandon()
                self._drop(share, is_replaced=True)
            elif not share.limits.is_shared and (
                share.assigned_ns == NEVER
                or now_ns - share.assigned_ns >= self._options.ttl_ns // 2
            ):
                share.assign(None, is_open=not share.limits.is_closed)

    async def _divide(self, counters: Iterable[SharedCounter]) -> None:
        waiting = list(counters)
        while waiting:
            some, waiting = waiting[:_PARALLEL_UPDATES], waiting[_PARALLEL_UPDATES:]
            now_ns = self._clock()
            results = await asyncio.gather(
                *(one.reallocate(now_ns, self._charges.left(one, now_ns)) for one in some),
                return_exceptions=True,
            )
            for one, result in zip(some, results, strict=True):
                if isinstance(result, Exception):
                    one.use_fallback(now_ns)
                    self._log_error(result, now_ns)
            if not any(results):  # the ledger store is down: do not wait for each timeout
                for one in waiting:
                    one.use_fallback(now_ns)
                return
            await asyncio.sleep(0)  # lets the gateways' streams send

    def _log_error(self, error: Exception, now_ns: int) -> None:
        """Log *error*, unless one was logged a short while ago."""
        if self._may_log("error", now_ns):
            _LOG.error(
                "dividing quotas among gateways failed; the next attempt is in 1 s", exc_info=error
            )

    def _may_log(self, what: str, now_ns: int) -> bool:
        last_ns = self._logged_ns.get(what)
        may = last_ns is None or now_ns - last_ns >= _LOG_EVERY_NS
        if may:
            self._logged_ns[what] = now_ns
        return may
