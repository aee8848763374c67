"""The store on Redis or Valkey."""

from __future__ import annotations

import asyncio
from binascii import crc32
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.errors import OptionError, StoreError
from headgate.fork import watch_forks
from headgate.limits import ConstantLimit
from headgate.stores.base import Prepared, Store, checks_at
from headgate.stores.constants import divide
from headgate.stores.operations import Operation, Take, TakeEach
from headgate.stores.redis.batching import Batch, BlockingResult, LoopBatcher, ThreadBatcher
from headgate.stores.redis.cluster_split import (
    Single,
    Splittable,
    first_name,
    independent_results,
    slot_groups,
    split,
)
from headgate.stores.redis.codec import PacedSpec, spec_of
from headgate.stores.redis.errors import timed_out, too_late
from headgate.stores.redis.naming import TAGS, Names, slot_of, tags
from headgate.stores.redis.prepared import LoneHit, PreparedHit, PreparedStack, StackTake
from headgate.stores.redis.transport import open_async_transport, open_transport
from headgate.stores.redis.url import parse_redis_url
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from headgate.clock import Clock
    from headgate.stores.base import Place
    from headgate.stores.operations import Outcomes
    from headgate.stores.redis.request import AsyncTransport, Request, Transport

R = TypeVar("R")

LATEST: Final = 4_500_000_000_000_000
"""The last microsecond of a given clock, in the year 2112; later ones count as it."""


def part_finder(transport: Transport, loop_transport: AsyncTransport) -> Callable[[str], str]:
    """Return a function from a key to the node of a cluster that keeps its counters, or ""."""
    slots = tuple(slot_of(tag) for tag in tags())

    def part_of(key: str) -> str:
        slot = slots[crc32(key.encode("utf-8", "surrogatepass")) % TAGS]
        return loop_transport.owner_of(slot) or transport.owner_of(slot)

    return part_of


class RedisStore(Store):
    """Counters in Redis or Valkey, shared by a whole fleet, on the server's clock.

    *url* names one server, Sentinels or a cluster. *clock* replaces the server's clock in tests and
    simulations. The store connects when it is first used. It is safe to share among threads and
    event loops, and usable in a process forked off the one that made it.
    """

    grants_leases = True
    publishes_values = True
    is_shared = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        parsed = parse_redis_url(url)
        if clock is not None and type(clock()) is not int:
            raise OptionError(f"the clock says {clock()!r}; expected a function like time.time_ns")
        self.where = str(parsed)
        """The addresses of its servers, without credentials."""
        self.clock = clock
        self._timeout = parsed.timeout
        self._connections = parsed.options.connections
        self._names = Names(has_tags=parsed.is_cluster)
        self._transport = open_transport(url)
        self._loop_transport = open_async_transport(url)
        self._loop_batchers: dict[asyncio.AbstractEventLoop, LoopBatcher] = {}
        self._splitting: set[asyncio.Future[Any]] = set()
        if parsed.is_cluster:
            self.part_of = part_finder(self._transport, self._loop_transport)
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin with no thread in flight, in a new store or a forked process."""
        self._thread_batchers: dict[bytes, ThreadBatcher] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.where}>"

    def close(self) -> None:
        self._transport.close()

    async def aclose(self) -> None:
        self._transport.close()
        await self._loop_transport.aclose()

    def prepare(self, places: Sequence[Place]) -> Prepared:
        kept = [limit for _, limit in places if not isinstance(limit, ConstantLimit)]
        specs = [spec_of(limit) for limit in kept]
        if len(kept) < len(places):
            return super().prepare(places)
        if len(specs) == 1 and isinstance(specs[0], PacedSpec):
            return self._prepare_hit(places, specs[0])
        if len({group for group, _ in places}) < len(places):
            return super().prepare(places)  # limits that share a counter
        return self._prepare_stack(places)

    def _prepare_hit(self, places: Sequence[Place], spec: PacedSpec) -> Prepared:
        prepared = PreparedHit(places[0][0], spec, self._names)
        name_of, quota = prepared.name, prepared.quota
        batchers, running_loop = self._loop_batchers, asyncio.get_running_loop

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            (key,), (cost,) = keys, costs
            if not 0 < cost <= quota:
                return self.run(Take(checks_at(places, keys, costs)))
            name, result = name_of(key), BlockingResult()
            if not self._perform_alone(name, LoneHit(prepared, name, cost, result)):
                self._perform(name, lambda batch: batch.hit(prepared, name, cost, result), result)
            return cast("Outcomes", result.result())

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Awaitable[Outcomes]:
            (key,), (cost,) = keys, costs
            if not 0 < cost <= quota:
                return self.arun(Take(checks_at(places, keys, costs)))
            batcher = batchers.get(running_loop()) or self._loop_batcher()
            return batcher.hit(prepared, name_of(key), cost)

        return Prepared(take, atake)

    def _prepare_stack(self, places: Sequence[Place]) -> Prepared:
        stack = PreparedStack(places, self._names)
        has_tags, tag_of = self._names.has_tags, self._names.tag
        batchers, running_loop = self._loop_batchers, asyncio.get_running_loop

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            names, result = stack.names(keys), BlockingResult()
            if has_tags and len(set(map(tag_of, names))) > 1:
                return self.run(Take(checks_at(places, keys, costs)))
            request = StackTake(stack, names, costs, result)
            if not self._perform_alone(names[0], request):
                self._perform(names[0], lambda batch: batch.stack(request), result)
            return cast("Outcomes", result.result())

        def atake(keys: Sequence[str], costs: Sequence[int]) -> Awaitable[Outcomes]:
            names = stack.names(keys)
            if has_tags and len(set(map(tag_of, names))) > 1:
                return self.arun(Take(checks_at(places, keys, costs)))
            batcher = batchers.get(running_loop()) or self._loop_batcher()
            return batcher.stack(stack, names, costs)

        return Prepared(take, atake)

    def _perform_alone(self, name: bytes, request: Request) -> bool:
        """Send *request* by itself if it need not wait; return False if it has to be batched."""
        batcher = self._thread_batcher(name)
        if self.clock is not None or not batcher.enter():
            return False
        try:
            self._transport.perform((request,))
        finally:
            batcher.leave()
        return True

    def _perform(
        self, name: bytes, add: Callable[[Batch], object], *results: BlockingResult
    ) -> None:
        """Send what *add* adds to a batch; fail those of *results* that are late."""
        was_sent = self._thread_batcher(name).perform(add)
        self._fail_late(results, was_sent=was_sent)

    def _fail_late(self, results: Sequence[BlockingResult], *, was_sent: bool) -> None:
        late = timed_out if was_sent else too_late
        for result in results:
            if not result.done():
                result.set_exception(late(self.where, self._timeout))

    def run(self, operation: Operation[R]) -> R:
        divided = divide(operation)
        if divided is not None:
            rest = divided.rest
            return cast("R", divided.join(None if rest is None else self.run(rest)))
        if isinstance(operation, TakeEach):
            return cast("R", self._take_each(operation))
        splittable = cast("Splittable", operation)
        groups = slot_groups(splittable, self._names)
        if len(groups) > 1:
            return cast("R", self._run_split(splittable, groups))
        return cast("R", self._run_all([operation])[0].result())

    def _take_each(self, operation: TakeEach) -> tuple[Any, ...]:
        if any(len(slot_groups(take, self._names)) > 1 for take in operation.takes):
            return independent_results([self._outcome(take) for take in operation.takes])
        return independent_results([one.outcome() for one in self._run_all(operation.takes)])

    def _outcome(self, take: Take) -> Any:
        try:
            return self.run(take)
        except StoreError as error:
            return error

    def _run_split(self, operation: Splittable, groups: list[list[int]]) -> Any:
        steps = split(operation, groups)
        results: list[Any] | None = None
        while True:
            try:
                step = next(steps) if results is None else steps.send(results)
            except StopIteration as end:
                return end.value
            results = [one.outcome() for one in self._run_all(step)]

    def _run_all(self, operations: Sequence[Operation[Any]]) -> list[BlockingResult]:
        """Carry out all *operations*, each of them in one slot."""
        results = [BlockingResult() for _ in operations]

        def add(batch: Batch) -> None:
            for operation, result in zip(operations, results, strict=True):
                batch.operation(operation, result)

        names = self._names
        found = [first_name(cast("Splittable | Single", one), names) for one in operations]
        if len({names.tag(name) for name in found}) == 1:
            self._perform(found[0], add, *results)
        elif found:  # for several nodes, of which one may be slow: no other caller waits for them
            batch = self._new_batch()
            add(batch)
            self._transport.perform(batch.drain())
            self._fail_late(results, was_sent=True)
        return results

    def _thread_batcher(self, name: bytes) -> ThreadBatcher:
        """Return the batcher for requests that can be sent together with *name*.

        In a cluster there is one for each tag: a node that hangs holds up its own keys only.
        """
        tag = self._names.tag(name)
        batcher = self._thread_batchers.get(tag)
        if batcher is None:
            new = ThreadBatcher(
                self._transport, self._new_batch, self._connections, self._timeout, name
            )
            batcher = self._thread_batchers.setdefault(tag, new)
        return batcher

    def _new_batch(self) -> Batch:
        return Batch(self._names, self._now)

    def _now(self) -> bytes:
        """Return the time for the scripts: empty for the server's clock."""
        if self.clock is None:
            return b""
        return b"%d" % min(max(self.clock() // MICROSECOND, 0), LATEST)

    async def arun(self, operation: Operation[R]) -> R:
        divided = divide(operation)
        if divided is not None:
            rest = divided.rest
            return cast("R", divided.join(None if rest is None else await self.arun(rest)))
        batcher = self._loop_batcher()
        if isinstance(operation, TakeEach):
            return cast("R", await self._atake_each(operation, batcher))
        splittable = cast("Splittable", operation)
        groups = slot_groups(splittable, self._names)
        if len(groups) > 1:
            steps = asyncio.ensure_future(self._arun_split(splittable, groups, batcher))
            self._splitting.add(steps)
            steps.add_done_callback(self._has_split)
            return cast("R", await asyncio.shield(steps))  # reserved: to be confirmed or undone
        return cast("R", await batcher.operation(operation))

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        if isinstance(operation, TakeEach) or divide(operation) is not None:
            return super().submit(operation)
        if len(slot_groups(cast("Splittable", operation), self._names)) > 1:
            return super().submit(operation)
        return self._loop_batcher().operation(operation)

    async def _atake_each(self, operation: TakeEach, batcher: LoopBatcher) -> tuple[Any, ...]:
        if any(len(slot_groups(take, self._names)) > 1 for take in operation.takes):
            return independent_results([await self._aoutcome(take) for take in operation.takes])
        asked = [batcher.operation(take) for take in operation.takes]
        return independent_results(await asyncio.gather(*asked, return_exceptions=True))

    async def _aoutcome(self, take: Take) -> Any:
        try:
            return await self.arun(take)
        except StoreError as error:
            return error

    async def _arun_split(
        self, operation: Splittable, groups: list[list[int]], batcher: LoopBatcher
    ) -> Any:
        steps = split(operation, groups)
        results: list[Any] | None = None
        while True:
            try:
                step = next(steps) if results is None else steps.send(results)
            except StopIteration as end:
                return end.value
            asked = [batcher.operation(part) for part in step]
            results = await asyncio.gather(*asked, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, StoreError):
                    raise result

    def _has_split(self, steps: asyncio.Future[Any]) -> None:
        self._splitting.discard(steps)
        if not steps.cancelled():
            steps.exception()  # retrieved, should its caller have gone away

    def _loop_batcher(self) -> LoopBatcher:
        """Return the batcher of the running event loop."""
        loop = asyncio.get_running_loop()
        batcher = self._loop_batchers.get(loop)
        if batcher is None:
            for old in [old for old in self._loop_batchers if old.is_closed()]:
                del self._loop_batchers[old]
            batcher = LoopBatcher(
                loop, self._loop_transport, self._new_batch(), may_send_alone=self.clock is None
            )
            self._loop_batchers[loop] = batcher
        return batcher
