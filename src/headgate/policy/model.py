"""The values of a policy: frozen dataclasses, each declared once.

Policy
├── identity: Identity        how callers are identified
├── rules: Rule, Rule, ...    match, key and limits of requests
├── overrides: Override, ...  exceptions for single counters, for a while
└── priorities, pressure      which requests matter more, and when limits are lowered

A declaration has the type, the default and the bounds of a field; its docstring is its help.
`loader` makes the values of files; a new field needs its declaration here, and its use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from headgate.decision import HeaderMode, OnFailure
from headgate.engine.plan import CompiledRule, Mode, Priority
from headgate.errors import OptionError
from headgate.limits import EXACT, Accuracy
from headgate.limits.accuracy import MOST_PARTS
from headgate.limits.model import LARGEST_QUOTA, LONGEST_QUEUE
from headgate.llm.amounts import Kind, actual
from headgate.llm.prices import Price
from headgate.policy.document import Scalar, Table
from headgate.policy.fields import (
    BOOLEAN,
    COOKIE,
    COUNTER_KEY,
    HEADER,
    HOST,
    INSTANT,
    METHOD,
    MODEL,
    MONEY,
    MULTIPLE,
    NETWORK,
    ONLY_TRUE,
    PATTERN,
    PROSE,
    QUOTA,
    RATE,
    RULE_ID,
    SYNC,
    WORD,
    WORDS,
    FieldError,
    FieldType,
    InvalidValueError,
    Network,
    checked_pattern,
    choice,
    duration,
    entries,
    not_among,
    read_several,
    read_text,
    read_word,
    several,
    share,
    whole,
    word,
)
from headgate.policy.limit_forms import LIMITS, TIER, Limits
from headgate.policy.problems import quoted
from headgate.policy.tables import exactly_one, model_field, table
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headgate.limits import Limit
    from headgate.llm.prices import Prices
    from headgate.policy.document import Node

OnStoreFailure = Literal["fail_open", "fail_closed", "local"]
AfterFailOpen = Literal["fail_closed", "local"]
Decide = Literal["exact", "quota", "local"]
"""The way a gateway decides: it lets the service decide every request; or enforces its share of a
quota that the service assigns; or limits by itself."""

Fallback = Literal["ip", "shared", "skip"]
"""The counter of a caller without identity: that of its address, one for all such callers, or
none: the rule then does not apply."""

AdaptiveAlgorithm = Literal["gradient", "aimd"]

GLOBAL: Final = "global"
"""In `key_by`: one counter for all callers."""

BUILT_IN_PARTS: Final = ("ip", "endpoint", "method", "host", GLOBAL)
"""Parts of a key besides the names in `identity` and `header:`, `cookie:`, `attribute:` with a
name."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""The classes of requests, the most important first."""

BY_PRIORITY: Final = "priority"
"""A value of `share_by`: shares go by the class of a request."""

RESERVABLE: Final = PRIORITIES[:-1]
"""The classes that slots can be reserved for: no requests matter less than those of the last."""

MAX_SLOTS: Final = 1_000_000
MAX_WAITING: Final = 1_000_000
"""Requests that may wait before that counts as pressure, at most."""

Values = tuple[str, ...] | None
"""Values of a header, cookie or attribute; None: any, as long as it is there."""

Conditions = tuple[tuple[str, Values], ...]

_NOTHING: Final = Fraction(0)
_SOURCE_KINDS: Final = ("header", "cookie", "attribute", "lookup")
_PREFIXES: Final[Mapping[str, FieldType]] = {
    "header": HEADER,
    "cookie": COOKIE,
    "attribute": word("the name of an attribute"),
}
_AMOUNT: Final = whole(0, LARGEST_QUOTA)
_OPEN: Final = OnFailure()
_EMPTY: Final = partial(MappingProxyType[Any, Any], {})


def _read_values(node: Node) -> Values:
    is_any = isinstance(node, Scalar) and node.boolean is True
    found: Values = None if is_any else WORDS.read(node)
    return found


_VALUES: Final = FieldType(
    "a value",
    _read_values,
    {"anyOf": [{"const": True}, *WORDS.json_schema()["anyOf"]]},
    lambda values: True if values is None else WORDS.write(values),
)
"""Values of a header, cookie or attribute; true for any."""


def _conditions(name: FieldType) -> FieldType:
    """Names of the type *name*, and the values that they must have."""
    what = "names and the values they must have"
    return entries(what, name, _VALUES, tuple, lambda pairs: pairs, unique=True)


@table(
    "the requests that the rule is for",
    names={
        "endpoints": "endpoint",
        "methods": "method",
        "hosts": "host",
        "tiers": "tier",
        "models": "model",
    },
    synonyms={"path": "endpoint", "paths": "endpoint", "url": "endpoint", "route": "endpoint"},
)
@dataclass(frozen=True, slots=True)
class Match:
    """The requests that a rule is for: all fields that are given must fit."""

    endpoints: Annotated[tuple[str, ...], several(PATTERN, PATTERN.what)] = ()
    """Patterns of paths: * is one segment, ** any number of them. Case does not matter, and all
    spellings of a path are one path."""
    methods: Annotated[tuple[str, ...], several(METHOD, "a method")] = ()
    """Methods, in any case. GET is for HEAD too, HEAD for HEAD alone."""
    hosts: Annotated[tuple[str, ...], several(HOST, "a host")] = ()
    """Hosts, without the port; *.example.com is any subdomain."""
    tiers: Annotated[tuple[str, ...], several(WORD, "the name of a tier")] = ()
    """Tiers of callers, from identity.tier."""
    headers: Annotated[Conditions, _conditions(HEADER)] = ()
    """Headers and the values they must have; true for any value."""
    cookies: Annotated[Conditions, _conditions(COOKIE)] = ()
    """Cookies and the values they must have; true for any value."""
    attributes: Annotated[Conditions, _conditions(WORD)] = ()
    """Attributes and the values they must have; true for any value."""
    models: Annotated[tuple[str, ...], several(MODEL, MODEL.what)] = ()
    """Names of language models in any case, with * for any text. A request whose model cannot be
    read matches all of them."""


@dataclass(frozen=True, slots=True)
class EndpointCost:
    """The *cost* of requests of *method* (None: any; GET is HEAD too) to *endpoint*, a pattern."""

    endpoint: str
    cost: int
    method: str | None = None

    @property
    def key(self) -> str:
        """The key of the entry in a file."""
        return self.endpoint if self.method is None else f"{self.method} {self.endpoint}"

    def __str__(self) -> str:
        return quoted(self.key)


def _read_endpoint(node: Node) -> tuple[str, str | None]:
    """A pattern of paths, or a method and a pattern."""
    verb, space, path = read_word(node, _AN_ENDPOINT).strip().partition(" ")
    if not space:
        return checked_pattern(verb), None
    return checked_pattern(path.strip()), METHOD.read(Scalar(verb, is_plain=False))


_AN_ENDPOINT: Final = "a path, or a method and a path"
_ENDPOINT_COSTS: Final = entries(
    "costs of endpoints",
    FieldType(_AN_ENDPOINT, _read_endpoint),
    _AMOUNT,
    lambda pairs: tuple(EndpointCost(path, cost, verb) for (path, verb), cost in pairs),
    lambda costs: ((one.key, one.cost) for one in costs),
    examples=({"/x/*": 2},),
)


@table(
    "the cost that is charged afterwards",
    names={"by_bytes": "bytes", "most": "max"},
    one_of=("header", "bytes"),
    schema={"examples": [{"header": "x-tokens"}, {"bytes": True, "per": 1024, "max": 100_000}]},
)
@dataclass(frozen=True, slots=True)
class After:
    """The final cost of a request: a number in a header of the response, or the bytes of its
    body."""

    header: Annotated[str | None, HEADER] = None
    """The header of the response with the number: a whole one, in one line."""
    by_bytes: Annotated[bool | None, ONLY_TRUE] = field(default=None, kw_only=True)
    """The bytes of the body that were sent, in place of a header."""
    per: Annotated[int, QUOTA] = 1
    """Number of them that is one unit; a part of one counts in full."""
    most: Annotated[int | None, QUOTA] = None
    """The most units that a request costs."""


@table(
    "the cost of a call of a language model",
    names={"hold_ns": "hold"},
    schema={"examples": [{"count": "tokens", "default_output": 1024}]},
)
@dataclass(frozen=True, slots=True)
class ModelCost:
    """The cost of a call of a language model.

    At its start an estimate is reserved: the bytes of the body by *bytes_per_token*, and the output
    that it asks for. At its end it costs what the response says was used; without that, or if it is
    not settled in time, the estimate.
    """

    count: Annotated[Kind, choice(get_args(Kind))]
    """The tokens to count: all, those of the input, those of the input that no cache had, those of
    the output; or spend, the money that they cost by the prices of the policy."""
    default_output: Annotated[int, QUOTA] = 4096
    """Output tokens that are reserved for a request that does not bound them."""
    bytes_per_token: Annotated[int, whole(1, 1_000)] = 4
    """Bytes of the body of a request that are estimated as one token of input."""
    hold_ns: Annotated[int, duration(SECOND, DAY, "a time from 1s to 1d")] = 10 * MINUTE
    """Time after which a call that was not settled has used what was reserved."""


def _cost_shape(node: Table) -> Iterator[FieldError]:
    """A header without a bound, a bound without a header, a header with `after`, anything with
    `llm`."""
    others = [name for name in node.entries if name not in ("llm", "default")]
    if "llm" in node.entries and others:
        hint = "expected llm, and perhaps default for requests without a body"
        yield FieldError(f"llm and {others[0]} exclude each other", hint=hint, path=(others[0],))
        return
    given = [name for name in ("header", "max") if name in node.entries]
    if "after" in node.entries:
        if "header" in given:
            message = "header and after exclude each other: a request with a cost of 0 in the"
            hint = "give the cost of being allowed with default or endpoints"
            yield FieldError(f"{message} header would never be denied", hint=hint, path=("header",))
        elif given:
            hint = "the final cost is bounded by max in after"
            yield FieldError("max needs header, which is missing", hint=hint, path=("max",))
    elif len(given) == 1:
        other = "max" if given == ["header"] else "header"
        message = f"missing; {given[0]} needs {other}: a cost that callers choose must be bounded"
        yield FieldError(message, path=(other,))
    if "min" in node.entries and given in ([], ["max"]) and not ("after" in node.entries and given):
        hint = "a request without that header costs default"
        yield FieldError("min needs header, which is missing", hint=hint, path=("min",))


def _finish_cost(cost: Cost, _node: Table, _context: object) -> Cost:
    errors = []
    if cost.most is not None and cost.default > cost.most:
        message = f"the default of {cost.default} is above the max of {cost.most}"
        errors.append(FieldError(message, path=("max",)))
    if cost.most is not None and cost.least > cost.most:
        message = f"the min of {cost.least} is above the max of {cost.most}"
        errors.append(FieldError(message, path=("min",)))
    if cost.after is not None:
        why = "with after a request costs at least 1 in advance, or it would never be denied"
        if not cost.default:
            errors.append(FieldError(f"found 0; {why}", path=("default",)))
        free = [one for one in cost.endpoints if not one.cost]
        errors += [FieldError(f"found 0 for {one}; {why}", path=("endpoints",)) for one in free]
    if errors:
        raise InvalidValueError(errors)
    return cost


_PAID: Final = {"minimum": 1}
_PAID_IN_ADVANCE: Final = {
    "default": _PAID,
    "endpoints": {"additionalProperties": _PAID},
    "header": False,
    "min": False,
}


@table(
    "the cost",
    names={"least": "min", "most": "max"},
    shape=_cost_shape,
    finish=_finish_cost,
    always=("default",),
    schema={
        "dependentRequired": {"header": ["max"], "max": ["header"], "min": ["header"]},
        "dependentSchemas": {
            "after": {"properties": _PAID_IN_ADVANCE},
            "llm": {"propertyNames": {"enum": ["llm", "default"]}},
        },
        "examples": [{"default": 1, "endpoints": {"POST /export/pdf": 10}}],
    },
)
@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a request: by a header of it, else by endpoint (the first that fits), else the
    default.

    A header that is missing or no whole number counts as the default; a number outside of *least*
    and *most* counts as the nearer of the two. With *after* the default is the cost in advance; the
    rest of the final cost is charged when the response has ended, in full.
    """

    default: Annotated[int, _AMOUNT] = 1
    """The cost of a request."""
    endpoints: Annotated[tuple[EndpointCost, ...], _ENDPOINT_COSTS] = ()
    """Costs by endpoint, such as `POST /export/pdf`: 10; the first that fits. GET is for HEAD too:
    put a cost of HEAD before it."""
    header: Annotated[str | None, HEADER] = None
    """The header of the request with its cost, before all else; needs max. A caller that sets it
    chooses the cost of its own requests, from min to max."""
    least: Annotated[int, _AMOUNT] = field(default=1, kw_only=True)
    """The lowest cost that the header can give. With 0, a header of 0 is free and never denied."""
    most: Annotated[int | None, QUOTA] = None
    """The highest cost that the header can give."""
    after: After | None = None
    """The final cost; what is above the cost in advance is charged when the response has ended. Not
    together with header."""
    llm: Annotated[ModelCost | None, model_field(ModelCost, short="count")] = None
    """What a call of a language model uses. A request without a body (GET, HEAD, OPTIONS, DELETE)
    is no call, and costs default. Nothing else stands beside it."""


@table(
    "idempotency",
    names={"ttl_ns": "ttl"},
    order=("header", "ttl"),
    always=("header", "ttl", "retries"),
)
@dataclass(frozen=True, slots=True)
class Idempotency:
    """A retry with the same key is not charged again: of the same caller, method and path."""

    ttl_ns: Annotated[int, duration()] = DAY
    """Time for which a key is remembered."""
    header: Annotated[str, HEADER] = "idempotency-key"
    """The header with the key."""
    retries: Annotated[int, whole(1, 1_000)] = 10
    """Number of retries that are free within that time."""
    fingerprint: Annotated[
        tuple[str, ...], several(HEADER, "names of headers", most=8, is_listed=True)
    ] = ()
    """Headers that have to be the same, besides caller, method and path."""


def _accuracy_shape(node: Table) -> Iterator[FieldError]:
    if not node.entries:
        names = "max_overshoot, batch, sync, denials, split"
        yield FieldError(f"found nothing in it, expected one of {names}")


@table(
    "the accuracy",
    names={"sync_ns": "sync", "denials_ns": "denials"},
    shape=_accuracy_shape,
    makes=Accuracy,
    schema={
        "minProperties": 1,
        "examples": [{"max_overshoot": "1%"}, {"sync": "100ms", "max_overshoot": "5%"}],
    },
)
@dataclass(frozen=True, slots=True)
class AccuracyFields:
    """Overshoot of a fleet that is accepted to save round trips; none by default."""

    max_overshoot: Annotated[Fraction | None, share()] = None
    """The most that a fleet may allow above the limit, as a share of it such as 1%."""
    batch: Annotated[int | None, QUOTA] = None
    """Units that a node leases from the store at once; with max_overshoot both bounds hold."""
    sync_ns: Annotated[int | None, SYNC] = None
    """A time such as 100ms: each node decides by itself, and reports its usage this often."""
    denials_ns: Annotated[int | None, duration(off=True)] = None
    """Time for which a denial is remembered, or off; 1s where the limit is not exact, else off."""
    split: Annotated[int, whole(1, MOST_PARTS)] = 1
    """Sub-counters of each counter, each with an equal part of the limit, on different shards of a
    cluster. Leases are usually better."""


def _failure_shape(node: Table) -> Iterator[FieldError]:
    given = node.entries.get("mode", Scalar("fail_open", is_plain=True))
    mode = given.text if isinstance(given, Scalar) else ""
    if mode == "fail_closed" and "share" in node.entries:
        message = "a rule that fails closed allows nothing"
        yield FieldError(message, hint="leave share out", path=("share",))
    if mode in ("fail_closed", "local") and "max_fail_open" in node.entries:
        yield FieldError(f"is for fail_open, and the mode is {mode}", path=("max_fail_open",))
    if "then" in node.entries and "max_fail_open" not in node.entries:
        yield FieldError("needs max_fail_open: after how long", path=("then",))


@table(
    "the failure policy while the store cannot decide",
    names={"open_ns": "max_fail_open"},
    shape=_failure_shape,
    makes=OnFailure,
    always=("mode",),
    schema={
        "dependentRequired": {"then": ["max_fail_open"]},
        "dependentSchemas": {
            "max_fail_open": {"properties": {"mode": {"const": "fail_open"}}},
            "share": {"properties": {"mode": {"enum": ["fail_open", "local"]}}},
        },
        "examples": [{"mode": "fail_open", "share": "25%", "max_fail_open": "5m"}],
    },
)
@dataclass(frozen=True, slots=True)
class FailureFields:
    """The failure policy of a rule while the store cannot decide."""

    mode: Annotated[OnStoreFailure, choice(get_args(OnStoreFailure))] = "fail_open"
    """fail_open allows, in each process at most a share of the limit; local enforces a share in
    each process; fail_closed denies."""
    share: Annotated[Fraction, share()] = Fraction(1)
    """The share of the limit for each process; not for fail_closed."""
    open_ns: Annotated[int | None, duration()] = None
    """Longest time for which the rule fails open; unlimited by default."""
    then: Annotated[AfterFailOpen, choice(get_args(AfterFailOpen))] = "fail_closed"
    """The mode after max_fail_open."""


def _finish_slots(made: AdaptiveSlots, node: Table, _context: object) -> AdaptiveSlots:
    if made.least > made.most:
        message = f"the min of {made.least} is above the max of {made.most}"
        raise FieldError(message, path=("min",) if "min" in node.entries else ())
    return made


@table(
    "slots that adapt",
    names={"algorithm": "adaptive", "least": "min", "most": "max", "target_ns": "target"},
    finish=_finish_slots,
    always=("min", "max"),
    schema={"examples": [{"adaptive": "gradient", "min": 5, "max": 200}]},
)
@dataclass(frozen=True, slots=True)
class AdaptiveSlots:
    """Slots that adapt between a minimum and a maximum, by the latency and errors of requests."""

    algorithm: Annotated[AdaptiveAlgorithm, choice(get_args(AdaptiveAlgorithm))]
    """The algorithm that moves them: gradient goes by how much slower requests are than usual, aimd
    by errors and by requests that take longer than the target."""
    least: Annotated[int, whole(1, MAX_SLOTS)] = 1
    """The fewest slots."""
    most: Annotated[int, whole(1, MAX_SLOTS)] = 1_000
    """The most slots."""
    target_ns: Annotated[int | None, duration()] = None
    """Longest time that a request may take."""


def _checked_reserve(pairs: list[tuple[Priority, Fraction]]) -> Mapping[Priority, Fraction]:
    found = dict(pairs)
    if (total := sum(found.values())) >= 1:
        message = f"{float(total) * 100:g}% are reserved: nothing is left for other requests"
        raise FieldError(message, hint="expected less than 100% in all")
    return MappingProxyType(found)


RESERVE: Final = entries(
    "the share that is reserved for each class of requests",
    choice(RESERVABLE),
    share(),
    _checked_reserve,
    examples=({"critical": "20%"},),
)
_WEIGHTS: Final = entries(
    "weights of tiers", TIER, whole(1, 1_000), examples=({"enterprise": 4, "default": 1},)
)


def _fair_shape(node: Table) -> Iterator[FieldError]:
    yield from exactly_one(node, "slots", "rate", path=("slots",))
    if "reserve" in node.entries and "rate" in node.entries and "slots" not in node.entries:
        message = "needs slots, and requests are started at a rate"
        hint = "expected slots in place of rate, or no reserve"
        yield FieldError(message, hint=hint, path=("reserve",))


@table(
    "the fair queue of requests",
    names={"max_wait_ns": "max_wait"},
    shape=_fair_shape,
    always=("queue", "max_wait"),
    schema={
        "oneOf": [
            {"required": ["slots"]},
            {"required": ["rate"], "properties": {"reserve": False}},
        ],
        "examples": [{"slots": 50, "weights": {"enterprise": 4}, "queue": 100, "max_wait": "2s"}],
    },
)
@dataclass(frozen=True, slots=True)
class Fair:
    """Requests wait in a weighted fair queue in each process, by caller (`key_by`).

    There are *slots* at a time, or *rate* a second: one of the two.
    """

    slots: Annotated[
        int | AdaptiveSlots | None, model_field(AdaptiveSlots, alone=whole(1, MAX_SLOTS))
    ] = None
    """Number of requests that are worked on at the same time; or slots that adapt."""
    rate: Annotated[Fraction | None, RATE] = None
    """Rate at which requests are worked on, in place of slots."""
    weights: Annotated[Mapping[str | None, int], _WEIGHTS] = field(default_factory=_EMPTY)
    """Weights by tier, 1 if not given; 'default' is for callers of all other tiers, and of none. A
    tier of twice the weight gets twice the work while requests wait."""
    queue: Annotated[int, whole(0, LONGEST_QUEUE)] = 100
    """Number of requests of one caller that may wait."""
    max_wait_ns: Annotated[int, duration(zero=True)] = SECOND
    """Longest wait; 0 for none."""
    reserve: Annotated[Mapping[Priority, Fraction], RESERVE] = field(default_factory=_EMPTY)
    """Slots that are kept for requests of a class, and more important ones."""

    @property
    def most_slots(self) -> int | None:
        """The most requests that are worked on at the same time; None if they have a rate."""
        return self.slots.most if isinstance(self.slots, AdaptiveSlots) else self.slots


_LOOKUP: Final = entries("values", WORD, WORD, secret=True)
"""Results by value, which may be a secret."""


def _source_shape(node: Table) -> Iterator[FieldError]:
    for error in exactly_one(node, *_SOURCE_KINDS):
        error.instead_of = frozenset()  # a similar unknown field may mean any of them
        yield error
    if ("lookup" in node.entries) != ("values" in node.entries):
        yield FieldError("lookup and values need each other: the source, and results by its value")


def _finish_source(made: Source, node: Table, name: object) -> Source:
    usual = DEFAULT_SOURCES.get(str(name), Source()).secret
    return made if "secret" in node.entries else replace(made, secret=usual)


@table(
    "the source of a name",
    shape=_source_shape,
    finish=_finish_source,
    order=(*_SOURCE_KINDS, "default", "values"),
    schema={
        "oneOf": [{"required": [kind]} for kind in _SOURCE_KINDS],
        "dependentRequired": {"lookup": ["values"], "values": ["lookup"]},
        "examples": [
            {"header": "x-api-key"},
            {"lookup": "api_key", "values": {"key-1": "paid"}},
        ],
    },
)
@dataclass(frozen=True, slots=True)
class Source:
    """Where one thing about a caller is found: in exactly one of header, cookie, attribute and
    lookup."""

    header: Annotated[str | None, HEADER] = None
    """The name of a header."""
    cookie: Annotated[str | None, COOKIE] = None
    """The name of a cookie."""
    attribute: Annotated[str | None, WORD] = None
    """The name of an attribute."""
    lookup: Annotated[str | None, WORD] = None
    """The source whose value is looked up in values, in place of the three above."""
    values: Annotated[Mapping[str, str], _LOOKUP] = field(default_factory=_EMPTY)
    """Results of the lookup, by value."""
    default: Annotated[str | None, WORD] = None
    """The value of a request that has none."""
    secret: Annotated[bool, BOOLEAN] = False
    """Hashed before it is used in a key, compared in the clear; true for api_key."""


@table(
    "the source of the address",
    always=("ipv4_prefix", "ipv6_prefix", "header"),
    order=("ipv4_prefix", "ipv6_prefix", "header"),
)
@dataclass(frozen=True, slots=True)
class AddressSource:
    """The address of the caller: the trusted proxies, and the prefix that is one
    caller."""

    trusted_proxies: Annotated[
        tuple[Network, ...], several(NETWORK, "an address or a network", is_listed=True)
    ] = ()
    """Addresses and networks of trusted proxies."""
    ipv4_prefix: Annotated[int, whole(1, 32)] = 32
    """Bits of an IPv4 address that are one caller."""
    ipv6_prefix: Annotated[int, whole(1, 128)] = 64
    """Bits of an IPv6 address that are one caller."""
    header: Annotated[str, HEADER] = "x-forwarded-for"
    """The header that proxies add addresses to, each at the right end; or forwarded."""


DEFAULT_SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "api_key": Source(header="x-api-key", secret=True),
        "user_id": Source(header="x-user-id"),
        "tenant": Source(header="x-tenant-id"),
        "tier": Source(header="x-tier"),
    }
)
"""The sources of a policy that declares none."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identification of callers. *sources* always has those of `DEFAULT_SOURCES`, and may have
    others, under names that can be used in `key_by`. The one called `tier` chooses limits."""

    sources: Mapping[str, Source] = field(default_factory=lambda: DEFAULT_SOURCES)
    address: AddressSource = AddressSource()
    fallback: Fallback = "ip"


def _read_key_by(node: Node, _table: Table, identity: Identity) -> tuple[str, ...]:
    """The parts of a key: built in, names in *identity*, or `header:`, `cookie:`, `attribute:` with
    a name."""

    def read_part(node: Node) -> str:
        word = read_word(node, "what to count by, such as ip or api_key")
        prefix, colon, name = word.partition(":")
        if not colon:
            if word in BUILT_IN_PARTS or word in identity.sources:
                return word
            named = (f"{one}:NAME" for one in _PREFIXES)
            known = (*identity.sources, *BUILT_IN_PARTS, *named)
            raise not_among(word, known, f"{quoted(word)} is not a part of a key")
        if prefix not in _PREFIXES:
            raise not_among(prefix, _PREFIXES, f"{quoted(prefix)} cannot stand before a name")
        return f"{prefix}:{_PREFIXES[prefix].read(Scalar(name, is_plain=False))}"

    found = read_several(read_part, "what to count by", None, node)
    if GLOBAL in found and len(found) > 1:
        message = "global is one counter for all callers; expected it alone, or the others"
        raise FieldError(message)
    return found


_KEY_EXAMPLES: Final = ["api_key", "tenant", *BUILT_IN_PARTS, "header:x-client"]
KEY_BY: Final = FieldType(
    "what to count by, such as ip or global",
    schema={**WORDS.json_schema(), "examples": [*_KEY_EXAMPLES, ["tenant", "endpoint"]]},
    write=WORDS.write,
    read_in=_read_key_by,
)


def _read_share_by(node: Node, _table: Table, identity: Identity) -> str:
    known = (BY_PRIORITY, *identity.sources)
    found = read_word(node, f"one of {', '.join(known)}")
    if found not in known:
        raise not_among(found, known, f"{quoted(found)} is not a name in identity")
    if found != BY_PRIORITY and identity.sources[found].secret:
        message = f"{quoted(found)} is a secret, and the store has shares under their names"
        hint = f"expected a name in identity that looks {quoted(found)} up"
        raise FieldError(message, hint=hint)
    return found


SHARE_BY: Final = FieldType(
    "one of priority and the names in identity",
    schema={**WORD.json_schema(), "examples": ["tier", "priority"]},
    read_in=_read_share_by,
)
"""The basis of a caller's share: the class of a request, or a name in the identity."""


@table("the effect of pressure", schema={"examples": [{"floor": "20%"}]})
@dataclass(frozen=True, slots=True)
class Adaptive:
    """Bound below which pressure does not lower the limits."""

    floor: Annotated[Fraction, share(what="a share of the limits such as 20%")]
    """The share of the limits that is never taken away."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When *match* fits, count by *key_by* against *limits*.

    *limits* has those for callers of every tier under None, else under the name of the tier; a
    tier that is not named, with nothing under None, is not limited. Several limits are stacked. A
    rule with *fair* has no limits.
    """

    id: Annotated[str, RULE_ID]
    """The name of the rule, unique in the policy: up to 100 letters, digits and `. _ -`. Counters
    are named by it: a renamed rule has new counters."""
    match: Match
    """The requests that the rule is for; all by default."""
    key_by: Annotated[tuple[str, ...], KEY_BY]
    """The parts of the key of a counter."""
    limits: Annotated[Limits, LIMITS] = field(default_factory=_EMPTY)
    """A list of limits, all of which apply, or limits by tier."""
    _: KW_ONLY
    fair: Fair | None = None
    """Requests wait in a weighted fair queue in each process, by caller."""
    share_by: Annotated[str | None, SHARE_BY] = None
    """The basis of a caller's share: priority, or a name in identity such as tier."""
    reserve: Annotated[Mapping[Priority, Fraction], RESERVE] = field(default_factory=_EMPTY)
    """Slots that are kept for requests of a class, and more important ones."""
    adaptive: Adaptive | None = None
    """Bound below which pressure does not lower the limits; without it pressure does not apply."""
    cost: Annotated[Cost, model_field(Cost, short="default")] = Cost()
    """The cost of a request; 1 by default."""
    mode: Annotated[Mode, choice(get_args(Mode), {False: "off"})] = "enforce"
    """enforce decides, shadow counts and never denies, off does nothing."""
    headers: Annotated[HeaderMode, choice(get_args(HeaderMode), {True: "on", False: "off"})] = "on"
    """What clients learn: on; brief (the rule and the wait of a denial); off (the wait alone);
    redacted (nothing but the denial)."""
    candidate_of: Annotated[str | None, RULE_ID] = None
    """The id of the rule that this one, in mode shadow, is compared with; one for each rule."""
    on_failure: Annotated[OnFailure, model_field(FailureFields, short="mode")] = _OPEN
    """The failure policy while the store cannot decide."""
    accuracy: Annotated[Accuracy, model_field(AccuracyFields)] = EXACT
    """Overshoot of a fleet that is accepted to save round trips; none by default."""
    idempotency: Annotated[Idempotency | None, model_field(Idempotency, switch=True)] = None
    """Do not charge a retry with the same key again."""
    across_regions: Annotated[bool, BOOLEAN] = False
    """Count together with regions that have stores of their own."""
    max_region_debt: Annotated[Fraction, MULTIPLE] = Fraction(1)
    """The largest debt after a partition between regions, as a share of the limit: a counter denies
    until its debt is worked off, and what exceeds this is forgiven."""
    description: Annotated[str, PROSE] = ""
    """A text for people."""
    decide: Annotated[Decide | None, choice(get_args(Decide))] = None
    """How a gateway decides: exact asks the service about every request, quota enforces the share
    that the service assigns, local limits by itself. By default its own setting."""

    @property
    def floor(self) -> Fraction | None:
        """The share of the limits that pressure leaves; None: pressure does not apply."""
        return None if self.adaptive is None else self.adaptive.floor

    @property
    def counts_spend(self) -> bool:
        """True if its limits are amounts of money."""
        return self.cost.llm is not None and self.cost.llm.count == "spend"

    @property
    def uses_priorities(self) -> bool:
        """True if it depends on the class of a request."""
        return bool(self.reserve) or self.fair is not None or self.share_by == BY_PRIORITY

    @property
    def all_limits(self) -> list[Limit]:
        """The limits of every tier."""
        return [limit for many in self.limits.values() for limit in many]

    def limits_for(self, tier: str | None) -> tuple[Limit, ...]:
        """The limits for callers of *tier*; none if they are not limited."""
        found = self.limits.get(tier)
        return self.limits.get(None, ()) if found is None else found


def compiled_rule(rule: Rule, prices: Prices | None = None) -> CompiledRule:
    """*rule* as the engine needs it; *prices* are those of its policy."""
    llm = rule.cost.llm
    return CompiledRule(
        rule.id,
        rule.mode,
        rule.headers,
        rule.on_failure,
        rule.candidate_of,
        rule.cost.after is not None,
        "requests" if llm is None else llm.count,
        None if llm is None else llm.hold_ns,
        None if llm is None else partial(actual, llm.count, prices=prices),
        rule,
        charges_expired=llm is not None,
    )


def _read_rule_id(node: Node, _table: Table, ids: Collection[str]) -> str:
    found = read_text(node, _RULE.what)
    if found not in ids:
        raise not_among(found, ids, f"there is no rule {quoted(found)}")
    return found


_RULE: Final = FieldType("the id of a rule", schema=RULE_ID.schema, read_in=_read_rule_id)


@table(
    "an override",
    names={"until_ns": "until"},
    order=("rule", "key", "block", "extra", "until"),
    one_of=("block", "extra"),
    schema={
        "examples": [
            {"rule": "a", "key": "ip=203.0.113.7", "block": True, "until": "2027-01-31T12:00:00Z"}
        ],
    },
)
@dataclass(frozen=True, slots=True)
class Override:
    """An exception for one counter of a rule, for a while: either all requests are denied, or every
    limit of the rule is larger."""

    rule: Annotated[str, _RULE]
    """The id of the rule."""
    key: Annotated[str, COUNTER_KEY]
    """The key of the counter, as `headgate rules explain` shows it."""
    until_ns: Annotated[int, INSTANT]
    """When it ends: a date and time with its offset (RFC 3339)."""
    extra: Annotated[int, QUOTA] = 0
    """In place of block: every limit of the rule is larger by this."""
    block: Annotated[bool, ONLY_TRUE] = False
    """Every request on this counter is denied, whatever it costs."""


@table("a class of requests", names={"priority": "class"})
@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A class of requests, and how important it is."""

    priority: Annotated[Priority, choice(PRIORITIES)]
    """critical, default or sheddable."""
    match: Match = Match()
    """The requests that are of the class; all by default."""


@table(
    "the signs of pressure",
    names={"latency_ns": "latency", "interval_ns": "interval"},
    order=("latency", "errors", "queue", "interval"),
    schema={"examples": [{"latency": "500ms", "errors": "5%"}]},
)
@dataclass(frozen=True, slots=True)
class Pressure:
    """When limits of rules with a floor are lowered automatically, and how.

    At every interval a process, or a fleet with one store, is under pressure if requests were too
    slow, if too many of them failed, if too many wait, or if a signal of the app reports it. Then
    limits are multiplied by *backoff*; else they regain *recovery* of what they are without
    pressure. They never fall below *least*, nor a rule below its own floor.
    """

    latency_ns: Annotated[int | None, duration()] = None
    """Requests that take longer are pressure."""
    quantile: Annotated[Fraction, share(is_part=True)] = Fraction(9, 10)
    """Of the requests that ended, the part that must be faster."""
    errors: Annotated[Fraction | None, share(is_part=True)] = None
    """A larger part of requests that failed is pressure."""
    queue: Annotated[int | None, whole(0, MAX_WAITING)] = None
    """More requests that wait are pressure."""
    interval_ns: Annotated[int, duration(10 * MILLISECOND, HOUR, "a time from 10ms to 1h")] = SECOND
    """Time between two evaluations."""
    backoff: Annotated[Fraction, share(is_part=True)] = Fraction(7, 10)
    """Factor for limits under pressure."""
    recovery: Annotated[Fraction, share()] = Fraction(1, 20)
    """Share of the full limit that is regained without pressure."""
    least: Annotated[Fraction, share()] = Fraction(1, 10)
    """Share of the full limit below which no limit is lowered."""


def _finish_price(made: PriceFields, _node: Table, _context: object) -> Price:
    try:
        return Price(made.input, made.output, made.cached, made.cache_write)
    except OptionError as error:
        name = str(error).partition(" ")[0]
        raise FieldError(str(error), path=(name,)) from None


@table(
    "the price of a model",
    finish=_finish_price,
    schema={"examples": [{"input": 2.5, "cached": 1.25, "output": 10}]},
    makes=Price,
    always=("input", "output"),
)
@dataclass(frozen=True, slots=True)
class PriceFields:
    """The price of a model, in dollars for a million tokens."""

    input: Annotated[Decimal, MONEY]
    """Tokens of the prompt."""
    output: Annotated[Decimal, MONEY]
    """Tokens that the model writes."""
    cached: Annotated[Decimal | None, MONEY] = None
    """Tokens of the prompt that a cache had; by default as input."""
    cache_write: Annotated[Decimal | None, MONEY] = None
    """Tokens of the prompt that are written to a cache; by default as input."""


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
    """Classes of requests by importance: the first that fits counts."""
    pressure: Pressure | None = None
    """When limits are lowered automatically, and how."""
    prices: Mapping[str, Price] | None = None
    """The prices of models, for costs that count spend."""


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
    """The ceiling of one class."""
    return ceilings(slots, reserve)[priority]
