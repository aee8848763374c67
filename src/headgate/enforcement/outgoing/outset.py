"""Where a call begins: from a client's request to its journey, and what time it is meanwhile.

What `Caller` and `AsyncCaller` share. All options of all clients are explained in `Options`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypedDict, TypeVar

from headgate.enforcement.outgoing.destinations import Destinations
from headgate.enforcement.outgoing.journey import Journey
from headgate.enforcement.outgoing.retrying import is_repeatable
from headgate.errors import KeyInvalidError, OptionError
from headgate.identity import hashed
from headgate.limits import Limit

if TYPE_CHECKING:
    from headgate.aio import AsyncRateLimiter
    from headgate.clock import Clock
    from headgate.decisions import FailurePolicy
    from headgate.enforcement.outgoing.courtesy import Courtesy
    from headgate.limiter import RateLimiter
    from headgate.stores import AsyncStore, Store

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
    store: str | Store | AsyncStore | None


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
