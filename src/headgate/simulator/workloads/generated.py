"""Requests that are made up, as traffic."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, Literal, get_args

from headgate.errors import OptionError
from headgate.policy.compiled import CompiledPolicy
from headgate.simulator.traffic import SimulatedRequest, Traffic
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.policy.model import Policy, Rule
    from headgate.simulator.traffic import Event, Headers


# Who asks in a workload, and for what: callers that a policy tells apart, requests that its rules
# are for.


if TYPE_CHECKING:
    Kind = tuple[str, str, Headers]
    """Method, path, and headers that all callers send with it."""

_WHO: Final = {"api_key": "key", "user_id": "user", "tenant": "tenant"}
_BENCHMARKS: Final = int(IPv4Address("198.18.0.0"))  # RFC 2544: nobody has these addresses
_DOCUMENTATION: Final = int(IPv6Address("2001:db8::1"))
_MOST_IPV4: Final = 1 << 17


class Callers:
    """The callers of a workload under *policy*: each has its own address, key, user and tenant.

    They ask for what the rules are for, a rule after another, unless *options* say what. Raises
    `OptionError` if no rule is for that.
    """

    def __init__(self, policy: Policy, options: Options, *, count: int) -> None:
        self.count = count
        self._policy = policy
        self._made: dict[tuple[int, int], SimulatedRequest] = {}
        self.kinds = _kinds(policy, options)
        engine = CompiledPolicy(policy, clock=time.time_ns)
        self.kinds = [
            kind for kind in self.kinds if engine.matching(_made(kind, 0, policy).request())
        ]
        if not self.kinds:
            raise OptionError(
                "no rule of the policy is for such requests: say what is asked with a path "
                "and headers that a rule is for"
            )

    def ask(self, caller: int, kind: int) -> SimulatedRequest:
        """What the caller with the number *caller* asks; the *kind* of requests goes round."""
        place = caller, kind % len(self.kinds)
        asked = self._made.get(place)
        if asked is None:
            asked = self._made[place] = _made(self.kinds[place[1]], caller, self._policy)
        return asked


def _made(kind: Kind, caller: int, policy: Policy) -> SimulatedRequest:
    method, path, fixed = kind
    said = {name for name, _ in fixed}
    own = [
        (source.header, f"{_WHO[name]}-{caller}")
        for name, source in policy.identity.sources.items()
        if name in _WHO and source.header is not None and source.header not in said
    ]
    return SimulatedRequest(method, path, (*fixed, *own), address_of(caller))


def address_of(caller: int) -> str:
    """The address of the caller with the number *caller*."""
    if caller < _MOST_IPV4:
        return str(IPv4Address(_BENCHMARKS + caller))
    return str(IPv6Address(_DOCUMENTATION + (caller << 64)))


def _kinds(policy: Policy, options: Options) -> list[Kind]:
    if options.path is not None or options.headers:
        path = options.path or "/"
        return [(options.method or "GET", path, options.headers)]
    rules = [rule for rule in policy.rules if rule.mode != "off"]
    kinds = [kind for rule in rules for kind in _kinds_of(rule, policy, options)]
    return list(dict.fromkeys(kinds))


def _kinds_of(rule: Rule, policy: Policy, options: Options) -> list[Kind]:
    """A request that *rule* is for; one for each tier, if its limits differ by tier."""
    match = rule.match
    method = options.method or (match.methods[0] if match.methods else "GET")
    path = _path_of(match.endpoints[0]) if match.endpoints else "/"
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


def _path_of(pattern: str) -> str:
    """A path that *pattern* matches."""
    return pattern.replace("**", "a/b").replace("*", "a")


# What can be said of a workload.


Retry = Literal["at_once", "backoff", "retry_after"]
"""What a client does that was refused: it asks again at once, after a time that doubles, or when
the answer says."""

RETRIES: Final[tuple[Retry, ...]] = get_args(Retry)
BEGAN_NS: Final = 1_767_225_600 * SECOND
"""When all workloads begin: 2026 does, so windows do too."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is asked, for how long, by whom; what is None is as the workload has it.

    *rate* is requests a second of all *callers* together, retries not counted; *duration* is in
    seconds. The same *seed* makes the same requests. *method*, *path* and *headers* are what every
    request has, in place of what the rules of the policy are for.

    *exponent* says how unequal tenants are; every *every* seconds there is a burst of *factor*
    times the rate for a second; *retry* is what refused clients do, *attempts* times at most.
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
        for name in ("rate", "every", "factor", "exponent"):
            _check(name, getattr(self, name))
        if self.duration is not None:
            _check("duration", self.duration)
        for name in ("callers", "attempts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; expected at least 1")
        if self.retry not in RETRIES:
            raise OptionError(f"retry is {self.retry!r}; expected one of {', '.join(RETRIES)}")
        if self.path is not None and not self.path.startswith("/"):
            raise OptionError(f"path is {self.path!r}; expected one that begins with /")


def _check(name: str, value: float) -> None:
    if not 0 < value < 1e9:
        raise OptionError(f"{name} is {value!r}; expected a number above 0")


_BATCH: Final = 4096


class Workload(Traffic):
    """A workload under *policy*: for the same options it is always the same."""

    name: ClassVar[str]
    usual_callers: ClassVar[int] = 10
    usual_duration: ClassVar[float] = 60.0

    def __init__(self, policy: Policy, options: Options) -> None:
        self.options = options
        self.callers = Callers(policy, options, count=options.callers or self.usual_callers)
        duration = self.usual_duration if options.duration is None else options.duration
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
        """All requests in the order of their time."""


def arrivals(chance: random.Random, rate: float, began_ns: int, ended_ns: int) -> Iterator[int]:
    """Times of requests that know nothing of each other, *rate* a second on average."""
    at_ns = began_ns
    while True:
        at_ns += round(chance.expovariate(rate) * SECOND)
        if at_ns >= ended_ns:
            return
        yield at_ns
