"""Generated traffic: steady, in bursts, from many tenants, around window boundaries, with retries.

A workload sends requests that match the rules of a policy. The same options generate the same
requests. `Workload` is the base; each subclass yields events in the order of time.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from ipaddress import IPv4Address, IPv6Address
from itertools import accumulate, count, islice
from typing import TYPE_CHECKING, ClassVar, Final, Literal, get_args

from headgate.errors import OptionError
from headgate.limits import Concurrency
from headgate.policy.compiled import CompiledPolicy
from headgate.simulator.traffic import SimulatedRequest, Traffic
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.limits import Limit
    from headgate.policy.model import Policy, Rule
    from headgate.simulator.traffic import Event, Headers

    Template = tuple[str, str, Headers]
    """Method, path, and headers that all callers send with it."""

Retry = Literal["at_once", "backoff", "retry_after"]
"""The behaviour of a denied client: retry at once, after a time that doubles, or as the response
says."""

RETRIES: Final[tuple[Retry, ...]] = get_args(Retry)
BEGAN_NS: Final = 1_767_225_600 * SECOND
"""The start of all workloads, that of 2026, so that windows start with them."""

_BATCH: Final = 4096
_CALLER_NAMES: Final = {"api_key": "key", "user_id": "user", "tenant": "tenant"}
_FIRST_IPV4: Final = int(IPv4Address("198.18.0.0"))  # RFC 2544: for benchmarks
_FIRST_IPV6: Final = int(IPv6Address("2001:db8::1"))
_IPV4_CALLERS: Final = 1 << 17
_WINDOWS: Final = 5
"""The windows of a boundary attack."""
_ROUND_TRIP_NS: Final = 50 * MILLISECOND
"""The time until a client that does not wait retries."""
_FIRST_WAIT_NS: Final = SECOND
_LONGEST_WAIT_NS: Final = 60 * SECOND


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a workload; None means the default of the workload.

    *rate* is requests a second of all *callers* together, without retries; *duration* is in
    seconds. *method*, *path* and *headers* are those of every request, instead of what the rules
    match. *exponent* says how unequal tenants are. Every *every* seconds there is a burst of
    *factor* times the rate for a second. *retry* is the behaviour of denied clients, at most
    *attempts* times.
    """

    rate: float = 100.0
    duration: float | None = None
    callers: int | None = None
    seed: int = 1
    method: str | None = None
    path: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    exponent: float = 1.1
    every: float = 10.0
    factor: float = 10.0
    retry: Retry = "backoff"
    attempts: int = 5

    def __post_init__(self) -> None:
        for name in ("rate", "every", "factor", "exponent", "duration"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e9:
                raise OptionError(f"{name} is {value!r}; expected a number above 0")
        for name in ("callers", "attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; expected at least 1")
        if self.retry not in RETRIES:
            raise OptionError(f"retry is {self.retry!r}; expected one of {', '.join(RETRIES)}")
        if self.path is not None and not self.path.startswith("/"):
            raise OptionError(f"path is {self.path!r}; expected one that begins with /")


class Callers:
    """The callers of a workload: each has its own address, API key, user and tenant.

    Their requests match the rules of *policy* in turn, unless *options* define the request. Raises
    `OptionError` if no rule matches.
    """

    def __init__(self, policy: Policy, options: Options, *, count: int) -> None:
        self.count = count
        self._policy = policy
        self._made: dict[tuple[int, int], SimulatedRequest] = {}
        compiled = CompiledPolicy(policy, clock=time.time_ns)
        self.templates = [
            one
            for one in _templates(policy, options)
            if compiled.matching(_request(one, 0, policy).request())
        ]
        if not self.templates:
            raise OptionError(
                "no rule of the policy matches such requests: give a path and headers that a rule "
                "matches"
            )

    def request(self, caller: int, number: int) -> SimulatedRequest:
        """Return a request of the caller with the number *caller*, by the template *number*."""
        place = caller, number % len(self.templates)
        made = self._made.get(place)
        if made is None:
            made = self._made[place] = _request(self.templates[place[1]], caller, self._policy)
        return made


def _request(template: Template, caller: int, policy: Policy) -> SimulatedRequest:
    method, path, fixed = template
    given = {name for name, _ in fixed}
    own = [
        (source.header, f"{_CALLER_NAMES[name]}-{caller}")
        for name, source in policy.identity.sources.items()
        if name in _CALLER_NAMES and source.header is not None and source.header not in given
    ]
    return SimulatedRequest(method, path, (*fixed, *own), address_of(caller))


def address_of(caller: int) -> str:
    """Return the address of the caller with the number *caller*."""
    if caller < _IPV4_CALLERS:
        return str(IPv4Address(_FIRST_IPV4 + caller))
    return str(IPv6Address(_FIRST_IPV6 + (caller << 64)))


def _templates(policy: Policy, options: Options) -> list[Template]:
    if options.path is not None or options.headers:
        return [(options.method or "GET", options.path or "/", options.headers)]
    rules = [rule for rule in policy.rules if rule.mode != "off"]
    return list(dict.fromkeys(one for rule in rules for one in _matching(rule, policy, options)))


def _matching(rule: Rule, policy: Policy, options: Options) -> list[Template]:
    """Return a request that *rule* matches; one for each tier, if its limits differ by tier."""
    match = rule.match
    method = options.method or (match.methods[0] if match.methods else "GET")
    pattern = match.endpoints[0] if match.endpoints else "/"
    path = pattern.replace("**", "a/b").replace("*", "a")
    headers = [(name, values[0] if values else "x") for name, values in match.headers]
    headers += [
        ("cookie", f"{name}={values[0] if values else 'x'}") for name, values in match.cookies
    ]
    if match.hosts:
        headers.append(("host", match.hosts[0].replace("*", "www")))
    tier_header = policy.identity.sources["tier"].header
    tiers = match.tiers or tuple(tier for tier in rule.limits if tier is not None)
    if not tiers or tier_header is None:
        return [(method, path, tuple(headers))]
    return [(method, path, (*headers, (tier_header, tier))) for tier in tiers]


class Workload(Traffic):
    """Generated traffic for *policy*."""

    name: ClassVar[str]
    default_callers: ClassVar[int] = 10
    default_duration: ClassVar[float] = 60.0

    def __init__(self, policy: Policy, options: Options) -> None:
        self.options = options
        self.callers = Callers(policy, options, count=options.callers or self.default_callers)
        duration = self.default_duration if options.duration is None else options.duration
        self.duration_ns = round(duration * SECOND)
        self._now_ns = BEGAN_NS

    @property
    def share(self) -> float | None:
        return min(1.0, (self._now_ns - BEGAN_NS) / self.duration_ns)

    def batches(self) -> Iterator[list[Event]]:
        events = self.events(random.Random(self.options.seed))  # noqa: S311 (no secret)
        while batch := list(islice(events, 1 if self.retries_denied else _BATCH)):
            self._now_ns = batch[-1][0]
            yield batch

    @abstractmethod
    def events(self, chance: random.Random) -> Iterator[Event]:
        """Yield all requests in the order of time."""


class Steady(Workload):
    """Requests at a constant rate, each of a random caller."""

    name = "steady"

    def events(self, chance: random.Random) -> Iterator[Event]:
        callers = self.callers
        for at_ns in self.times(chance):
            caller = self.caller(chance)
            yield at_ns, callers.request(caller, chance.randrange(len(callers.templates))), None

    def times(self, chance: random.Random) -> Iterator[int]:
        """Yield the times of requests."""
        return arrivals(chance, self.options.rate, BEGAN_NS, BEGAN_NS + self.duration_ns)

    def caller(self, chance: random.Random) -> int:
        """Choose a caller."""
        return chance.randrange(self.callers.count)


class Bursts(Steady):
    """Steady traffic, with many more requests for a second now and then."""

    name = "bursts"

    def times(self, chance: random.Random) -> Iterator[int]:
        return merge(super().times(chance), self._bursts(chance))

    def _bursts(self, chance: random.Random) -> Iterator[int]:
        options, ended_ns = self.options, BEGAN_NS + self.duration_ns
        rate = options.rate * options.factor
        for number in count(1):
            began_ns = BEGAN_NS + round(number * options.every * SECOND) - SECOND
            if began_ns >= ended_ns:
                return
            if began_ns >= BEGAN_NS:
                yield from arrivals(chance, rate, began_ns, min(began_ns + SECOND, ended_ns))


class ManyTenants(Steady):
    """Steady traffic of unequal callers: the n-th sends in proportion to 1/n^exponent (Zipf)."""

    name = "many_tenants"
    default_callers = 1000

    def __init__(self, policy: Policy, options: Options) -> None:
        super().__init__(policy, options)
        places = range(1, self.callers.count + 1)
        self._weights = list(accumulate(place**-options.exponent for place in places))

    def caller(self, chance: random.Random) -> int:
        (caller,) = chance.choices(range(self.callers.count), cum_weights=self._weights)
        return caller


class BoundaryAttack(Workload):
    """Twice the quota around each boundary of a window, half of it right before.

    Windows and quota are those of the first rule that matches. A fixed window allows all of it.
    """

    name = "boundary_attack"
    default_callers = 1

    def __init__(self, policy: Policy, options: Options) -> None:
        super().__init__(policy, options)
        self.limit = _limit_of(policy, self.callers.request(0, 0))
        if options.duration is None:
            self.duration_ns = _WINDOWS * self.limit.period_ns
        first_ns = _boundary_ns(self.limit.period_ns, 1) - BEGAN_NS
        if first_ns > self.duration_ns:
            raise OptionError(
                f"duration is {self.duration_ns / SECOND:g} s, and the first window of "
                f"{self.limit} ends after {first_ns / SECOND:g} s; expected at least that"
            )

    def events(self, chance: random.Random) -> Iterator[Event]:
        window_ns, quota = self.limit.period_ns, self.limit.quota
        burst_ns = min(window_ns // 20, SECOND)
        for window in count(1):
            boundary_ns = _boundary_ns(window_ns, window)
            if boundary_ns - BEGAN_NS > self.duration_ns:
                return
            for place in range(2 * quota):
                at_ns = boundary_ns - burst_ns + place * burst_ns // quota
                for caller in range(self.callers.count):
                    yield at_ns, self.callers.request(caller, 0), None


def _boundary_ns(window_ns: int, number: int) -> int:
    """Return the end of the whole window *number*, counted from 1."""
    return -(-BEGAN_NS // window_ns) * window_ns + number * window_ns


def _limit_of(policy: Policy, simulated: SimulatedRequest) -> Limit:
    compiled = CompiledPolicy(policy, clock=time.time_ns)
    for rule in compiled.plan(simulated.request(), lease="one").rules:
        for limit in rule.limits:
            if not isinstance(limit, Concurrency):
                return limit
    raise OptionError("a boundary attack needs a rule with a limit per time")


class RetryStorm(Steady):
    """Steady traffic whose denied requests are repeated, as `Options.retry` says."""

    name = "retry_storm"
    retries_denied = True

    def __init__(self, policy: Policy, options: Options) -> None:
        super().__init__(policy, options)
        self._jitter = random.Random(options.seed + 1)  # noqa: S311 (no secret)
        self._order = count()
        self._pending: list[tuple[int, int, int, SimulatedRequest]] = []
        self._attempt = 0

    def events(self, chance: random.Random) -> Iterator[Event]:
        pending = self._pending
        for event in super().events(chance):
            while pending and pending[0][0] <= event[0]:
                yield self._next_retry()
            self._attempt = 0
            yield event
        while pending:
            yield self._next_retry()

    def deny(self, event: Event, retry_after_ns: int | None) -> None:
        at_ns, simulated, _ = event
        attempt = self._attempt + 1
        if attempt > self.options.attempts:
            return
        wait_ns = self._wait_ns(attempt, retry_after_ns)
        if wait_ns is not None:
            heappush(self._pending, (at_ns + wait_ns, next(self._order), attempt, simulated))

    def _next_retry(self) -> Event:
        at_ns, _, self._attempt, simulated = heappop(self._pending)
        self.retries += 1
        return at_ns, simulated, None

    def _wait_ns(self, attempt: int, retry_after_ns: int | None) -> int | None:
        """Return the time until a client retries; None if it gives up, as it never can succeed."""
        if self.options.retry == "at_once":
            return _ROUND_TRIP_NS
        if self.options.retry == "backoff":  # exponential, with full jitter
            longest_ns = min(_FIRST_WAIT_NS << (attempt - 1), _LONGEST_WAIT_NS)
            return _ROUND_TRIP_NS + self._jitter.randrange(longest_ns)
        if retry_after_ns is None:
            return None
        header_ns = -(-retry_after_ns // SECOND) * SECOND  # headers have whole seconds
        return _ROUND_TRIP_NS + header_ns + self._jitter.randrange(SECOND)


def arrivals(chance: random.Random, rate: float, began_ns: int, ended_ns: int) -> Iterator[int]:
    """Yield the times of independent requests, *rate* a second on average."""
    at_ns = began_ns
    while True:
        at_ns += round(chance.expovariate(rate) * SECOND)
        if at_ns >= ended_ns:
            return
        yield at_ns


WORKLOADS: Final[dict[str, type[Workload]]] = {
    one.name: one for one in (Steady, Bursts, RetryStorm, BoundaryAttack, ManyTenants)
}


def workload(name: str, policy: Policy, options: Options | None = None) -> Workload:
    """Return the workload called *name*, of requests that the rules of *policy* match.

    Another policy can be tried on the same requests. Raises `OptionError` for an unknown name, or
    if no rule matches.
    """
    kind = WORKLOADS.get(name)
    if kind is None:
        raise OptionError(f"no workload {name!r}; expected one of {', '.join(WORKLOADS)}")
    return kind(policy, Options() if options is None else options)
