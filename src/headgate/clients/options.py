"""The options of all clients, checked when a client is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar

from headgate.chance import chance
from headgate.clients.host_state import HostStates
from headgate.clock import checked_clock
from headgate.errors import OptionError
from headgate.limiter import AsyncRateLimiter, RateLimiter
from headgate.limits import Concurrency, LeakyBucket, Limit, TokenBucket, parse_limits

if TYPE_CHECKING:
    import os

    from headgate.clients.policy_limiter import PolicyLimiter
    from headgate.clients.retry_policy import RetryPolicy
    from headgate.clock import Clock
    from headgate.decision import FailurePolicy
    from headgate.policy.model import Policy
    from headgate.stores import Store

Q = TypeVar("Q")
Pace = str | Limit | Iterable[str | Limit]

NAMESPACE: Final = "outgoing"
"""The namespace of the counters of outgoing calls, unless one is given."""
NAME: Final = "pace"
"""The name of those counters in a shared store."""


class CommonOptions(TypedDict, Generic[Q], total=False):
    """The options that all clients have.

    - *key*: a function of the client's request that returns what the limit of the server is for,
      such as an API token. It divides the calls to one scheme, host and port, which are the key
      without it. The result is hashed: it may be a secret.
    - *retry*: a `RetryPolicy` with the bounds of waits and retries.
    - *hosts*: a `HostStates`, to share the waits that servers ask for with other clients of this
      process. It has a retry policy of its own.
    - *policy*: rules for the calls, the path of a file or a directory (watched for changes) or a
      `Policy`, in place of a pace; for httpx and httpx2 alone.
    - *include_usage*: True to add `stream_options: {include_usage: true}` to streamed calls of
      OpenAI's protocol that lack it, under a policy: else they are charged their estimate.
    - *store*: the store of the pace or the policy, a URL or a `Store`. Clients on one Redis share
      the counters.
    - *namespace*: clients that share a store and a namespace share the counters.
    - *on_store_failure*: "fail_open" sends without the store, at a pace of this process alone;
      "fail_closed" raises `NotSentError` at once.
    - *clock*, *random*: for tests. Waits use `sleep` (or `asleep`) of the clock if it has them.
    """

    key: Callable[[Q], str] | None
    retry: RetryPolicy | None
    hosts: HostStates | None
    policy: Policy | str | os.PathLike[str] | None
    include_usage: bool
    store: str | Store | None
    namespace: str | None
    on_store_failure: FailurePolicy
    clock: Clock | None
    random: Callable[[], float]


class Options(CommonOptions[Q], total=False):
    """The options of a blocking client.

    - *pace*: the rate of the calls to each host: text ("10/s" is one call every 100 ms), `Limit`s,
      or a `RateLimiter`, which stays open. None: as fast as the server allows.
    """

    pace: Pace | RateLimiter | None


class AsyncOptions(CommonOptions[Q], total=False):
    """The options of an async client: `Options` with an `AsyncRateLimiter`."""

    pace: Pace | AsyncRateLimiter | None


Limiter = RateLimiter | AsyncRateLimiter


class Settings:
    """Checked *options* of a client. Raises `OptionError` or `LimitError` for a mistake.

    *now_ns* is monotonic, *time_ns* since the epoch.
    """

    def __init__(self, options: Mapping[str, Any], *, is_async: bool) -> None:
        known = AsyncOptions.__optional_keys__
        for name in options.keys() - known:
            expected = ", ".join(sorted(known))
            raise OptionError(f"{name!r} is not an option; expected one of {expected}")
        self.key: Callable[[Any], str] | None = options.get("key")
        self.random: Callable[[], float] = options.get("random", chance)
        if self.key is not None and not callable(self.key):
            raise OptionError(f"key is {self.key!r}; expected a function of a request")
        if not callable(self.random):
            raise OptionError(f"random is {self.random!r}; expected a function like random.random")
        self.clock: Clock | None = options.get("clock")
        self.now_ns = time.monotonic_ns if self.clock is None else checked_clock(self.clock)
        self.time_ns = self.clock or time.time_ns
        self.hosts = _read_hosts(options.get("hosts"), options.get("retry"))
        self.limiter = _read_limiter(options, is_async=is_async)
        self.owns_limiter = self.limiter is not options.get("pace")
        self.policy = self._read_policy(options)
        self.include_usage: bool = options.get("include_usage", False)
        if type(self.include_usage) is not bool:
            raise OptionError(f"include_usage is {self.include_usage!r}; expected True or False")

    def _read_policy(self, options: Mapping[str, Any]) -> PolicyLimiter | None:
        if options.get("policy") is None:
            return None
        for name, instead in (("pace", "a rule"), ("on_store_failure", "that of a rule")):
            if options.get(name) is not None:
                raise OptionError(f"{name} and policy exclude each other; use {instead}")
        from headgate.clients.policy_limiter import PolicyLimiter  # loads all that reads files

        store, namespace = options.get("store"), options.get("namespace")
        return PolicyLimiter(
            options["policy"],
            store="memory://" if store is None else store,
            namespace=NAMESPACE if namespace is None else namespace,
            now_ns=self.now_ns,
            clock=self.clock,
        )


def _read_hosts(hosts: object, retry: Any) -> HostStates:
    if hosts is None:
        return HostStates(retry)
    if not isinstance(hosts, HostStates):
        raise OptionError(f"hosts is {hosts!r}; expected a HostStates")
    if retry is not None:
        raise OptionError("with hosts, give the retry policy to them: HostStates(RetryPolicy(...))")
    return hosts


def _read_limiter(options: Mapping[str, Any], *, is_async: bool) -> Limiter | None:
    pace, store, namespace = (options.get(name) for name in ("pace", "store", "namespace"))
    if options.get("policy") is not None:
        return None
    if pace is None or isinstance(pace, RateLimiter | AsyncRateLimiter):
        for name in ("store", "namespace", "on_store_failure"):
            if options.get(name) is not None:
                raise OptionError(f"{name} is for a pace such as '10/s', and there is none")
        if pace is not None:
            if isinstance(pace, AsyncRateLimiter) is not is_async:
                expected = "an AsyncRateLimiter" if is_async else "a RateLimiter"
                raise OptionError(f"the pace is {pace!r}; expected {expected} in this client")
            _check_rates(pace.limits)
        return pace
    limiter = (AsyncRateLimiter if is_async else RateLimiter)(
        read_pace(pace),
        store="memory://" if store is None else store,
        clock=options.get("clock") if store is None or isinstance(store, str) else None,
        namespace=NAMESPACE if namespace is None else namespace,
        name=None if store is None else NAME,
        on_store_failure=options.get("on_store_failure", "fail_open"),
    )
    limiter.waits_for_store = False  # `acquire` denies at once while the store is gone
    return limiter


def read_pace(pace: Pace) -> tuple[Limit, ...]:
    """Return the limits of *pace*, with calls evenly spaced.

    A plain rate is a leaky bucket of 1 here. A burst at the end of a window of the server and
    another at the start of the next one get denied; evenly spaced calls fit into any window:

        "10/s"                  one call every 100 ms
        "10/s burst 5"          five at once after a pause, else one every 100 ms
        "10/s token_bucket"     a named algorithm stays as it is, and so does a `Limit`

    Raises `LimitError` or `OptionError` if it has none.
    """
    if isinstance(pace, str):
        pairs = zip(parse_limits(pace), pace.split(";"), strict=True)
        limits = tuple(_spaced(limit, text) for limit, text in pairs)
    elif isinstance(pace, Limit):
        limits = (pace,)
    elif isinstance(pace, bytes | dict) or not hasattr(pace, "__iter__"):
        raise OptionError(
            f"the pace is {pace!r}; expected text such as '10/s', a Limit, "
            "or a RateLimiter (an AsyncRateLimiter in an async client)"
        )
    else:
        limits = tuple(limit for item in pace for limit in read_pace(item))
    if not limits:
        raise OptionError("the pace is empty; expected a rate such as '10/s', or None for no pace")
    _check_rates(limits)
    return limits


def _check_rates(limits: Iterable[Limit]) -> None:
    for limit in limits:
        if isinstance(limit, Concurrency):
            raise OptionError(f"the pace is '{limit}', which is no rate; expected one like '10/s'")


def _spaced(limit: Limit, text: str) -> Limit:
    words = text.lower().replace("-", "_")
    if not isinstance(limit, TokenBucket) or "token_bucket" in words:
        return limit
    return LeakyBucket(limit.capacity if "burst" in words else 1, limit.refill_rate)
