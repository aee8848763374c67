"""`Caller`: takes requests through their journeys, for clients that block."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from headgate.clients.attempt import Journey, is_repeatable
from headgate.clients.host_state import Destinations
from headgate.clients.not_sent import Discarding, cause_of
from headgate.errors import KeyInvalidError, OptionError
from headgate.limiter import AsyncRateLimiter, RateLimiter
from headgate.limits import Concurrency, LeakyBucket, Limit, TokenBucket, parse_limits
from headgate.policy.identity import hashed
from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headgate.clients.retry_policy import Courtesy
    from headgate.clients.signals import Answer
    from headgate.clock import Clock
    from headgate.decision import Decision, FailurePolicy
    from headgate.stores import Store


# Where a call begins: from a client's request to its journey, and what time it is meanwhile.
#
# What `Caller` and `AsyncCaller` share. All options of all clients are explained in `Options`.


Q = TypeVar("Q")
Pace = str | Limit | Iterable[str | Limit]

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Terms(TypedDict, Generic[Q], total=False):
    """The options that all clients have.

    - *key*: for whom a request is made at its scheme, host and port, from the client's own request
      object; without it, these three are all. What it returns is hashed together with them: it may
      be or contain a secret, such as an API token.
    - *courtesy*: waits, retries and their bounds.
    - *destinations*: to share what servers have said with other clients of this process. It has a
      courtesy of its own.
    - *namespace*: clients that share a store and a namespace keep one pace together.
    - *on_store_failure*: what to do without the store of the pace: "fail_open" sends, "fail_closed"
      raises `NotSentError` at once.
    - *clock*, *chance*: for tests. A clock with `sleep` (or `asleep`) is slept on.
    """

    key: Callable[[Q], str] | None
    courtesy: Courtesy | None
    destinations: Destinations | None
    namespace: str | None
    on_store_failure: FailurePolicy
    clock: Clock | None
    chance: Callable[[], float]


class Options(Terms[Q], total=False):
    """The options of a client that blocks.

    - *pace*: how fast to call each destination, as text ("10/s": one call every 100 ms), `Limit`s,
      or a `RateLimiter` of your own. None: as fast as the server allows.
    - *store*: where the pace is kept: a URL or a `Store`. With Redis, all who use it share it.
    """

    pace: Pace | RateLimiter | None
    store: str | Store | None


class AsyncOptions(Terms[Q], total=False):
    """The options of a client on an event loop: as `Options`, with the async twins."""

    pace: Pace | AsyncRateLimiter | None
    store: str | Store | None


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q]):
    """A client's *request*, and what has to be known of it."""

    request: Q
    origin: str
    method: str
    idempotency_key: str | None
    replayable: bool


def origin(scheme: str, host: str, port: int | None) -> str:
    """Scheme, host and port, always spelled alike."""
    scheme, host = scheme.lower(), host.lower().strip("[]")
    shown = f"[{host}]" if ":" in host else host
    number = PORTS.get(scheme) if port is None else port
    return f"{scheme}://{shown}" if number is None else f"{scheme}://{shown}:{number}"


class Outset(Generic[Q]):
    """Begins journeys. Without a clock, waits are on the monotonic one and dates on the wall's."""

    def __init__(
        self,
        *,
        key: Callable[[Q], str] | None,
        courtesy: Courtesy | None,
        destinations: Destinations | None,
        clock: Clock | None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if courtesy is not None and destinations is not None:
            raise OptionError("give the courtesy to the Destinations, when you give those")
        self._destinations = Destinations(courtesy) if destinations is None else destinations
        self._key = key
        self._chance = chance
        self.now_ns: Clock = clock or time.monotonic_ns
        self.time_ns: Clock = clock or time.time_ns

    def journey(self, asked: Asked[Q]) -> Journey:
        """A journey for a request that has not been sent yet."""
        key = asked.origin
        if self._key is not None:
            key = self._named(asked.origin, self._key(asked.request))
        destination = self._destinations.at(key, self.now_ns())
        repeatable = is_repeatable(asked.method, asked.idempotency_key, replayable=asked.replayable)
        courtesy = self._destinations.courtesy
        return Journey(
            key,
            destination,
            courtesy,
            self._chance,
            origin=asked.origin,
            repeatable=repeatable,
        )

    @staticmethod
    def _named(origin: str, key: object) -> str:
        """A name for *key* at *origin*: what one server says must not close another one."""
        if isinstance(key, str) and key:
            return hashed(f"{len(origin)}:{origin}{key}")
        found = "an empty text" if key == "" else f"a {type(key).__name__}"
        raise KeyInvalidError(
            f"the key function returned {found}; expected a text that says whom the call is for"
        )


# The limiters that keep the pace: plain ones, but without a store they do not wait for it.
#
# `acquire` asks again after a second when `fail_closed` has refused, which is right for who can
# wait until the store is back. A call that is to be sent or not is better told at once.


class TurnLimiter(RateLimiter):
    """A `RateLimiter` whose `acquire` denies at once if the store cannot be reached."""

    waits_for_store = False

    def hit(self, key: str, cost: int = 1) -> Decision:
        return _final(super().hit(key, cost))

    def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:
        return _final(super().acquire(key, cost, timeout))


class AsyncTurnLimiter(AsyncRateLimiter):
    """A `TurnLimiter` for an event loop."""

    waits_for_store = False

    async def hit(self, key: str, cost: int = 1) -> Decision:
        return _final(await super().hit(key, cost))

    async def acquire(self, key: str, cost: int = 1, timeout: float | None = None) -> Decision:  # noqa: ASYNC109 (a denial is a value here)
        return _final(await super().acquire(key, cost, timeout))


def _final(decision: Decision) -> Decision:
    """*decision*, but there is no telling when it would be another one if the store is gone."""
    if decision.allowed or cause_of(decision) != "store":
        return decision
    return decision._replace(remaining=0, retry_after_ns=None, parts=())


# The pace of outgoing calls: from an option to limits that space them evenly.
#
# A limit on what others send lets a burst through, which is kind to them. What is sent to others is
# better spaced: their limit may be a window that began earlier than ours, and a burst at its end
# and another at the start of the next is how polite clients get refused. So a plain rate is a leaky
# bucket of 1 here:
#
#     "10/s"                  one call every 100 ms
#     "10/s burst 5"          five at once after a rest, else one every 100 ms
#     "10/s token_bucket"     an algorithm that is named is taken as it is; so is a Limit


NAMESPACE = "outgoing"
"""The namespace of the counters of outgoing calls, unless one is given."""
NAME = "pace"
"""The name of those counters in a store that others may use."""


def read_pace(pace: str | Limit | Iterable[str | Limit]) -> tuple[Limit, ...]:
    """The limits that *pace* means. Raises `LimitError` or `OptionError` if it means none."""
    if isinstance(pace, str):
        pairs = zip(parse_limits(pace), pace.split(";"), strict=True)
        return tuple(_spaced(limit, text) for limit, text in pairs)
    if isinstance(pace, Concurrency):
        raise OptionError(
            f"the pace is '{pace}', which is no pace; expected a rate, such as '10/s'"
        )
    if isinstance(pace, Limit):
        return (pace,)
    if isinstance(pace, bytes | dict) or not hasattr(pace, "__iter__"):
        raise OptionError(
            f"the pace is {pace!r}; expected text such as '10/s', a Limit, "
            "or a RateLimiter (an AsyncRateLimiter in an async client)"
        )
    limits = tuple(limit for item in pace for limit in read_pace(item))
    if not limits:
        raise OptionError("the pace is empty; expected a rate such as '10/s', or None for no pace")
    return limits


def _spaced(limit: Limit, text: str) -> Limit:
    words = text.lower().replace("-", "_")
    if not isinstance(limit, TokenBucket) or "token_bucket" in words:
        return limit
    return LeakyBucket(limit.capacity if "burst" in words else 1, limit.refill_rate)


R = TypeVar("R")


class Caller(Generic[Q, R]):
    """Sends requests *Q* of some client, and gets responses *R*. Safe to share among threads.

    *answer* reads a response; *discard* reads off and closes one that will be asked for again,
    within its `Discarding`: that time is a part of what the call waits. The options are those of
    `Options`.
    """

    def __init__(
        self,
        answer: Callable[[R], Answer],
        discard: Callable[[R, Discarding], None],
        *,
        pace: Pace | RateLimiter | None = None,
        store: str | Store | None = None,
        namespace: str | None = None,
        on_store_failure: FailurePolicy = "fail_open",
        key: Callable[[Q], str] | None = None,
        courtesy: Courtesy | None = None,
        destinations: Destinations | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._answer = answer
        self._discard = discard
        self._outset = Outset(
            key=key, courtesy=courtesy, destinations=destinations, clock=clock, chance=chance
        )
        self._sleep: Callable[[float], None] = getattr(clock, "sleep", time.sleep)
        self._owns_limiter = not isinstance(pace, RateLimiter)
        self._limiter: RateLimiter | None = None
        if isinstance(pace, RateLimiter) or pace is None:
            if store is not None or namespace is not None:
                raise OptionError("store and namespace go with a pace such as '10/s' alone")
            self._limiter = pace
        else:
            self._limiter = TurnLimiter(
                read_pace(pace),
                store="memory://" if store is None else store,
                clock=clock if store is None or isinstance(store, str) else None,
                namespace=NAMESPACE if namespace is None else namespace,
                name=None if store is None else NAME,
                on_store_failure=on_store_failure,
            )

    def call(self, asked: Asked[Q], send: Callable[[], R]) -> R:
        """The response to a request, which *send* sends, as often as need be.

        Raises `NotSentError` if it would have to wait for too long, and what *send* raises.
        """
        journey = self._outset.journey(asked)
        outset = self._outset
        while True:
            self._wait(journey)
            journey.set_out(outset.now_ns())
            response = send()
            if not journey.heard(self._answer(response), outset.now_ns(), outset.time_ns()):
                return response
            began_ns = outset.now_ns()
            self._discard(response, Discarding(journey.patience, outset.now_ns))
            journey.add_wait(began_ns, outset.now_ns())

    def close(self) -> None:
        """Close the store of the pace, unless the limiter was given."""
        if self._limiter is not None and self._owns_limiter:
            self._limiter.close()

    def _wait(self, journey: Journey) -> None:
        """Wait until the destination is open and it is this call's turn."""
        while True:
            self._wait_until_open(journey)
            if self._limiter is None:
                return
            began_ns = self._outset.now_ns()
            decision = self._limiter.acquire(journey.key, timeout=journey.patience)
            now_ns = self._outset.now_ns()
            journey.add_wait(began_ns, now_ns)
            if not decision:
                raise journey.out_of_pace(decision)
            if journey.may_go(now_ns):
                return
            # It closed while this call stood in line: what it took is for the next to come.
            self._limiter.refund(journey.key, 1)

    def _wait_until_open(self, journey: Journey) -> None:
        now_ns = self._outset.now_ns
        while pause_ns := journey.pause_ns(began_ns := now_ns()):
            self._sleep(seconds_at_least(pause_ns))
            journey.add_wait(began_ns, now_ns())


# `AsyncCaller`: takes requests through their journeys on an event loop, never blocking it.


class AsyncCaller(Generic[Q, R]):
    """Sends requests *Q* of some client, and gets responses *R*. For the tasks of one event
    loop at a time.

    *answer* reads a response; *discard* reads off and closes one that will be asked for again,
    within its `Discarding`: that time is a part of what the call waits. The options are those of
    `AsyncOptions`.
    """

    def __init__(
        self,
        answer: Callable[[R], Answer],
        discard: Callable[[R, Discarding], Awaitable[None]],
        *,
        pace: Pace | AsyncRateLimiter | None = None,
        store: str | Store | None = None,
        namespace: str | None = None,
        on_store_failure: FailurePolicy = "fail_open",
        key: Callable[[Q], str] | None = None,
        courtesy: Courtesy | None = None,
        destinations: Destinations | None = None,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._answer = answer
        self._discard = discard
        self._outset = Outset(
            key=key, courtesy=courtesy, destinations=destinations, clock=clock, chance=chance
        )
        self._sleep: Callable[[float], Awaitable[None]] = getattr(clock, "asleep", asyncio.sleep)
        self._owns_limiter = not isinstance(pace, AsyncRateLimiter)
        self._limiter: AsyncRateLimiter | None = None
        if isinstance(pace, AsyncRateLimiter) or pace is None:
            if store is not None or namespace is not None:
                raise OptionError("store and namespace go with a pace such as '10/s' alone")
            self._limiter = pace
        else:
            self._limiter = AsyncTurnLimiter(
                read_pace(pace),
                store="memory://" if store is None else store,
                clock=clock if store is None or isinstance(store, str) else None,
                namespace=NAMESPACE if namespace is None else namespace,
                name=None if store is None else NAME,
                on_store_failure=on_store_failure,
            )

    async def call(self, asked: Asked[Q], send: Callable[[], Awaitable[R]]) -> R:
        """The response to a request, which *send* sends, as often as need be.

        Raises `NotSentError` if it would have to wait for too long, and what *send* raises.
        """
        journey = self._outset.journey(asked)
        outset = self._outset
        while True:
            await self._wait(journey)
            journey.set_out(outset.now_ns())
            response = await send()
            if not journey.heard(self._answer(response), outset.now_ns(), outset.time_ns()):
                return response
            began_ns = outset.now_ns()
            await self._discard(response, Discarding(journey.patience, outset.now_ns))
            journey.add_wait(began_ns, outset.now_ns())

    async def aclose(self) -> None:
        """Close the store of the pace, unless the limiter was given."""
        if self._limiter is not None and self._owns_limiter:
            await self._limiter.aclose()

    async def _wait(self, journey: Journey) -> None:
        """Wait until the destination is open and it is this call's turn."""
        while True:
            await self._wait_until_open(journey)
            if self._limiter is None:
                return
            began_ns = self._outset.now_ns()
            decision = await self._limiter.acquire(journey.key, timeout=journey.patience)
            now_ns = self._outset.now_ns()
            journey.add_wait(began_ns, now_ns)
            if not decision:
                raise journey.out_of_pace(decision)
            if journey.may_go(now_ns):
                return
            # It closed while this call stood in line: what it took is for the next to come.
            await self._limiter.refund(journey.key, 1)

    async def _wait_until_open(self, journey: Journey) -> None:
        now_ns = self._outset.now_ns
        while pause_ns := journey.pause_ns(began_ns := now_ns()):
            await self._sleep(seconds_at_least(pause_ns))
            journey.add_wait(began_ns, now_ns())
