"""The store on Redis or Valkey."""

from __future__ import annotations

import asyncio
from binascii import crc32
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate.clock import checked_clock
from headgate.errors import StoreError
from headgate.fork import watch_forks
from headgate.limits import ConstantLimit
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Effect
from headgate.stores.base import Prepared, Store
from headgate.stores.operations import (
    CheckOperation,
    Operation,
    TakeEach,
    divide,
    independent_results,
)
from headgate.stores.redis.async_transport import AsyncTransport
from headgate.stores.redis.batching import (
    Batch,
    LoopBatcher,
    PendingResult,
    PreparedHit,
    PreparedStack,
    TakeEffect,
    ThreadBatcher,
)
from headgate.stores.redis.cluster import first_name, slot_groups, split
from headgate.stores.redis.codec import EXACT, PacedSpec, spec_of
from headgate.stores.redis.errors import timed_out, too_late
from headgate.stores.redis.naming import TAGS, Names, slot_of, tags
from headgate.stores.redis.transport import Transport
from headgate.stores.redis.url import parse_redis_url
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Place
    from headgate.stores.operations import Outcomes
    from headgate.stores.redis.requests import Waiter

R = TypeVar("R")

LATEST: Final = 4_500_000_000_000_000
"""The last microsecond of a given clock, in the year 2112; later ones count as this."""


def part_finder(transport: Transport, loop_transport: AsyncTransport) -> Callable[[str], str]:
    """Return a function from a key to the node of a cluster that keeps its counters, or ""."""
    slots = tuple(slot_of(tag) for tag in tags())

    def part_of(key: str) -> str:
        slot = slots[crc32(key.encode("utf-8", "surrogatepass")) % TAGS]
        return loop_transport.owner_of(slot) or transport.nodes.owner_of(slot)

    return part_of


class RedisStore(Store):
    """Counters in Redis or Valkey, shared by a whole fleet, on the server's clock.

    *url* names one server, Sentinels or a cluster. *clock* replaces the server's clock in tests and
    simulations. The store connects when it is first used. It is safe to share among threads and
    event loops, and usable in a forked process.
    """

    grants_leases = True
    publishes_values = True
    is_shared = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        parsed = parse_redis_url(url)
        if clock is not None:
            checked_clock(clock)
        self.where = str(parsed)
        """The addresses of its servers, without credentials."""
        self.clock = clock
        self._timeout = parsed.timeout
        self._connections = parsed.connections
        self._names = Names(has_tags=parsed.is_cluster)
        self._transport = Transport(parsed)
        self._loop_transport = AsyncTransport(parsed)
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
        specs = [spec_of(limit) for _, limit in places if not isinstance(limit, ConstantLimit)]
        if len(specs) < len(places) or len({group for group, _ in places}) < len(places):
            return super().prepare(places)  # limits without a counter, or that share one
        is_hit = len(specs) == 1 and isinstance(specs[0], PacedSpec) and specs[0].span < EXACT
        prepared = (PreparedHit if is_hit else PreparedStack)(self, tuple(places), self._names)
        return Prepared.of_effect(prepared.effect)

    def take(self, take: TakeEffect) -> Outcomes:
        """Make a prepared take in this thread."""
        self._perform(take.names[0], take.add_to, take)
        return cast("Outcomes", take.result())

    def _perform(self, name: bytes, add: Callable[[Batch], object], *results: Waiter) -> None:
        """Send the requests that *add* adds to a batch; fail those of *results* that are late."""
        was_sent = self._thread_batcher(name).perform(add)
        self._fail_late(results, was_sent=was_sent)

    def _fail_late(self, results: Sequence[Waiter], *, was_sent: bool) -> None:
        late = timed_out if was_sent else too_late
        for result in results:
            if not result.done():
                result.set_exception(late(self.where, self._timeout))

    def run(self, operation: Operation[R]) -> R:
        return cast("R", drive(self._steps(operation)))

    def _is_one_request(self, operation: Operation[Any]) -> bool:
        if isinstance(operation, TakeEach) or divide(operation) is not None:
            return False
        return len(slot_groups(operation, self._names)) == 1

    def _steps(self, operation: Operation[Any]) -> Effects[Any]:
        """Perform an operation of any number of requests."""
        divided = divide(operation)
        if divided is not None:
            rest = divided.rest
            return divided.join(None if rest is None else (yield from self._steps(rest)))
        if isinstance(operation, TakeEach):
            return independent_results((yield from self._take_each(operation)))
        groups = slot_groups(operation, self._names)
        if len(groups) == 1:
            (result,) = yield _RunParts(self, [operation])
            if isinstance(result, StoreError):
                raise result
            return result
        steps = split(cast("CheckOperation[Any]", operation), groups)
        results: Any = None
        try:
            while True:
                results = yield _RunParts(self, steps.send(results))
        except StopIteration as end:
            return end.value

    def _take_each(self, operation: TakeEach) -> Effects[list[Any]]:
        results: list[Any] = []
        if all(map(self._is_one_request, operation.takes)):
            results = yield _RunParts(self, operation.takes)
            return results
        for take in operation.takes:
            try:
                results.append((yield from self._steps(take)))
            except StoreError as error:
                results.append(error)
        return results

    def run_all(self, operations: Sequence[Operation[Any]]) -> list[PendingResult]:
        """Run all *operations*, each of them in one slot, at the same time."""
        results = [PendingResult() for _ in operations]

        def add(batch: Batch) -> None:
            for operation, result in zip(operations, results, strict=True):
                batch.operation(operation, result)

        names = self._names
        found = [first_name(one, names) for one in operations]
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

        In a cluster there is one for each tag: a node that hangs delays its own keys only.
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
        if self._is_one_request(operation):
            return cast("R", await self.loop_batcher().operation(operation))
        steps = asyncio.ensure_future(adrive(self._steps(operation)))
        self._splitting.add(steps)
        steps.add_done_callback(self._has_split)
        return cast("R", await asyncio.shield(steps))  # reserved: to be confirmed or undone

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        if self._is_one_request(operation):
            return self.loop_batcher().operation(operation)
        return super().submit(operation)

    def _has_split(self, steps: asyncio.Future[Any]) -> None:
        self._splitting.discard(steps)
        if not steps.cancelled():
            steps.exception()  # retrieved, in case its caller was cancelled

    def loop_batcher(self) -> LoopBatcher:
        """Return the batcher of the running event loop."""
        loop = asyncio.get_running_loop()
        return self._loop_batchers.get(loop) or self._new_loop_batcher(loop)

    def _new_loop_batcher(self, loop: asyncio.AbstractEventLoop) -> LoopBatcher:
        for old in [old for old in self._loop_batchers if old.is_closed()]:
            del self._loop_batchers[old]
        submit = self._loop_transport.submitter()
        batcher = self._loop_batchers[loop] = LoopBatcher(loop, submit, self._new_batch())
        return batcher


class _RunParts(Effect):
    """Run operations of one slot each; the result has the reply or the `StoreError` of each."""

    __slots__ = ("_operations", "_store")

    def __init__(self, store: RedisStore, operations: Sequence[Operation[Any]]) -> None:
        self._store = store
        self._operations = operations

    def perform(self) -> list[Any]:
        return [one.outcome() for one in self._store.run_all(self._operations)]

    async def aperform(self) -> list[Any]:
        batcher = self._store.loop_batcher()
        submitted = [batcher.operation(one) for one in self._operations]
        results = await asyncio.gather(*submitted, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, StoreError):
                raise result
        return results
