"""The store on Redis or Valkey."""

from __future__ import annotations

import asyncio
from binascii import crc32
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.errors import OptionError, StoreError
from headgate.fork import watch_forks
from headgate.stores.base import Prepared, Store
from headgate.stores.operations import Check, Operation, Take, TakeEach
from headgate.stores.redis.batching import Answer, Collector, Combiner, Pending
from headgate.stores.redis.cluster_split import (
    Single,
    Spreadable,
    each_for_itself,
    first_name,
    groups_of,
    spread,
)
from headgate.stores.redis.codec import PacedSpec, spec_of
from headgate.stores.redis.errors import timed_out, too_late
from headgate.stores.redis.fast_hits import LoneHit
from headgate.stores.redis.fast_hits import Place as PacedPlace
from headgate.stores.redis.naming import TAGS, Names, slot_of, tags
from headgate.stores.redis.transport import open_async_transport, open_transport
from headgate.stores.redis.url import parse_redis_url
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.clock import Clock
    from headgate.stores.base import Place
    from headgate.stores.operations import Outcomes
    from headgate.stores.redis.request import AsyncTransport, Transport


# What the blocking store and the async one have in common: all but how they wait.


LATEST: Final = 4_500_000_000_000_000
"""The last microsecond that a passed clock may tell, in the year 2112; later ones count as it."""


class Settings:
    """Where the servers are, how counters are named there, and whose clock counts."""

    def __init__(self, url: str, clock: Clock | None) -> None:
        self.url = url
        parsed = parse_redis_url(url)
        self.where = str(parsed)
        self.timeout = parsed.timeout
        self.connections = parsed.options.connections
        self.names = Names(has_tags=parsed.is_cluster)
        if clock is not None and type(clock()) is not int:
            raise OptionError(f"the clock says {clock()!r}; expected a function like time.time_ns")
        self._clock = clock

    @property
    def has_server_clock(self) -> bool:
        """Whether time is the server's, not that of a clock of our own."""
        return self._clock is None

    def now(self) -> bytes:
        """What the scripts take for the time: nothing for the server's own."""
        if self._clock is None:
            return b""
        return b"%d" % min(max(self._clock() // MICROSECOND, 0), LATEST)

    def pending(self) -> Pending:
        """An empty collection of what is to be sent."""
        return Pending(self.names, self.now)

    def place(self, places: Sequence[Place]) -> PacedPlace | None:
        """The one place of a limiter that can take the short way; None if it cannot.

        Raises `LimitError` for a limit whose numbers Redis cannot hold.
        """
        specs = [spec_of(limit) for _, limit in places]
        if len(specs) == 1 and isinstance(specs[0], PacedSpec):
            return PacedPlace(places[0][0], specs[0])
        return None


def part_finder(transport: Transport, loop_transport: AsyncTransport) -> Callable[[str], str]:
    """A function from a key to the node of a cluster that keeps its counters, as far as known."""
    slots = tuple(slot_of(tag) for tag in tags())

    def part_of(key: str) -> str:
        slot = slots[crc32(key.encode("utf-8", "surrogatepass")) % TAGS]
        return loop_transport.owner_of(slot) or transport.owner_of(slot)

    return part_of


R = TypeVar("R")


class RedisStore(Store):
    """Counters in Redis or Valkey, shared by a whole fleet, on the server's clock.

    *url* names one server, Sentinels or a cluster. *clock* is for tests and simulations: it is
    then used in place of the server's. Connects when it is first used. Safe to share among threads,
    and usable in a process forked off the one that made it.
    """

    grants_leases = True
    publishes_values = True
    is_shared = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._settings = Settings(url, clock)
        self._transport = open_transport(url)
        self._loop_transport = open_async_transport(url)
        self.clock = clock
        self._collectors: dict[asyncio.AbstractEventLoop, Collector] = {}
        self._spreading: set[asyncio.Future[Any]] = set()
        if self._transport.is_cluster:
            self.part_of = part_finder(self._transport, self._loop_transport)
        self.after_fork()
        watch_forks(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.where}>"

    @property
    def where(self) -> str:
        """The addresses of its servers, without credentials."""
        return self._settings.where

    def run(self, operation: Operation[R]) -> R:
        if isinstance(operation, TakeEach):
            return cast("R", self._take_each(operation))
        spreadable = cast("Spreadable", operation)
        groups = groups_of(spreadable, self._settings.names)
        if len(groups) > 1:
            return cast("R", self._run_spread(spreadable, groups))
        return cast("R", self._ask([operation])[0].result())

    def prepare(self, places: Sequence[Place]) -> Prepared:
        place = self._settings.place(places)
        return super().prepare(places) if place is None else self._prepared(place)

    def close(self) -> None:
        self._transport.close()

    def after_fork(self) -> None:
        """Start with no thread under way: in a new store, or in a process that was forked."""
        self._combiners: dict[bytes, Combiner] = {}

    def _prepared(self, place: PacedPlace) -> Prepared:
        group, limit, quota = place.group, place.limit, place.quota
        name_of, transport = self._settings.names.of_group(group), self._transport
        may_be_alone = self._settings.has_server_clock
        collectors, running_loop = self._collectors, asyncio.get_running_loop

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            (key,), (cost,) = keys, costs
            if not 0 < cost <= quota:
                return self.run(Take((Check(group, key, limit, cost),)))
            name, answer = name_of(key), Answer()
            combiner = self._combiner(name)
            if may_be_alone and combiner.take_lane():
                try:
                    transport.perform((LoneHit(place, name, key, cost, answer),))
                finally:
                    combiner.hand_on()
            else:
                was_sent = combiner.perform(
                    lambda pending: pending.hit(place, name, key, cost, answer)
                )
                self._give_up([answer], was_sent=was_sent)
            return cast("Outcomes", answer.result())

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Awaitable[Outcomes]:
            (key,), (cost,) = keys, costs
            if not 0 < cost <= quota:
                return self.arun(Take((Check(group, key, limit, cost),)))
            collector = collectors.get(running_loop()) or self._collector()
            return collector.hit(place, name_of(key), key, cost)

        return Prepared(take, atake)

    def _take_each(self, operation: TakeEach) -> tuple[Any, ...]:
        names = self._settings.names
        if any(len(groups_of(take, names)) > 1 for take in operation.takes):
            return each_for_itself([self._outcome(take) for take in operation.takes])
        return each_for_itself([answer.outcome() for answer in self._ask(operation.takes)])

    def _outcome(self, take: Take) -> Any:
        try:
            return self.run(take)
        except StoreError as error:
            return error

    def _run_spread(self, operation: Spreadable, groups: list[list[int]]) -> Any:
        steps = spread(operation, groups)
        results: list[Any] | None = None
        while True:
            try:
                step = next(steps) if results is None else steps.send(results)
            except StopIteration as end:
                return end.value
            results = [answer.outcome() for answer in self._ask(step)]

    def _ask(self, operations: Sequence[Operation[Any]]) -> list[Answer]:
        """Have all *operations* carried out, each of them in one slot."""
        answers = [Answer() for _ in operations]

        def add(pending: Pending) -> None:
            for operation, answer in zip(operations, answers, strict=True):
                pending.operation(operation, answer)

        names = self._settings.names
        found = [
            first_name(cast("Spreadable | Single", operation), names) for operation in operations
        ]
        was_sent = True
        if len({names.tag(name) for name in found}) == 1:
            was_sent = self._combiner(found[0]).perform(add)
        elif found:  # for several nodes, of which one may be slow: nobody else waits for them
            pending = self._settings.pending()
            add(pending)
            self._transport.perform(pending.drain())
        self._give_up(answers, was_sent=was_sent)
        return answers

    def _combiner(self, name: bytes) -> Combiner:
        """Where threads meet that ask for what is asked together with *name*.

        In a cluster there is one for each tag: a node that is hung holds up its own keys only.
        """
        settings = self._settings
        tag = settings.names.tag(name)
        combiner = self._combiners.get(tag)
        if combiner is None:
            new = Combiner(
                self._transport, settings.pending, settings.connections, settings.timeout
            )
            combiner = self._combiners.setdefault(tag, new)
        return combiner

    def _give_up(self, answers: Sequence[Answer], *, was_sent: bool) -> None:
        """Fail what was not answered in time."""
        late = timed_out if was_sent else too_late
        for answer in answers:
            if not answer.done():
                answer.set_exception(late(self._settings.where, self._settings.timeout))

    async def arun(self, operation: Operation[R]) -> R:
        collector = self._collector()
        if isinstance(operation, TakeEach):
            return cast("R", await self._atake_each(operation, collector))
        spreadable = cast("Spreadable", operation)
        groups = groups_of(spreadable, self._settings.names)
        if len(groups) > 1:
            steps = asyncio.ensure_future(self._arun_spread(spreadable, groups, collector))
            self._spreading.add(steps)
            steps.add_done_callback(self._has_spread)
            return cast("R", await asyncio.shield(steps))  # reserved: to be confirmed or given back
        return cast("R", await collector.operation(operation))

    async def aclose(self) -> None:
        self._transport.close()
        await self._loop_transport.aclose()

    async def _atake_each(self, operation: TakeEach, collector: Collector) -> tuple[Any, ...]:
        names = self._settings.names
        if any(len(groups_of(take, names)) > 1 for take in operation.takes):
            return each_for_itself([await self._aoutcome(take) for take in operation.takes])
        asked = [collector.operation(take) for take in operation.takes]
        return each_for_itself(await asyncio.gather(*asked, return_exceptions=True))

    async def _aoutcome(self, take: Take) -> Any:
        try:
            return await self.arun(take)
        except StoreError as error:
            return error

    async def _arun_spread(
        self, operation: Spreadable, groups: list[list[int]], collector: Collector
    ) -> Any:
        steps = spread(operation, groups)
        results: list[Any] | None = None
        while True:
            try:
                step = next(steps) if results is None else steps.send(results)
            except StopIteration as end:
                return end.value
            asked = [collector.operation(part) for part in step]
            results = await asyncio.gather(*asked, return_exceptions=True)
            for result in results:
                if not isinstance(result, StoreError):
                    _result(result)

    def _has_spread(self, steps: asyncio.Future[Any]) -> None:
        self._spreading.discard(steps)
        if not steps.cancelled():
            steps.exception()  # looked at, should its caller have gone away

    def _collector(self) -> Collector:
        """What the running event loop has pending."""
        loop = asyncio.get_running_loop()
        collector = self._collectors.get(loop)
        if collector is None:
            for old in [old for old in self._collectors if old.is_closed()]:
                del self._collectors[old]
            settings = self._settings
            collector = Collector(
                loop,
                self._loop_transport,
                settings.pending(),
                has_server_clock=settings.has_server_clock,
            )
            self._collectors[loop] = collector
        return collector


def _result(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result
