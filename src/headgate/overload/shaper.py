"""The leaky bucket as a queue: `Shaper` for threads, `AsyncShaper` for event loops.

What exceeds the rate waits for its place in the queue instead of being denied. A shaper is a
limiter of one `LeakyQueue`, called `shaper`: a hit takes a place and says its delay, the caller
sleeps. The delay is counted from when the reply is there. The store gave the place a moment before,
so nothing leaves early, and all that leaves is late by the way back alone.

The use cases are written once, in `ShaperVerbs`. A caller that is cancelled or interrupted while it
waits cancels its place. Those behind it keep theirs; the place goes to the next that fits.
"""

from __future__ import annotations

import inspect
import threading
import time
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from headgate.decision import Decision
from headgate.engine.verdict import Verdict
from headgate.errors import OptionError, UsageError
from headgate.fork import watch_forks
from headgate.limiter import LimiterVerbs, decision_of
from headgate.limiter.decorator import decorate
from headgate.limits import LeakyQueue, parse_rate
from headgate.limits.model import LONGEST_QUEUE
from headgate.observability import METRICS
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Interrupted, Sleep
from headgate.runtime.waiting_lines import deadline_ns, naps
from headgate.units import MICROSECOND, SECOND, duration_ns, exact_rate, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from headgate.clock import Clock
    from headgate.decision import FailurePolicy, OnFailure
    from headgate.limiter.decorator import Cost, F, Key
    from headgate.runtime.effects import Effects
    from headgate.stores.base import Store
    from headgate.units import Rate, Seconds

_NAME: Final = "shaper"
"""The name of the counters. Shapers of one store and namespace share their queues."""

_QUEUE: Final = 100
"""Units that may wait, unless *queue* or *max_wait* is given."""

_TEXT: Final = "Requests to shapers: allowed at once, delayed, or denied."
_AT_ONCE: Final = METRICS.counter("shaped", _TEXT, outcome="at_once")
_DELAYED: Final = METRICS.counter("shaped", _TEXT, outcome="delayed")
_DENIED: Final = METRICS.counter("shaped", _TEXT, outcome="denied")
_CANCELLED: Final = METRICS.counter(
    "shaped_cancelled", "Places in shapers that were cancelled before their time."
)


class _Waiting:
    """The callers of shapers, and the requests under a rule with `shape`, that wait here."""

    def __init__(self) -> None:
        self.after_fork()
        METRICS.gauge(
            "shaper_waiting", "Callers that wait for their place in a shaper.", self.count
        )
        watch_forks(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def count(self) -> float:
        return self._count

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1


WAITING: Final = _Waiting()


class ShaperVerbs(LimiterVerbs):
    """The verbs of both shapers, as generators of effects: a limiter of one `LeakyQueue`."""

    _is_async: bool

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
        self.queue = limit = _read_queue(rate, queue, max_wait)
        """The queue of each key."""
        super().__init__(
            limit,
            store=store,
            clock=clock,
            namespace=namespace,
            on_store_failure=on_store_failure,
            name=_NAME,
        )

    def limit(
        self, key: Key | None = None, *, cost: Cost = 1, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Decorate a function: each call waits for its place, at most *timeout* seconds.

        *key* and *cost* are values, or made from the arguments; without a key all calls are in one
        queue. A call that is denied raises `RateLimitedError`.
        """
        shaper: Any = self
        is_async = self._is_async
        acquire = shaper.acquire  # which every call uses, as it waits
        wrap: Callable[[F], F] = decorate(
            acquire, acquire, key, cost, wait=True, timeout=timeout, is_async=is_async
        )

        def checked(function: F) -> F:
            if inspect.iscoroutinefunction(function) != is_async:
                kind, other = ("not async", "a ") if is_async else ("async", "an Async")
                raise UsageError(f"{function!r} is {kind}: decorate it with {other}Shaper")
            return wrap(function)

        return checked

    def now_ns(self) -> int:
        """Nanoseconds on the clock of the store, or of this host if the store is elsewhere."""
        return (self._engine.store.clock or time.time_ns)()

    def starting(self, key: str, cost: int, timeout: float | None) -> Decision | Effects[Decision]:
        """Take a place and wait for it: the decision, or else the rest, which is to be driven.

        (Without a generator where the store does not wait: 2 of 5 us less.)
        """
        decide_now = self._decide_now if timeout is None else None
        decision = None if decide_now is None else decide_now(key, cost)
        if decision is None:
            return self._acquiring(key, cost, timeout)
        _count(decision)
        if not decision.delay_ns:
            return decision
        return self._waiting_for(
            Verdict(self._stack.plan(key, cost), (decision,), decision.allowed)
        )

    def taking(self, key: str, cost: int, timeout: float | None) -> Effects[Verdict]:
        """Take a place that comes within *timeout* seconds, or none."""
        stack = self._stack.within(deadline_ns(timeout, 0))
        verdict = yield from self._engine.decide(stack.plan(key, cost))
        _count(decision_of(verdict))
        return verdict

    def looking(self, key: str, cost: int, timeout: float | None) -> Effects[Decision]:
        """Return the decision of `taking`, and take nothing."""
        timeout_ns = deadline_ns(timeout, 0)
        look = yield from self._peeking(key, cost)
        if timeout_ns is None or not cost or look.retry_after_ns is None:
            return look
        wait_ns = look.delay_ns if look else look.retry_after_ns + self.queue.patience_ns
        over_ns = wait_ns - timeout_ns // MICROSECOND * MICROSECOND
        if over_ns <= 0 or (not look and over_ns < look.retry_after_ns):
            return look
        return look._replace(
            allowed=False, remaining=0, retry_after_ns=over_ns, delay_ns=0, place_ns=0
        )

    def cancelling(self, granted: Verdict) -> Effects[bool]:
        """Cancel a place where it was given; True if it had not come. It is lost if the store
        cannot be reached."""
        was_there = bool(granted.delay_ns) and (yield from self._engine.vacate(granted))
        if was_there:
            _CANCELLED.add()
        return was_there

    def closing(self) -> Effects[None]:
        """Close the store, after the callers that were interrupted."""
        return self._engine.closing()

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.queue}')"

    def _acquiring(self, key: str, cost: int, timeout: float | None) -> Effects[Decision]:
        return (yield from self._waiting_for((yield from self.taking(key, cost, timeout))))

    def _waiting_for(self, granted: Verdict) -> Effects[Decision]:
        """Wait for a place."""
        if granted.delay_ns:
            with WAITING:
                try:
                    for seconds in naps(granted.delay_ns):
                        yield Sleep(seconds, self._engine.store.clock)
                except (Interrupted, KeyboardInterrupt, Exception):
                    yield from self.cancelling(granted)
                    raise
        return decision_of(granted)

    def _wait_ns(self, look: Decision) -> int:
        """Return how long the next unit would wait, by a *look* of cost 1, were it ready to."""
        return look.delay_ns if look.allowed else look.reset_after_ns

    def _depth(self, look: Decision) -> int:
        """Return the units whose place is later than now."""
        return max(ceil(look.reset_after_ns * self.queue.per_second / SECOND) - 1, 0)


def _count(decision: Decision) -> None:
    (_DENIED if not decision.allowed else _DELAYED if decision.delay_ns else _AT_ONCE).add()


class _Booked:
    """A place at a known time, or a denial: true if there is a place."""

    __slots__ = ("_shaper", "_verdict", "at_ns", "cost", "decision", "is_open")

    def __init__(self, shaper: ShaperVerbs, verdict: Verdict, cost: int) -> None:
        self._shaper = shaper
        self._verdict = verdict
        self.decision = decision_of(verdict)
        self.cost = cost
        self.at_ns = shaper.now_ns() + verdict.delay_ns
        """`at` in nanoseconds."""
        self.is_open = verdict.allowed
        """False if it was cancelled."""

    @property
    def key(self) -> str:
        """The key of the queue."""
        return self.decision.key

    @property
    def delay(self) -> float:
        """Seconds from the booking to the place."""
        return self.decision.delay

    @property
    def at(self) -> float:
        """The time of the place, in seconds since the epoch on the clock of this process."""
        return self.at_ns / SECOND

    @property
    def retry_after(self) -> float | None:
        """Without a place: seconds until there would be one; None if never."""
        return self.decision.retry_after

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        if not self:
            return f"{type(self).__name__}({self.key!r}, denied, retry_after={self.retry_after})"
        state = "" if self.is_open else ", cancelled"
        return f"{type(self).__name__}({self.key!r}, at={self.at}, delay={self.delay}{state})"

    def _cancel(self) -> Effects[bool]:
        was_open, self.is_open = self.is_open, False
        if not was_open:
            return False
        return (yield from self._shaper.cancelling(self._verdict))


class Booking(_Booked):
    """A place at a known time. Its holder comes when it is `at`, or cancels it."""

    __slots__ = ()

    def cancel(self) -> bool:
        """Cancel the place; True if that was in time for others to have it."""
        return drive(self._cancel())


class AsyncBooking(_Booked):
    """The async form of `Booking`."""

    __slots__ = ()

    async def cancel(self) -> bool:
        """Cancel the place; True if that was in time for others to have it."""
        return await adrive(self._cancel())


class Shaper(ShaperVerbs):
    """Let the requests of each key leave evenly, at *rate*, in the order in which they came.

    *rate* is a text such as `"10/s"`, a number per second, or a `LeakyQueue`. Up to *queue* units
    of a key may wait, none for longer than *max_wait* seconds: more is denied at once. Without
    *queue* it is as many as can be served in time, or 100. *store* is a URL or a `Store`. *clock*
    is for tests and simulations. *on_store_failure* says what to do while the store is gone. Safe
    to share among threads.
    """

    _is_async = False

    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Wait for a place for *cost* units of *key*; true when it has come.

        Denied at once if it would not come within *timeout* seconds: 0 means only if at once. A
        denial takes no place, and says when to retry. `delay` is how long it waited. An exception
        raised while it waits cancels the place.
        """
        started = self.starting(key, cost, timeout)
        return started if isinstance(started, Decision) else drive(started)

    def peek(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        """Return what `acquire` would now, and the `delay` that it would have; take no place."""
        return drive(self.looking(key, cost, timeout))

    def book(self, key: str, cost: int = 1, timeout: float | None = None) -> Booking:
        """Take a place without waiting for it. Check that it is true."""
        return Booking(self, drive(self.taking(key, cost, timeout)), cost)

    def expected_wait(self, key: str) -> float:
        """Return the seconds that a request of *key* would have to wait now, were it ready to."""
        return seconds_at_least(self._wait_ns(self.peek(key)))

    def depth(self, key: str) -> int:
        """Return how many units of *key* have their place later than now."""
        return self._depth(self.peek(key))

    def reset(self, key: str) -> None:
        """Forget what has left. Those who wait keep their places. May raise `StoreError`."""
        drive(self._resetting(key))

    def close(self) -> None:
        """Close the store."""
        drive(self.closing())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncShaper(ShaperVerbs):
    """The async form of `Shaper`."""

    _is_async = True

    async def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109 (a denial is a value, here and below)
        """Wait for a place; as `Shaper.acquire`. A cancelled caller cancels its place."""
        started = self.starting(key, cost, timeout)
        return started if isinstance(started, Decision) else await adrive(started)

    async def peek(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109
        """Return what `acquire` would now, and the `delay` that it would have; take no place."""
        return await adrive(self.looking(key, cost, timeout))

    async def book(self, key: str, cost: int = 1, timeout: float | None = None) -> AsyncBooking:  # noqa: ASYNC109
        """Take a place without waiting for it. Check that it is true."""
        verdict = await adrive(self.taking(key, cost, timeout))
        return AsyncBooking(self, verdict, cost)

    async def expected_wait(self, key: str) -> float:
        """Return the seconds that a request of *key* would have to wait now, were it ready to."""
        return seconds_at_least(self._wait_ns(await self.peek(key)))

    async def depth(self, key: str) -> int:
        """Return how many units of *key* have their place later than now."""
        return self._depth(await self.peek(key))

    async def reset(self, key: str) -> None:
        """Forget what has left. Those who wait keep their places. May raise `StoreError`."""
        await adrive(self._resetting(key))

    async def aclose(self) -> None:
        """Close the store, once all places that were given up are cancelled."""
        await adrive(self.closing())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def _read_queue(
    rate: str | Rate | LeakyQueue, queue: int | None, max_wait: Seconds | None
) -> LeakyQueue:
    """Return the queue that the first options of a shaper describe."""
    if isinstance(rate, LeakyQueue):
        if queue is not None or max_wait is not None:
            raise OptionError(f"{rate!r} says its queue and max_wait itself: do not give them too")
        return rate
    per_second = parse_rate(rate) if isinstance(rate, str) else rate
    if queue is None and max_wait is None:
        queue = _QUEUE
    elif queue is None:
        wait_ns = duration_ns(max_wait, "max_wait") if max_wait else 0
        units = exact_rate(per_second, "rate") * wait_ns / SECOND
        queue = min(ceil(units), LONGEST_QUEUE)
    return LeakyQueue(per_second, queue, max_wait)
