"""One way to use a limiter on a real server, so that one test serves callers of both kinds.

`Limiting` has the verbs of a limiter as plain functions, be it a `RateLimiter` or an
`AsyncRateLimiter`. An async one lives on an event loop that runs all the time, in a thread of its
own, as it does in an application.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headgate import AsyncRateLimiter, RateLimiter, TokenBucket
from headgate.errors import StoreError
from headgate.limits import Limit
from headgate.stores.base import group_name
from headgate.stores.factory import health_of
from headgate.stores.operations import Check, Take
from headgate.stores.redis import RedisStore
from headgate.testing.store_contract.subject import Blocking
from tests.support.servers import wait_until, with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision, FailurePolicy
    from headgate.engine.use_cases import Engine
    from headgate.stores.operations import Operation

T = TypeVar("T")

KINDS: Final = ("sync", "async")


def bucket(capacity: int) -> TokenBucket:
    """A limit of *capacity* that gives nothing back while a test runs: one unit in 1,000 s."""
    return TokenBucket(capacity, 0.001)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop")
        self._thread.start()

    def run(self, verb: Coroutine[Any, Any, T]) -> T:
        """The result of *verb*, which the loop carries out."""
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Limiting:
    """A limiter of *kind* on the Redis store at *url*, in a namespace of its own if none is given.

    *timeout* is the store's, in seconds. A store that fails refuses if *policy* says nothing else.
    """

    def __init__(
        self,
        kind: str,
        url: str,
        limits: Limit | Sequence[Limit],
        *,
        timeout: float = 5.0,
        policy: FailurePolicy = "fail_closed",
        namespace: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.limit = limits if isinstance(limits, Limit) else limits[0]
        self.namespace = namespace or f"test-{token_hex(4)}"
        url = with_options(url, timeout=timeout)
        self._loop: Loop | None = None
        self.driven: RateLimiter
        if kind == "sync":
            self._store = RedisStore(url, clock=clock)
            self.driven = self._limiter = RateLimiter(
                limits,
                store=self._store,
                name="api",
                namespace=self.namespace,
                on_store_failure=policy,
            )
        else:
            self._loop = Loop()
            self._async_store = RedisStore(url, clock=clock)
            self._async_limiter = AsyncRateLimiter(
                limits,
                store=self._async_store,
                name="api",
                namespace=self.namespace,
                on_store_failure=policy,
            )
            self.driven = cast("RateLimiter", Blocking(self._async_limiter, self._loop.run))

    def hit(self, key: str = "key", cost: int = 1) -> Decision:
        return self.driven.hit(key, cost)

    def run(self, operation: Operation[T]) -> T:
        """Have the store carry out *operation*."""
        if self._loop is not None:
            return self._loop.run(self._async_store.arun(operation))
        return self._store.run(operation)

    def reason(self, key: str = "key") -> str | None:
        """Why the store cannot carry out a hit; None if it can."""
        check = Check(group_name(self.namespace, "api"), key, self.limit)
        try:
            self.run(Take((check,)))
        except StoreError as error:
            return error.reason
        return None

    def used(self, key: str = "key") -> int:
        """How much of a `bucket` the store has recorded as used."""
        decision = self.driven.peek(key, 0)
        assert decision.source == "store"
        return self.limit.quota - decision.remaining

    def hit_together(self, asked: Sequence[tuple[str, int]]) -> list[Decision]:
        """Hit all at once: in one tick of the loop in the order of *asked*, or by 20 threads."""
        if self._loop is not None:
            return self._loop.run(self._gather(asked))
        with ThreadPoolExecutor(20) as pool:
            return list(pool.map(lambda one: self.hit(*one), asked))

    def together(self, verb: Callable[[], T], *, times: int) -> list[T]:
        """Have 20 threads call *verb* so many *times* in all; a loop has as many tasks then."""
        with ThreadPoolExecutor(20) as pool:
            return [one.result() for one in [pool.submit(verb) for _ in range(times)]]

    async def _gather(self, asked: Sequence[tuple[str, int]]) -> list[Decision]:
        return await asyncio.gather(*(self._async_limiter.hit(*one) for one in asked))

    def wait_until_decided(self, key: str = "key") -> None:
        """Wait until all decisions come from the store again; a look at *key* costs nothing."""
        wait_until(lambda: self._is_decided(key), "the store decides again")

    def has_reported(self) -> bool:
        """True if the store is there, and this process has reported all usage to it."""
        return not self._engine.fallback.needs_recovery

    def _is_decided(self, key: str) -> bool:
        if self.driven.peek(key).source != "store":
            return False
        health = health_of(self._engine.store)
        return health is None or health.state == "closed"

    @property
    def _engine(self) -> Engine:
        return (self._limiter if self._loop is None else self._async_limiter)._engine

    @contextmanager
    def hammering(self, *, callers: int, key: str = "key", pause: float = 0.002) -> Iterator[Seen]:
        """Have so many callers hit *key* over and over, each with a pause after its decision."""
        seen = Seen()
        if self._loop is not None:
            threads = [threading.Thread(target=self._run_tasks, args=(seen, callers, key, pause))]
        else:
            call = (seen, key, pause)
            threads = [threading.Thread(target=self._call, args=call) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield seen
        finally:
            seen.is_over.set()
            for thread in threads:
                thread.join()

    def _run_tasks(self, seen: Seen, callers: int, key: str, pause: float) -> None:
        async def call() -> None:
            while not seen.is_over.is_set():
                seen.decisions.append(await self._async_limiter.hit(key))
                await asyncio.sleep(pause)

        async def call_all() -> None:
            await asyncio.gather(*(call() for _ in range(callers)))

        assert self._loop is not None
        self._loop.run(call_all())

    def _call(self, seen: Seen, key: str, pause: float) -> None:
        while not seen.is_over.is_set():
            seen.decisions.append(self.hit(key))
            time.sleep(pause)

    def close(self) -> None:
        if self._loop is None:
            self._limiter.close()
        else:
            self._loop.run(self._async_limiter.aclose())
            self._loop.close()


class Seen:
    """The decisions that callers in the background have got so far."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.is_over = threading.Event()

    @property
    def admitted(self) -> int:
        """How many hits the store has admitted."""
        return sum(one.allowed and one.source == "store" for one in self.decisions)

    @property
    def sources(self) -> set[str]:
        """Where the decisions came from."""
        return {one.source for one in self.decisions}

    def wait_for_more(self, source: str, *, count: int = 20) -> None:
        """Wait until *count* more decisions have come from *source*."""
        before = len(self.decisions)

        def has_come() -> bool:
            return sum(one.source == source for one in self.decisions[before:]) >= count

        wait_until(has_come, f"{count} more decisions come from {source!r}", within=30.0)


@contextmanager
def limiting(
    kind: str, url: str, limits: Limit | Sequence[Limit] | None = None, **options: Any
) -> Iterator[Limiting]:
    """A `Limiting` for the length of a block; of a bucket of 1,000 if no limit is given."""
    one = Limiting(kind, url, limits or bucket(1_000), **options)
    try:
        yield one
    finally:
        one.close()
