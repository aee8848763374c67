"""`Shaper`: the leaky bucket as a queue, for code that may block.

What exceeds the rate waits for its turn instead of being refused. The verbs are those of the async
twin in `aio_shaper`; how a turn is come by is in `ways`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from headgate.decision import Decision, FailurePolicy, OnFailure, read_on_failure
from headgate.errors import UsageError
from headgate.limiter import decorate, decorate_async
from headgate.overload.booking import (
    Terms,
    checked_request,
    expected_wait_ns,
    read_queue,
    timeout_in_ns,
)
from headgate.overload.shaper_stores import Stored, local_lines
from headgate.overload.shaper_waiting import (
    AsyncLocalWay,
    AsyncStoredWay,
    AsyncWay,
    LocalWay,
    StoredWay,
    Way,
)
from headgate.runtime.fallback import fallback_of
from headgate.stores.factory import health_of, wrapped
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from headgate.clock import Clock
    from headgate.limiter import Cost, F, Key
    from headgate.limits import LeakyQueue
    from headgate.overload.booking import AsyncBooking, Booking
    from headgate.stores.base import Store
    from headgate.units import Rate, Seconds


class Shaper:
    """Let the requests of each key leave evenly, at *rate*, in the order in which they came.

    *rate* is a text such as `"10/s"`, a number per second, or a `LeakyQueue`. Up to *queue* units
    of a key may wait, none for longer than *max_wait* seconds: who could not be served is refused
    at once. Without *queue* it is as many as can be served in time, or 100. *store* is a URL or a
    `Store`: without one the queues are those of this process, where all move up when one gives up;
    over a store they are the fleet's. *clock* is for tests and simulations. *on_store_failure* says
    what to do while the store is gone. Safe to share among threads.
    """

    def __init__(
        self,
        rate: str | Rate | LeakyQueue,
        *,
        queue: int | None = None,
        max_wait: Seconds | None = None,
        store: str | Store = "memory://",
        clock: Clock | None = None,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
    ) -> None:
        limit = read_queue(rate, queue, max_wait)
        self._terms = Terms(limit, namespace, read_on_failure(on_store_failure))
        self._way: Way = _way(self._terms, store, clock)

    @property
    def queue(self) -> LeakyQueue:
        """What each key has to pass."""
        return self._terms.limit

    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Wait for the turn of *cost* units of *key*; true when it has come.

        Refused at once if it would not come within *timeout* seconds: 0 means only if at once. A
        refusal takes no place, and says when it would not be one. `delay` is what it was to wait:
        it was less if others gave up. An exception raised while it waits gives the place up.
        """
        return self._way.acquire(checked_request(key, cost), cost, timeout_in_ns(timeout))

    def peek(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """What `acquire` would say now, and the `delay` that it would have; no place is taken."""
        return self._way.look(checked_request(key, cost), cost, timeout_in_ns(timeout))

    def book(self, key: str, cost: int = 1, timeout: float | None = None) -> Booking:
        """A turn without waiting for it: come when it is `at`, or `cancel()` it. Check that it is
        true."""
        return self._way.book(checked_request(key, cost), cost, timeout_in_ns(timeout))

    def expected_wait(self, key: str) -> float:
        """Seconds that a request of *key* would have to wait now, were it ready to."""
        return seconds_at_least(expected_wait_ns(self.peek(key)))

    def depth(self, key: str) -> int:
        """How many units of *key* have their turn later than now."""
        return self._terms.units(self.peek(key).reset_after_ns)

    def reset(self, key: str) -> None:
        """Forget what has left. Raises `StoreError` if the store cannot be reached.

        In one process the first who waits goes now, and the others follow at the rate; over a store
        each keeps the turn that it was told.
        """
        self._way.reset(checked_request(key, 0))

    def limit(
        self, key: Key | None = None, *, cost: Cost = 1, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Decorate a function: each call waits for its turn, at most *timeout* seconds.

        *key* and *cost* are values, or made from the arguments; without a key all calls are in one
        queue. A call that is refused raises `RateLimitedError`.
        """
        wrap = decorate(_Calls(self), key, cost, wait=True, timeout=timeout)

        def checked(function: F) -> F:
            if inspect.iscoroutinefunction(function):
                raise UsageError(f"{function!r} is async: decorate it with an AsyncShaper")
            return wrap(function)

        return checked

    def close(self) -> None:
        """Give back what the store holds open."""
        self._way.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.queue}')"


class _Calls:
    """A shaper, for the decorator."""

    def __init__(self, shaper: Shaper) -> None:
        self.acquire = shaper.acquire

    def hit(self, key: str, cost: int = 1) -> Decision:
        return self.acquire(key, cost, 0)


def _way(terms: Terms, store: str | Store, clock: Clock | None) -> Way:
    lines = local_lines(terms.limit, store, clock)
    if lines is not None:
        return LocalWay(lines)
    in_use = wrapped(store, clock)
    store_clock = getattr(in_use, "clock", None)
    fallback = fallback_of(in_use, store_clock, health_of(in_use))
    return StoredWay(in_use, Stored(terms, fallback, store_clock))


# `AsyncShaper`: the verbs of `Shaper`, awaited. It never blocks the event loop.


class AsyncShaper:
    """As `Shaper`, for an event loop.

    A caller that is cancelled while it waits gives its place up. Over a store that takes a moment:
    `aclose`, or leaving `async with`, sees it through.
    """

    def __init__(
        self,
        rate: str | Rate | LeakyQueue,
        *,
        queue: int | None = None,
        max_wait: Seconds | None = None,
        store: str | Store = "memory://",
        clock: Clock | None = None,
        namespace: str = "headgate",
        on_store_failure: FailurePolicy | OnFailure = "fail_open",
    ) -> None:
        limit = read_queue(rate, queue, max_wait)
        self._terms = Terms(limit, namespace, read_on_failure(on_store_failure))
        self._way: AsyncWay = _aio_shaper_way(self._terms, store, clock)

    @property
    def queue(self) -> LeakyQueue:
        """What each key has to pass."""
        return self._terms.limit

    async def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109 (a refusal is a value, here and below)
        """Wait for the turn of *cost* units of *key*; true when it has come.

        Refused at once if it would not come within *timeout* seconds: 0 means only if at once. A
        refusal takes no place, and says when it would not be one. `delay` is what it was to wait:
        it was less if others gave up. An exception raised while it waits gives the place up.
        """
        return await self._way.acquire(checked_request(key, cost), cost, timeout_in_ns(timeout))

    async def peek(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109
        """What `acquire` would say now, and the `delay` that it would have; no place is taken."""
        return await self._way.look(checked_request(key, cost), cost, timeout_in_ns(timeout))

    async def book(self, key: str, cost: int = 1, timeout: float | None = None) -> AsyncBooking:  # noqa: ASYNC109
        """A turn without waiting for it: come when it is `at`, or `cancel()` it. Check that it is
        true."""
        return await self._way.book(checked_request(key, cost), cost, timeout_in_ns(timeout))

    async def expected_wait(self, key: str) -> float:
        """Seconds that a request of *key* would have to wait now, were it ready to."""
        return seconds_at_least(expected_wait_ns(await self.peek(key)))

    async def depth(self, key: str) -> int:
        """How many units of *key* have their turn later than now."""
        return self._terms.units((await self.peek(key)).reset_after_ns)

    async def reset(self, key: str) -> None:
        """Forget what has left. Raises `StoreError` if the store cannot be reached.

        In one process the first who waits goes now, and the others follow at the rate; over a store
        each keeps the turn that it was told.
        """
        await self._way.reset(checked_request(key, 0))

    def limit(
        self, key: Key | None = None, *, cost: Cost = 1, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Decorate an async function: each call waits for its turn, at most *timeout* seconds.

        *key* and *cost* are values, or made from the arguments; without a key all calls are in one
        queue. A call that is refused raises `RateLimitedError`.
        """
        wrap = decorate_async(_AioShaperCalls(self), key, cost, wait=True, timeout=timeout)

        def checked(function: F) -> F:
            if not inspect.iscoroutinefunction(function):
                raise UsageError(f"{function!r} is not async: decorate it with a Shaper")
            return wrap(function)

        return checked

    async def aclose(self) -> None:
        """Give back what the store holds open, once all turns that were given up are."""
        await self._way.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.queue}')"


class _AioShaperCalls:
    """A shaper, for the decorator."""

    def __init__(self, shaper: AsyncShaper) -> None:
        self.acquire = shaper.acquire

    async def hit(self, key: str, cost: int = 1) -> Decision:
        return await self.acquire(key, cost, 0)


def _aio_shaper_way(terms: Terms, store: str | Store, clock: Clock | None) -> AsyncWay:
    lines = local_lines(terms.limit, store, clock)
    if lines is not None:
        return AsyncLocalWay(lines)
    in_use = wrapped(store, clock)
    store_clock = getattr(in_use, "clock", None)
    fallback = fallback_of(in_use, store_clock, health_of(in_use))
    return AsyncStoredWay(in_use, Stored(terms, fallback, store_clock))
