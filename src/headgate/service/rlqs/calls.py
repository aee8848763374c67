"""The quota service: gateways report what they use, and are told what they may let through."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.observability import JOURNAL
from headgate.runtime.holds import new_name
from headgate.service.grpc.method import CallError, Code
from headgate.service.rlqs.charging import Charging
from headgate.service.rlqs.gateway import Gateway, Part, Tally
from headgate.service.rlqs.ledger import NEVER, Action, reported_bytes
from headgate.service.rlqs.rates import terms_of
from headgate.service.rlqs.reports import read_reports
from headgate.service.rlqs.shared import MemoryBoard, SharedCounter
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from fractions import Fraction

    from headgate.clock import Clock
    from headgate.service.core import Core
    from headgate.service.rlqs.ledger import BucketId
    from headgate.service.rlqs.options import RlqsOptions
    from headgate.service.rlqs.rates import Terms
    from headgate.service.rlqs.reports import Usage
    from headgate.service.rlqs.shared import Board


# What gateways decided themselves, noted in the journal of this process when they report it.
#
# Nobody can say how long that took, so it is not among the times.


SOURCE: Final = "gateway"
"""Who decided."""


def note_usage(terms: Terms, usage: Usage) -> None:
    """A gateway has let requests pass and refused some, on *terms*: the tightest limit did that."""
    allowed, denied = usage.allowed, usage.denied
    JOURNAL.requests[True][0] += allowed
    JOURNAL.requests[False][0] += denied
    seen: set[str] = set()
    for place, binding in enumerate(terms.bindings):
        rule = binding.rule.id
        if rule in seen:
            continue
        seen.add(rule)
        JOURNAL.note_many(rule, "allowed", SOURCE, binding.check.key, allowed)
        if place == 0:
            JOURNAL.note_many(rule, "denied", SOURCE, binding.check.key, denied)


_LOG: Final = logging.getLogger("headgate.service.rlqs")
_TURN_SECONDS: Final = 1.0
_REPLANNED: Final = 256
"""Of how many buckets it is found out at a time what the rules say now: others wait meanwhile."""
_AT_ONCE: Final = 64
_SAID_EVERY_NS: Final = 60 * SECOND
"""Time between two words in the log on what goes wrong again and again."""


class QuotaCalls:
    """The handler of `StreamRateLimitQuotas`; *board* is closed with it.

    Without a *board* it must be alone: a store that replicas share needs a board that they share.
    *clock* tells how much time passes, and is never set: what is assigned holds for so long,
    whatever the time of day. For one event loop.
    """

    def __init__(
        self,
        core: Core,
        options: RlqsOptions,
        *,
        board: Board | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        if board is None:
            if core.rules.engine.store.waits:
                raise OptionError(
                    "the store is shared, so replicas must share their board too:"
                    " pass board=RedisBoard(url) with the URL of the store"
                )
            board = MemoryBoard(clock, options)
        self._core = core
        self._clock = clock
        self._options = options
        self._board = board
        self._engine = core.rules.in_force.compiled
        self._factor: Fraction | None = core.rules.in_force.scale.factor
        self._charging = Charging(core.rules.engine.store)
        self._gateways: dict[str, Gateway] = {}
        self._counters: dict[str, SharedCounter] = {}
        self._buckets = 0
        self._said_ns: dict[str, int] = {}
        self._turning: asyncio.Task[None] | None = None
        self._is_draining = False

    async def start(self) -> None:
        """Take turns from now on, one a second."""
        self._turning = asyncio.get_running_loop().create_task(self._take_turns())

    async def aclose(self) -> None:
        """End all streams cleanly, take no others, and give back what the board holds open."""
        self._is_draining = True
        if self._turning is not None:
            self._turning.cancel()
            with suppress(asyncio.CancelledError):
                await self._turning
            self._turning = None
        for gateway in list(self._gateways.values()):
            gateway.end()
            self._part_with(gateway)
        await self._divide(self._counters.values())  # so that other replicas know
        await self._board.aclose()

    async def stream_usage(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Serve one stream: reports in, assignments out."""
        gateway = self._welcome()
        reading = asyncio.get_running_loop().create_task(self._read(gateway, requests))
        reading.add_done_callback(gateway.has_read)
        try:
            async for message in gateway.messages():
                yield message
        finally:
            self._part_with(gateway)
            reading.cancel()
            await asyncio.wait([reading])

    async def turn(self) -> None:
        """Do all that is due: once a second, by `start` or by whoever drives it.

        What fails is logged; the rest is done nevertheless, and all of it again the next time.
        """
        now_ns = self._clock()
        for step in (self._follow_policy, self._charge_ahead, self._look_around, self._divide_due):
            try:
                await step(now_ns)
            except Exception as error:  # noqa: BLE001 (no mistake may stop the turns for good)
                self._say(error, now_ns)

    async def _take_turns(self) -> None:
        while True:
            await asyncio.sleep(_TURN_SECONDS)
            await self.turn()

    async def _follow_policy(self, _now_ns: int) -> None:
        """Other rules may be in force, or pressure has brought their limits down or up."""
        in_force = self._core.rules.in_force
        factor = in_force.scale.factor
        if in_force.compiled is self._engine and factor == self._factor:
            return
        self._engine, self._factor = in_force.compiled, None  # should it fail: again the next time
        parts = [part for one in self._gateways.values() for part in one.parts.values()]
        for place in range(0, len(parts), _REPLANNED):
            some = parts[place : place + _REPLANNED]
            await self._replan([one for one in some if one.gateway.parts.get(one.bucket) is one])
            await asyncio.sleep(0)
        self._factor = factor

    async def _charge_ahead(self, now_ns: int) -> None:
        await self._charging.charge_ahead(self._counters.values(), now_ns)

    async def _look_around(self, now_ns: int) -> None:
        for gateway in list(self._gateways.values()):
            self._look_after(gateway, now_ns)

    async def _divide_due(self, now_ns: int) -> None:
        await self._divide([one for one in self._counters.values() if one.due_ns <= now_ns])
        self._counters = {name: one for name, one in self._counters.items() if not one.is_over}

    def _welcome(self) -> Gateway:
        if self._is_draining:
            raise CallError(Code.UNAVAILABLE, "the service is going down; ask another")
        if len(self._gateways) >= self._options.most_streams:
            most = self._options.most_streams
            raise CallError(Code.RESOURCE_EXHAUSTED, f"there are {most} streams already")
        gateway = Gateway(new_name(), self._clock, self._options.ttl)
        self._gateways[gateway.name] = gateway
        return gateway

    def _part_with(self, gateway: Gateway) -> None:
        self._gateways.pop(gateway.name, None)
        for part in list(gateway.parts.values()):
            self._drop(part, is_replaced=False)

    async def _read(self, gateway: Gateway, requests: AsyncIterator[bytes]) -> None:
        """Take in what the gateway sends, until it sends no more."""
        async for message in requests:
            await self._take_in(gateway, message)

    async def _take_in(self, gateway: Gateway, message: bytes) -> None:
        reports = read_reports(message, self._options)
        gateway.enter(reports.domain)
        now_ns = self._clock()
        found = [(self._part(gateway, one, now_ns), one) for one in reports.usages]
        unfit = [*reports.unfit, *[one.bucket for part, one in found if part is None]]
        self._turn_away(gateway, unfit, now_ns)
        reported = [(part, one) for part, one in found if part is not None]
        if self._engine.policy.overrides:  # they end without a word
            await self._replan([part for part, _ in reported])
        for part, usage in reported:
            note_usage(part.terms, usage)
        await self._charging.charge_reported(
            [(part.terms, part.tally.heard(usage, now_ns)) for part, usage in reported]
        )
        touched: dict[str, SharedCounter] = {}
        for part, _ in reported:
            if part.terms.is_shared and part.terms.ledger in self._counters:
                touched[part.terms.ledger] = self._counters[part.terms.ledger]
            elif part.told_ns == NEVER:
                part.tell(None, is_open=not part.terms.is_closed)
        await self._divide(touched.values())

    def _turn_away(self, gateway: Gateway, buckets: Sequence[BucketId], now_ns: int) -> None:
        """Have the gateway forget *buckets*, of which there is no more room here. It would go on
        reporting them, and asking for more as clients think of more."""
        for bucket in buckets:
            gateway.tell(Action(bucket, is_abandoned=True))
        if buckets and self._may_say("unfit", now_ns):
            told = (
                "a gateway has %d buckets more than it may have, or too long; it is to forget them"
            )
            _LOG.warning(told, len(buckets))

    def _part(self, gateway: Gateway, usage: Usage, now_ns: int) -> Part | None:
        """The part that *usage* is of; None if it is one too many."""
        known = gateway.parts.get(usage.bucket)
        if known is not None:
            return known
        options = self._options
        size = reported_bytes(usage.bucket)
        is_full = len(gateway.parts) >= options.most_buckets
        is_full = is_full or gateway.reported_bytes + size > options.room
        if is_full or self._buckets >= options.most_buckets_in_all:
            return None
        terms = terms_of(self._engine, gateway.domain, usage.bucket)
        tally = Tally(now_ns, now_ns)
        name = f"{gateway.name}/{new_name()}"
        part = Part(gateway, usage.bucket, name, terms, tally)
        gateway.parts[usage.bucket] = part
        gateway.reported_bytes += size
        self._buckets += 1
        self._join(part)
        return part

    def _join(self, part: Part) -> None:
        if part.terms.is_shared:
            name = part.terms.ledger
            if name not in self._counters:
                whole = part.terms.bindings[0].allowance
                self._counters[name] = SharedCounter(name, whole, self._board, self._options)
            self._counters[name].join(part)

    def _drop(self, part: Part, *, is_replaced: bool) -> None:
        if part.gateway.parts.pop(part.bucket, None) is not None:
            part.gateway.reported_bytes -= reported_bytes(part.bucket)
            self._buckets -= 1
        if part.terms.is_shared and part.terms.ledger in self._counters:
            self._counters[part.terms.ledger].leave(part, is_replaced=is_replaced)

    async def _replan(self, parts: Iterable[Part]) -> None:
        """The rules may say something else now of these *parts*.

        What was charged ahead to counters that are not charged any more is given back: the next
        report is charged to the new ones in full.
        """
        ahead: list[tuple[Terms, int]] = []
        for part in parts:
            terms = terms_of(self._engine, part.gateway.domain, part.bucket)
            if terms == part.terms:
                continue
            before, part.terms = part.terms, terms
            if before.charged != terms.charged:
                ahead.append((before, -part.tally.forget_ahead()))
            if before.is_shared and terms.is_shared and before.ledger == terms.ledger:
                self._counters[terms.ledger].due_ns = NEVER
                continue
            if before.is_shared:
                self._counters[before.ledger].leave(part, is_replaced=True)
            part.told_ns = NEVER
            self._join(part)
        await self._charging.charge_reported(ahead)

    def _look_after(self, gateway: Gateway, now_ns: int) -> None:
        """Drop what is silent or idle, tell again what is half over, end a stream that is stuck."""
        if gateway.is_stuck(self._options.delivery_ns):
            problem = f"nothing was taken for {self._options.delivery} seconds"
            gateway.fail(CallError(Code.RESOURCE_EXHAUSTED, problem))
            self._part_with(gateway)
            return
        for part in list(gateway.parts.values()):
            if now_ns - part.tally.heard_ns > self._options.silence_ns:
                self._drop(part, is_replaced=False)
            elif now_ns - part.tally.asked_ns >= self._options.idle_ns:
                part.abandon()
                self._drop(part, is_replaced=True)
            elif not part.terms.is_shared and (
                part.told_ns == NEVER or now_ns - part.told_ns >= self._options.ttl_ns // 2
            ):
                part.tell(None, is_open=not part.terms.is_closed)

    async def _divide(self, counters: Iterable[SharedCounter]) -> None:
        waiting = list(counters)
        while waiting:
            some, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            now_ns = self._clock()
            told = await asyncio.gather(
                *(one.take_turn(now_ns, self._charging.left(one, now_ns)) for one in some),
                return_exceptions=True,
            )
            for one, result in zip(some, told, strict=True):
                if isinstance(result, Exception):
                    one.go_on_alone(now_ns)
                    self._say(result, now_ns)
            if not any(told):  # to wait for the board again and again would take too long
                for one in waiting:
                    one.go_on_alone(now_ns)
                return
            await asyncio.sleep(0)  # what came of it can be sent

    def _say(self, error: Exception, now_ns: int) -> None:
        """Log *error*, unless there was one a short while ago."""
        if self._may_say("error", now_ns):
            _LOG.error("dividing quotas among gateways went wrong; it goes on", exc_info=error)

    def _may_say(self, what: str, now_ns: int) -> bool:
        last_ns = self._said_ns.get(what)
        may = last_ns is None or now_ns - last_ns >= _SAID_EVERY_NS
        if may:
            self._said_ns[what] = now_ns
        return may
