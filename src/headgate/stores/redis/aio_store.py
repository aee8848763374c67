"""The store on Redis or Valkey, for event loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headgate.errors import StoreError
from headgate.stores.operations import Check, Operation, Take, TakeEach
from headgate.stores.port import Asker, AsyncStore, checked_cost, checked_key, conclude
from headgate.stores.redis.calls.collecting import Collector
from headgate.stores.redis.calls.spreading import (
    Spreadable,
    each_for_itself,
    groups_of,
    spread,
)
from headgate.stores.redis.settings import Settings, part_finder
from headgate.stores.redis.transport import open_async_transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.redis.calls.hitting import Place

R = TypeVar("R")


class AsyncRedisStore(AsyncStore):
    """As `RedisStore`, for event loops; it may be used by several, each has its own connections."""

    lends = True
    shares = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._settings = Settings(url, clock)
        self._transport = open_async_transport(url)
        if clock is not None:
            self.clock = clock
        self._collectors: dict[asyncio.AbstractEventLoop, Collector] = {}
        self._spreading: set[asyncio.Future[Any]] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.where}>"

    @property
    def where(self) -> str:
        """The addresses of its servers, without credentials."""
        return self._settings.where

    @property
    def part_of(self) -> Callable[[str], str] | None:
        """From a key to the server that it is kept by, "" if unknown; None if there is but one."""
        return part_finder(self._transport) if self._transport.is_cluster else None

    async def run(self, operation: Operation[R]) -> R:
        collector = self._collector()
        if isinstance(operation, TakeEach):
            return cast("R", await self._take_each(operation, collector))
        spreadable = cast("Spreadable", operation)
        groups = groups_of(spreadable, self._settings.names)
        if len(groups) > 1:
            steps = asyncio.ensure_future(self._run_spread(spreadable, groups, collector))
            self._spreading.add(steps)
            steps.add_done_callback(self._has_spread)
            return cast("R", await asyncio.shield(steps))  # reserved: to be confirmed or given back
        return cast("R", await collector.operation(operation))

    def asker(self, places: Sequence[tuple[str, Limit]]) -> Asker | None:
        place = self._settings.place(places)
        return None if place is None else self._paced_asker(place)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _paced_asker(self, place: Place) -> Asker:
        group, limit, quota = place.group, place.limit, place.quota
        name_of, collectors = self._settings.names.of_group(group), self._collectors
        running_loop = asyncio.get_running_loop

        async def ask_the_long_way(key: str, cost: int) -> Decision:
            checks = (Check(group, checked_key(key), limit, checked_cost(cost)),)
            return conclude(checks, await self.run(Take(checks)))

        def ask(key: str, cost: int = 1) -> Awaitable[Decision]:
            if type(key) is not str or not key or type(cost) is not int or not 0 < cost <= quota:
                return ask_the_long_way(key, cost)
            collector = collectors.get(running_loop()) or self._collector()
            return collector.hit(place, name_of(key), key, cost)

        return ask

    async def _take_each(self, operation: TakeEach, collector: Collector) -> tuple[Any, ...]:
        names = self._settings.names
        if any(len(groups_of(take, names)) > 1 for take in operation.takes):
            return each_for_itself([await self._outcome(take) for take in operation.takes])
        asked = [collector.operation(take) for take in operation.takes]
        return each_for_itself(await asyncio.gather(*asked, return_exceptions=True))

    async def _outcome(self, take: Take) -> Any:
        try:
            return await self.run(take)
        except StoreError as error:
            return error

    async def _run_spread(
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
                self._transport,
                settings.pending(),
                has_server_clock=settings.has_server_clock,
            )
            self._collectors[loop] = collector
        return collector


def _result(result: Any) -> Any:
    if isinstance(result, BaseException):
        raise result
    return result
