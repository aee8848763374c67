"""What a policy is: frozen values. One that exists is valid; `reading` makes them, or says why not.

Policy
├── identity: Identity        how to tell who is asking
├── rules: Rule, Rule, ...    when this matches, count by that key against these limits
├── overrides: Override, ...  what is otherwise for one counter, for a while
└── priorities, pressure      which requests matter more, and when limits are lowered (see `soft`)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, get_args

from headgate.decision import HeaderMode, OnFailure
from headgate.engine.rule import CompiledRule, Mode, Priority
from headgate.limits import EXACT, Accuracy
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Network, IPv6Network

    from headgate.limits import Limit


OnStoreFailure = Literal["fail_open", "fail_closed", "local"]
AfterFailOpen = Literal["fail_closed", "local"]
Decide = Literal["exact", "quota", "local"]
"""How a gateway decides: it asks the service about every request; or enforces its share of a quota
that the service assigns; or limits by itself."""

Fallback = Literal["ip", "shared", "skip"]
"""Whose counter it is when the caller did not say who it is: that of its address, one for all such
callers, or none: the rule then does not apply."""

GLOBAL: Final = "global"
"""In `key_by`: one counter for everybody."""

BUILT_IN_PARTS: Final = ("ip", "endpoint", "method", "host", GLOBAL)
"""What a key may be built of besides the names in `identity` and `header:`, `cookie:`,
`attribute:` with a name."""

Values = tuple[str, ...] | None
"""What a header, cookie or attribute may be; None: anything, as long as it is there."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a rule is for. What is empty does not matter; all the rest must fit.

    *endpoints* are patterns of paths: `*` is one segment, `**` any number of them, none included.
    *methods* are in upper case; GET is for HEAD too, HEAD for HEAD only. *hosts* are in lower case,
    `*.` in front meaning any subdomain. *tiers* are compared with what `Identity` finds; names of
    *headers* are in lower case.
    """

    endpoints: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    headers: tuple[tuple[str, Values], ...] = ()
    cookies: tuple[tuple[str, Values], ...] = ()
    attributes: tuple[tuple[str, Values], ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointCost:
    """What requests of *method* (None: any; GET is HEAD too) to *endpoint*, a pattern, cost."""

    endpoint: str
    cost: int
    method: str | None = None


@dataclass(frozen=True, slots=True)
class After:
    """What a request has cost when it is over: the number in *header* of the response, or, without
    one, the bytes of its body; one unit for every *per* of them begun, at most *most* units."""

    header: str | None = None
    per: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request costs: by a header of it, else by endpoint (the first that fits), else the
    default. A header that is missing or no whole number counts as the default; at most *most*.

    With *after* that is what it takes to be admitted; what it has cost beyond that is charged when
    it is over, in full.
    """

    default: int = 1
    endpoints: tuple[EndpointCost, ...] = ()
    header: str | None = None
    most: int | None = None
    after: After | None = None


@dataclass(frozen=True, slots=True)
class Idempotency:
    """A retry that carries the same value in *header* within *ttl_ns* is not charged again, up to
    *retries* times.

    It is one if caller, method and path are the same, and the headers named in *fingerprint*.
    """

    ttl_ns: int
    header: str = "idempotency-key"
    retries: int = 10
    fingerprint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """When *match* fits, count by *key_by* against *limits*.

    *limits* has those for callers of every tier under None, else under the name of the tier; a
    tier that is not named, with nothing under None, is not limited. Several limits are stacked.
    *decide* is for gateways only; None: as the gateway decides otherwise.

    While the store is gone each process admits *fallback_share* of the limits, unless the rule
    fails closed; one that fails open does what *after_fail_open* says after *max_fail_open_ns*.
    *across_regions*: regions with stores of their own tell each other what they have used.

    A rule with *fair* has no limits: its requests take turns in each process. *reserve* keeps a
    share of the slots of its concurrency limits for requests of a class and those that matter more;
    *share_by* names what a caller's share of them goes by: `priority`, or a name in `identity`.
    *floor* is the share of its limits that pressure may not lower it below; None: pressure does not
    concern it. *candidate_of* is the id of the rule that this one, in shadow, is tried beside.
    """

    id: str
    match: Match
    key_by: tuple[str, ...]
    limits: Mapping[str | None, tuple[Limit, ...]]
    cost: Cost = Cost()
    mode: Mode = "enforce"
    on_store_failure: OnStoreFailure = "fail_open"
    accuracy: Accuracy = EXACT
    headers: HeaderMode = "on"
    idempotency: Idempotency | None = None
    description: str = ""
    decide: Decide | None = None
    fallback_share: Fraction = Fraction(1)
    max_fail_open_ns: int | None = None
    after_fail_open: AfterFailOpen = "fail_closed"
    across_regions: bool = False
    fair: Fair | None = None
    reserve: Mapping[Priority, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    share_by: str | None = None
    floor: Fraction | None = None
    candidate_of: str | None = None

    @property
    def on_failure(self) -> OnFailure:
        """What it does while the store is gone."""
        mode, most_ns = self.on_store_failure, self.max_fail_open_ns
        return OnFailure(mode, self.fallback_share, most_ns, self.after_fail_open)

    def limits_for(self, tier: str | None) -> tuple[Limit, ...]:
        """The limits for callers of *tier*; none if they are not limited."""
        found = self.limits.get(tier)
        return self.limits.get(None, ()) if found is None else found


def compiled_rule(rule: Rule) -> CompiledRule:
    """*rule* as the engine needs it."""
    return CompiledRule(
        rule.id,
        rule.mode,
        rule.headers,
        rule.on_failure,
        rule.candidate_of,
        rule.cost.after is not None,
        rule,
    )


@dataclass(frozen=True, slots=True)
class Source:
    """Where one thing about a caller is found.

    Exactly one of *header* (in lower case), *cookie*, *attribute* and *lookup* is given. *lookup*
    is the name of another source, whose value is looked up in *values*. *default* stands for what
    is not there. A *secret* is hashed before it is used in a key; it is compared in the clear.
    """

    header: str | None = None
    cookie: str | None = None
    attribute: str | None = None
    lookup: str | None = None
    values: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    default: str | None = None
    secret: bool = False


@dataclass(frozen=True, slots=True)
class AddressSource:
    """How to find the caller's address: which proxies to believe, and what of IPv6 is one caller.

    *header* is the one that the proxies add to, each at the right end.
    """

    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    ipv4_prefix: int = 32
    ipv6_prefix: int = 64
    header: str = "x-forwarded-for"


DEFAULT_SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "api_key": Source(header="x-api-key", secret=True),
        "user_id": Source(header="x-user-id"),
        "tenant": Source(header="x-tenant-id"),
        "tier": Source(header="x-tier"),
    }
)
"""What is known of callers when a policy does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Identity:
    """How to tell who is asking. *sources* always has those of `DEFAULT_SOURCES`, and may have
    others, under names that can be used in `key_by`. The one called `tier` chooses limits."""

    sources: Mapping[str, Source] = field(default_factory=lambda: DEFAULT_SOURCES)
    address: AddressSource = AddressSource()
    fallback: Fallback = "ip"


@dataclass(frozen=True, slots=True)
class Override:
    """What is otherwise for the counter *key* of the rule with the id *rule*, until *until_ns*.

    *key* is the counter's as the engine names it; *until_ns* is in nanoseconds since the epoch.
    Either *block*: everything is refused; or *extra*: every limit of the rule is so much larger.
    """

    rule: str
    key: str
    until_ns: int
    extra: int = 0
    block: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in force together. *revision* is the number of the source, equal on every node; 0
    if it has none.

    There is at most one of *overrides* for a counter, and its rule is among *rules*.
    """

    rules: tuple[Rule, ...] = ()
    identity: Identity = Identity()
    revision: int = 0
    overrides: tuple[Override, ...] = ()
    priorities: tuple[PriorityClass, ...] = ()
    """Which requests matter more or less than others: the first that fits counts."""
    pressure: Pressure | None = None
    """When limits are lowered by themselves, and how."""


# What a policy says for when there is more demand than capacity: who takes turns with whom, which
# requests matter more, and when limits are lowered. Frozen values, as in `model`.


PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""All of them, what matters most first."""

BY_PRIORITY: Final = "priority"
"""As `share_by`: shares go by the class of a request."""

_NOTHING: Final = Fraction(0)

AdaptiveAlgorithm = Literal["gradient", "aimd"]


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Requests that *match* are of the class *priority*."""

    priority: Priority
    match: Match


@dataclass(frozen=True, slots=True)
class AdaptiveSlots:
    """How many slots there are moves between *least* and *most*, by how the requests in them fare.

    `gradient` goes by how much slower they are than usual; `aimd` by errors and by requests that
    take longer than *target_ns*.
    """

    algorithm: AdaptiveAlgorithm = "gradient"
    least: int = 1
    most: int = 1_000
    target_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Fair:
    """Requests take turns in each process, by weight of whom they are counted for (`key_by`).

    There are *slots* at a time, which *adaptive* may move, or *rate* a second: one of the two.
    *weights* are by tier, None for all others; 1 if not said. At most *queue* requests of one
    caller wait, none for longer than *max_wait_ns*. *reserve* keeps a share of the slots for
    requests of a class and those that matter more.
    """

    slots: int | None = None
    rate: Fraction | None = None
    adaptive: AdaptiveSlots | None = None
    weights: Mapping[str | None, int] = field(default_factory=lambda: MappingProxyType({}))
    queue: int = 100
    max_wait_ns: int = SECOND
    reserve: Mapping[Priority, Fraction] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Pressure:
    """When a process, or a fleet with one store, is under pressure, and what it does then.

    Every *interval_ns* it looks at the requests that ended meanwhile. It is under pressure if they
    took more than *latency_ns* at the quantile *quantile*, if more than the share *errors* of them
    failed, if more than *queue* wait, or if a signal of the user's says so. Then all limits of
    rules with a floor are multiplied by *backoff*; else they regain *recovery* of what they are
    without pressure. They never fall below *least*, nor a rule below its own floor.
    """

    latency_ns: int | None = None
    quantile: Fraction = Fraction(9, 10)
    errors: Fraction | None = None
    queue: int | None = None
    interval_ns: int = SECOND
    backoff: Fraction = Fraction(7, 10)
    recovery: Fraction = Fraction(1, 20)
    least: Fraction = Fraction(1, 10)


def ceilings(slots: int, reserve: Mapping[Priority, Fraction]) -> dict[Priority, int]:
    """By class, how many of *slots* may be in use for a request of it to have one, that included.

    Critical requests may use all. What is reserved is rounded up to whole slots, but from three
    slots on each class keeps at least one that is not taken from it: sheddable requests may always
    use one, default ones one more if they have a share of their own, and critical ones one more
    than those if they have. With one slot there is nothing to reserve.
    """
    critical, default = reserve.get("critical", _NOTHING), reserve.get("default", _NOTHING)
    middle = max(slots - math.ceil(slots * critical), 1 + (default > 0))
    middle = max(min(middle, slots - (critical > 0)), 1)
    low = min(slots - math.ceil(slots * (critical + default)), middle - (default > 0))
    return {"critical": slots, "default": middle, "sheddable": max(low, 1)}


def ceiling(slots: int, reserve: Mapping[Priority, Fraction], priority: Priority) -> int:
    """That of one class."""
    return ceilings(slots, reserve)[priority]
