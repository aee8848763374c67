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
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from headgate.decision import HeaderMode, OnFailure
from headgate.engine.rule import CompiledRule, Mode, Priority
from headgate.limits import EXACT, Accuracy
from headgate.limits.accuracy import MOST_PARTS
from headgate.limits.model import LARGEST_QUOTA
from headgate.limits.queues import LONGEST_QUEUE
from headgate.policy.diagnostics import shown
from headgate.policy.document import Scalar, Table
from headgate.policy.fields import (
    COOKIE,
    HEADER,
    QUOTA,
    SYNC,
    Boolean,
    Choice,
    CompoundFieldError,
    ContextField,
    Duration,
    Entries,
    FieldError,
    FieldType,
    Host,
    Instant,
    Method,
    Name,
    Network,
    Networks,
    OnlyTrue,
    Pattern,
    Prose,
    Rate,
    Schema,
    Several,
    Share,
    Whole,
    Word,
    checked_pattern,
    entries_schema,
    not_among,
    read_key,
    read_text,
    read_word,
)
from headgate.policy.tables import ModelField, Short, Switch, table, to_data
from headgate.units import DAY, HOUR, MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.limits import Limit
    from headgate.policy.document import Node

OnStoreFailure = Literal["fail_open", "fail_closed", "local"]
AfterFailOpen = Literal["fail_closed", "local"]
Decide = Literal["exact", "quota", "local"]
"""The way a gateway decides: it asks the service about every request; or enforces its share of a
quota that the service assigns; or limits by itself."""

Fallback = Literal["ip", "shared", "skip"]
"""The counter of a caller without identity: that of its address, one for all such callers, or
none: the rule then does not apply."""

AdaptiveAlgorithm = Literal["gradient", "aimd"]

GLOBAL: Final = "global"
"""In `key_by`: one counter for everybody."""

BUILT_IN_PARTS: Final = ("ip", "endpoint", "method", "host", GLOBAL)
"""Parts of a key besides the names in `identity` and `header:`, `cookie:`, `attribute:` with a
name."""

OTHERS: Final = "default"
"""In `limits` and `weights`: callers of all other tiers, and of none."""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
PRIORITIES: Final[tuple[Priority, ...]] = get_args(Priority)
"""The classes of requests, the most important first."""

BY_PRIORITY: Final = "priority"
"""A value of `share_by`: shares go by the class of a request."""

RESERVABLE: Final = PRIORITIES[:-1]
"""The classes that slots can be kept for: there are no requests to keep them from for the last."""

KINDS: Final = ("header", "cookie", "attribute", "lookup")
LONGEST_KEY: Final = 4_096
MOST_SLOTS: Final = 1_000_000
LONGEST_LINE: Final = 1_000_000
"""Requests that may wait before that counts as pressure, at most."""

Values = tuple[str, ...] | None
"""Values of a header, cookie or attribute; None: any, as long as it is there."""

Conditions = tuple[tuple[str, Values], ...]

_NOTHING: Final = Fraction(0)
_PARTS: Final = ("header", "cookie", "attribute")
_WORDS: Final = Several(Word(), "a value")
_AMOUNT: Final = Whole(0, LARGEST_QUOTA)


def present(node: Table, *names: str) -> list[str]:
    """The ones of *names* that *node* has."""
    return [name for name in names if name in node.entries]


def one_of(node: Table, *names: str, path: tuple[str, ...] = ()) -> Iterator[FieldError]:
    """The flaw of a mapping that does not have exactly one of two fields."""
    found = present(node, *names)
    if len(found) != 1:
        what = "found both" if found else "found none"
        message = f"{what}, expected exactly one of {' and '.join(names)}"
        yield FieldError(message, path=path, at_parent=bool(path), instead_of=names)


@dataclass(frozen=True)
class _Conditions(Entries):
    """Names of the type *name*, and the values that they must have."""

    what: str = "names and the values they must have"
    name: FieldType = HEADER

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        name = read_key(self.name, key)
        if name in found:
            raise FieldError(f"{shown(name)} is given twice; case does not matter in it")
        is_any = isinstance(value, Scalar) and value.boolean is True
        found[name] = None if is_any else _WORDS.read(value)

    def made(self, found: dict[Any, Any]) -> Conditions:
        return tuple(found.items())

    def schema(self) -> Schema:
        values = {"anyOf": [{"const": True}, *_WORDS.schema()["anyOf"]]}
        return entries_schema(values, propertyNames=self.name.schema())

    def write(self, value: Conditions) -> object:
        return {name: True if values is None else _WORDS.write(values) for name, values in value}


@table(
    "the requests that the rule is for",
    names={"endpoints": "endpoint", "methods": "method", "hosts": "host", "tiers": "tier"},
    synonyms={"path": "endpoint", "paths": "endpoint", "url": "endpoint", "route": "endpoint"},
)
@dataclass(frozen=True, slots=True)
class Match:
    """The requests that a rule is for: all fields that are given must fit."""

    endpoints: Annotated[tuple[str, ...], Several(Pattern(), Pattern.what)] = ()
    """Patterns of paths; * is one segment, ** any number of them."""
    methods: Annotated[tuple[str, ...], Several(Method(), "a method")] = ()
    """Methods, in any case; GET is for HEAD too."""
    hosts: Annotated[tuple[str, ...], Several(Host(), "a host")] = ()
    """Hosts; *. in front is any subdomain."""
    tiers: Annotated[tuple[str, ...], Several(Word(), "the name of a tier")] = ()
    """Tiers of callers."""
    headers: Annotated[Conditions, _Conditions()] = ()
    """Headers and the values they must have; true for any value."""
    cookies: Annotated[Conditions, _Conditions(name=COOKIE)] = ()
    """Cookies and the values they must have; true for any value."""
    attributes: Annotated[Conditions, _Conditions(name=Word())] = ()
    """Attributes and the values they must have; true for any value."""


@dataclass(frozen=True, slots=True)
class EndpointCost:
    """The *cost* of requests of *method* (None: any; GET is HEAD too) to *endpoint*, a pattern."""

    endpoint: str
    cost: int
    method: str | None = None

    def __str__(self) -> str:
        return shown(self.endpoint if self.method is None else f"{self.method} {self.endpoint}")


@dataclass(frozen=True)
class _EndpointCosts(Entries):
    """Costs under keys such as `/x/*` or `POST /x`."""

    what: str = "costs of endpoints"

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        flaws: list[FieldError] = []
        try:
            endpoint, method = self._endpoint(key)
        except FieldError as flaw:
            flaw.at_key = True
            flaws.append(flaw)
        try:
            cost = _AMOUNT.read(value)
        except FieldError as flaw:
            flaws.append(flaw)
        if flaws:
            raise CompoundFieldError(flaws)
        found[key.text] = EndpointCost(endpoint, cost, method)

    def _endpoint(self, key: Scalar) -> tuple[str, str | None]:
        written = read_word(key, "a path, or a method and a path")
        verb, space, path = written.strip().partition(" ")
        if not space:
            return checked_pattern(verb), None
        return checked_pattern(path.strip()), Method().read(Scalar(verb, is_plain=False))

    def made(self, found: dict[Any, Any]) -> tuple[EndpointCost, ...]:
        return tuple(found.values())

    def schema(self) -> Schema:
        return entries_schema(_AMOUNT.schema(), examples=[{"/x/*": 2}])

    def write(self, value: tuple[EndpointCost, ...]) -> object:
        return {
            f"{one.method} {one.endpoint}" if one.method else one.endpoint: one.cost
            for one in value
        }


def _after_shape(node: Table) -> Iterator[FieldError]:
    yield from one_of(node, "header", "bytes")


@table(
    "what it costs afterwards",
    names={"most": "max"},
    also={"bytes": OnlyTrue("leave after out where nothing is charged")},
    order=("header", "bytes"),
    plain=lambda made, data: data if made.header is not None else {"bytes": True, **data},
    shape=_after_shape,
    schema={
        "oneOf": [{"required": ["header"]}, {"required": ["bytes"]}],
        "examples": [{"header": "x-tokens"}, {"bytes": True, "per": 1024, "max": 100_000}],
    },
)
@dataclass(frozen=True, slots=True)
class After:
    """The cost of a request when it is over: a number in a header of the response, or, without
    one, the bytes of its body."""

    header: Annotated[str | None, HEADER] = None
    """The header of the response with the number, a whole one; or bytes: true for the bytes of the
    body that were sent."""
    per: Annotated[int, QUOTA] = 1
    """Number of them that is one unit; a part of one counts in full."""
    most: Annotated[int | None, QUOTA] = None
    """The most units that a request costs."""


def _cost_shape(node: Table) -> Iterator[FieldError]:
    """A header without a bound, a bound without a header, and a header with `after`."""
    given = present(node, "header", "max")
    if "after" in node.entries:
        if "header" in given:
            message = "header and after exclude each other: a caller who says 0 would pay nothing"
            hint = "say with default or endpoints what it takes to enter"
            yield FieldError(f"{message} to enter", hint=hint, path=("header",))
        elif given:
            hint = "what is charged afterwards is bounded by max in after"
            yield FieldError("max is about header, which is not there", hint=hint, path=("max",))
    elif len(given) == 1:
        other = "max" if given == ["header"] else "header"
        message = f"missing; {given[0]} needs {other}: what a caller says must be bounded"
        yield FieldError(message, path=(other,))


def _finish_cost(cost: Cost, _node: Table, _context: object) -> Cost:
    flaws = []
    if cost.most is not None and cost.default > cost.most:
        message = f"the default of {cost.default} is above the max of {cost.most}"
        flaws.append(FieldError(message, path=("max",)))
    if cost.after is not None:
        why = "with after it takes at least 1 to enter: who pays nothing is never denied"
        if not cost.default:
            flaws.append(FieldError(f"found 0; {why}", path=("default",)))
        free = [one for one in cost.endpoints if not one.cost]
        flaws += [FieldError(f"found 0 for {one}; {why}", path=("endpoints",)) for one in free]
    if flaws:
        raise CompoundFieldError(flaws)
    return cost


_PAID: Final = {"minimum": 1}


@table(
    "the cost",
    names={"most": "max"},
    shape=_cost_shape,
    finish=_finish_cost,
    always=("default",),
    schema={
        "dependentRequired": {"header": ["max"], "max": ["header"]},
        "dependentSchemas": {
            "after": {
                "properties": {
                    "default": _PAID,
                    "endpoints": {"additionalProperties": _PAID},
                    "header": False,
                }
            }
        },
        "examples": [{"default": 1, "endpoints": {"POST /export/pdf": 10}}],
    },
)
@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a request: by a header of it, else by endpoint (the first that fits), else the
    default.

    A header that is missing or no whole number counts as the default. With *after* that is what it
    takes to be allowed; what it has cost beyond that is charged when it is over, in full.
    """

    default: Annotated[int, _AMOUNT] = 1
    """The cost of a request."""
    endpoints: Annotated[tuple[EndpointCost, ...], _EndpointCosts()] = ()
    """Costs by endpoint, the first that fits; GET is for HEAD too."""
    header: Annotated[str | None, HEADER] = None
    """The header of the request with its cost; needs max."""
    most: Annotated[int | None, QUOTA] = None
    """The most that the header can say."""
    after: After | None = None
    """The cost when it is over, charged beyond what it took to enter."""


@table(
    "idempotency",
    names={"ttl_ns": "ttl"},
    order=("header", "ttl"),
    always=("header", "ttl", "retries"),
)
@dataclass(frozen=True, slots=True)
class Idempotency:
    """A retry with the same key is not charged again: of the same caller, method and path."""

    ttl_ns: Annotated[int, Duration()] = DAY
    """Time for which a key is remembered."""
    header: Annotated[str, HEADER] = "idempotency-key"
    """The header with the key."""
    retries: Annotated[int, Whole(1, 1_000)] = 10
    """Number of retries that are free within that time."""
    fingerprint: Annotated[
        tuple[str, ...],
        Several(HEADER, "names of headers", most=8, plural="headers", is_listed=True),
    ] = ()
    """Headers that have to be the same, besides caller, method and path."""


def _accuracy_shape(node: Table) -> Iterator[FieldError]:
    if not node.entries:
        names = "max_overshoot, batch, sync, denials, split"
        yield FieldError(f"found nothing in it, expected one of {names}")


def _finish_accuracy(made: AccuracyFields, _node: Table, _context: object) -> Accuracy:
    return Accuracy(made.max_overshoot, made.batch, made.sync, made.denials, made.split)


@table(
    "the accuracy",
    shape=_accuracy_shape,
    finish=_finish_accuracy,
    schema={
        "minProperties": 1,
        "examples": [{"max_overshoot": "1%"}, {"sync": "100ms", "max_overshoot": "5%"}],
    },
)
@dataclass(frozen=True, slots=True)
class AccuracyFields:
    """Overshoot of a fleet that is accepted to save round trips; none by default."""

    max_overshoot: Annotated[Fraction | None, Share()] = None
    """The most that a fleet may allow above the limit, as a share of it."""
    batch: Annotated[int | None, QUOTA] = None
    """Units that a node leases from the store at once."""
    sync: Annotated[int | None, SYNC] = None
    """Decide in each node, and exchange what was used this often."""
    denials: Annotated[int | None, Duration(off=True)] = None
    """Time for which a denial is remembered; off: not at all."""
    split: Annotated[int, Whole(1, MOST_PARTS)] = 1
    """Sub-counters of each counter, on different shards of a cluster."""

    @classmethod
    def of(cls, accuracy: Accuracy) -> AccuracyFields:
        """The fields that say *accuracy*."""
        return cls(
            accuracy.max_overshoot,
            accuracy.batch,
            accuracy.sync_ns,
            accuracy.denials_ns,
            accuracy.split,
        )


def _failure_shape(node: Table) -> Iterator[FieldError]:
    said = node.entries.get("mode", Scalar("fail_open", is_plain=True))
    mode = said.text if isinstance(said, Scalar) else ""
    if mode == "fail_closed" and "share" in node.entries:
        message = "a rule that fails closed allows nothing"
        yield FieldError(message, hint="leave share out", path=("share",))
    if mode in ("fail_closed", "local") and "max_fail_open" in node.entries:
        yield FieldError(f"is for fail_open, and the mode is {mode}", path=("max_fail_open",))
    if "then" in node.entries and "max_fail_open" not in node.entries:
        yield FieldError("needs max_fail_open: after how long", path=("then",))


def _finish_failure(made: FailureFields, _node: Table, _context: object) -> OnFailure:
    return OnFailure(made.mode, made.share, made.max_fail_open, made.then)


@table(
    "what to do when the store cannot decide",
    shape=_failure_shape,
    finish=_finish_failure,
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

    mode: Annotated[OnStoreFailure, Choice(get_args(OnStoreFailure))] = "fail_open"
    """Allow, deny, or go on with a share of the limits in each process."""
    share: Annotated[Fraction, Share()] = Fraction(1)
    """The share of the limit that each process still allows."""
    max_fail_open: Annotated[int | None, Duration()] = None
    """Longest time for which the rule fails open."""
    then: Annotated[AfterFailOpen, Choice(get_args(AfterFailOpen))] = "fail_closed"
    """And what it does after that."""

    @classmethod
    def of(cls, failing: OnFailure) -> FailureFields:
        """The fields that say *failing*."""
        return cls(failing.mode, failing.share, failing.open_ns, failing.then)


class AccuracyField(ModelField):
    """An `Accuracy`."""

    def __init__(self) -> None:
        super().__init__(AccuracyFields)

    def write(self, value: Accuracy) -> object:
        return to_data(AccuracyFields.of(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOptions:
    """The fields that a rule has as they stand in a file."""

    cost: Annotated[Cost, Short("default")] = Cost()
    """The cost of a request; 1 by default."""
    mode: Annotated[Mode, Choice(get_args(Mode), {False: "off"})] = "enforce"
    """Decide (enforce), only count (shadow), or neither (off)."""
    accuracy: Annotated[Accuracy, AccuracyField()] = EXACT
    """Overshoot of a fleet that is accepted to save round trips; none by default."""
    headers: Annotated[HeaderMode, Choice(get_args(HeaderMode), {True: "on", False: "off"})] = "on"
    """The rate limit headers of a response."""
    idempotency: Annotated[
        Idempotency | None, Switch("true, false or a mapping with header and ttl")
    ] = None
    """Do not charge a retry with the same key again."""
    description: Annotated[str, Prose()] = ""
    """A text for people."""
    decide: Annotated[Decide | None, Choice(get_args(Decide))] = None
    """The way a gateway decides; that of its own setting by default."""
    across_regions: Annotated[bool, Boolean()] = False
    """Count together with regions that have stores of their own."""
    candidate_of: Annotated[str | None, Name()] = None
    """The rule that this one, in shadow, is tried beside."""


@dataclass(frozen=True, slots=True)
class Rule(RuleOptions):
    """When *match* fits, count by *key_by* against *limits*.

    *limits* has those for callers of every tier under None, else under the name of the tier; a
    tier that is not named, with nothing under None, is not limited. Several limits are stacked.

    While the store is gone each process allows *fallback_share* of the limits, unless the rule
    fails closed; one that fails open does what *after_fail_open* says after *max_fail_open_ns*.

    A rule with *fair* has no limits: its requests queue in each process. *reserve* keeps a share of
    the slots of its concurrency limits for requests of a class and more important ones; *share_by*
    names what a caller's share of them goes by: `priority`, or a name in `identity`. *floor* is the
    share of its limits that pressure may not lower it below; None: pressure does not apply.
    """

    id: str
    match: Match
    key_by: tuple[str, ...]
    limits: Mapping[str | None, tuple[Limit, ...]]
    on_store_failure: OnStoreFailure = field(default="fail_open", kw_only=True)
    fallback_share: Fraction = field(default=Fraction(1), kw_only=True)
    max_fail_open_ns: int | None = field(default=None, kw_only=True)
    after_fail_open: AfterFailOpen = field(default="fail_closed", kw_only=True)
    fair: Fair | None = field(default=None, kw_only=True)
    reserve: Mapping[Priority, Fraction] = field(
        default_factory=lambda: MappingProxyType({}), kw_only=True
    )
    share_by: str | None = field(default=None, kw_only=True)
    floor: Fraction | None = field(default=None, kw_only=True)

    @property
    def on_failure(self) -> OnFailure:
        """The failure policy while the store is gone."""
        mode, most_ns = self.on_store_failure, self.max_fail_open_ns
        return OnFailure(mode, self.fallback_share, most_ns, self.after_fail_open)

    @property
    def all_limits(self) -> list[Limit]:
        """The limits of every tier."""
        return [limit for many in self.limits.values() for limit in many]

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


@dataclass(frozen=True)
class _LookupValues(Entries):
    """Results by value. The values may be secrets: messages number them instead."""

    what: str = "values"

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        found[key.text] = read_word(value)

    def placed(self, flaw: FieldError, name: str, number: int) -> FieldError:
        return flaw.under((name, number))

    def made(self, found: dict[Any, Any]) -> Mapping[str, str]:
        return MappingProxyType(found)

    def schema(self) -> Schema:
        return entries_schema(Word().schema())

    def write(self, value: Mapping[str, str]) -> object:
        return dict(value)


def _source_shape(node: Table) -> Iterator[FieldError]:
    kinds = present(node, *KINDS)
    if len(kinds) != 1:
        what = f"found {' and '.join(kinds)}" if kinds else "found none of them"
        yield FieldError(f"{what}, expected exactly one of {', '.join(KINDS)}")
    if len(present(node, "lookup", "values")) == 1:
        message = "lookup and values belong together: the source, and what to find for its values"
        yield FieldError(message)


def _finish_source(made: Source, node: Table, name: object) -> Source:
    usual = DEFAULT_SOURCES.get(str(name), Source()).secret
    return made if "secret" in node.entries else replace(made, secret=usual)


@table(
    "where it is found",
    shape=_source_shape,
    finish=_finish_source,
    order=(*KINDS, "default", "values"),
    schema={
        "oneOf": [{"required": [kind]} for kind in KINDS],
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
    attribute: Annotated[str | None, Word()] = None
    """The name of an attribute."""
    lookup: Annotated[str | None, Word()] = None
    """The source whose value is looked up in values."""
    values: Annotated[Mapping[str, str], _LookupValues()] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Results of the lookup, by value."""
    default: Annotated[str | None, Word()] = None
    """The value of a request that has none."""
    secret: Annotated[bool, Boolean()] = False
    """Hashed before it is used in a key; it is compared in the clear."""


@table(
    "how to find the address",
    always=("ipv4_prefix", "ipv6_prefix", "header"),
    order=("ipv4_prefix", "ipv6_prefix", "header"),
)
@dataclass(frozen=True, slots=True)
class AddressSource:
    """The address of the caller: the trusted proxies, and the prefix that is one
    caller."""

    trusted_proxies: Annotated[
        tuple[Network, ...], Several(Networks(), "an address or a network", is_listed=True)
    ] = ()
    """Addresses and networks of trusted proxies."""
    ipv4_prefix: Annotated[int, Whole(1, 32)] = 32
    """Bits of an IPv4 address that are one caller."""
    ipv6_prefix: Annotated[int, Whole(1, 128)] = 64
    """Bits of an IPv6 address that are one caller."""
    header: Annotated[str, HEADER] = "x-forwarded-for"
    """The header that proxies add addresses to, each at the right end."""


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


class KeyPart(FieldType):
    """A part of a key: built in, a name in `identity`, or `header:`, `cookie:`, `attribute:` with
    a name."""

    what = "what to count by, such as ip or api_key"

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    def read(self, node: Node) -> str:
        word = read_word(node, self.what)
        prefix, colon, name = word.partition(":")
        if colon:
            return self._prefixed(prefix, name)
        if word in BUILT_IN_PARTS or word in self.identity.sources:
            return word
        known = (*self.identity.sources, *BUILT_IN_PARTS, *(f"{one}:NAME" for one in _PARTS))
        raise not_among(word, known, f"nothing is known as {shown(word)}")

    @staticmethod
    def _prefixed(prefix: str, name: str) -> str:
        if prefix not in _PARTS:
            raise not_among(prefix, _PARTS, f"{shown(prefix)} is nothing that has names")
        kinds = {"header": HEADER, "cookie": COOKIE, "attribute": Word("the name of an attribute")}
        return f"{prefix}:{kinds[prefix].read(Scalar(name, is_plain=False))}"


class KeyBy(ContextField):
    """The parts of a key; which exist depends on the identity, given as context."""

    what = "whom to count, such as ip or global"

    def read_in(self, node: Node, info: Any) -> tuple[str, ...]:
        found = Several(KeyPart(info.context), "what to count by").read(node)
        if GLOBAL in found and len(found) > 1:
            message = "global is one counter for everybody; expected it alone, or only the others"
            raise FieldError(message)
        return found

    def schema(self) -> Schema:
        parts = ["api_key", "tenant", *BUILT_IN_PARTS, "header:x-client", ["tenant", "endpoint"]]
        return {**_WORDS.schema(), "examples": parts}

    def write(self, value: tuple[str, ...]) -> object:
        return _WORDS.write(value)


class RuleId(ContextField):
    """The id of one of the rules, given as context."""

    what = "the id of a rule"

    def read_in(self, node: Node, info: Any) -> str:
        found = read_text(node, self.what)
        if found not in info.context:
            raise not_among(found, info.context, f"there is no rule {shown(found)}")
        return found

    def schema(self) -> Schema:
        return Name().schema()


class CounterKey(FieldType):
    """The key of a counter as the engine names it."""

    what = "the key of a counter as explain shows it, such as ip=203.0.113.7"
    pattern = rf"[!-~]{{1,{LONGEST_KEY}}}"

    def read(self, node: Node) -> str:
        found = read_text(node, self.what)
        if not re.fullmatch(self.pattern, found):
            hint = f"expected 1 to {LONGEST_KEY} printable characters of ASCII"
            raise FieldError(f"{shown(found)} is not the key of a counter", hint=hint)
        return found

    def schema(self) -> Schema:
        return {"type": ["string", "number"], "pattern": f"^{self.pattern}$"}


def _override_shape(node: Table) -> Iterator[FieldError]:
    yield from one_of(node, "block", "extra")


@table(
    "an override",
    names={"until_ns": "until"},
    order=("rule", "key", "block", "extra", "until"),
    shape=_override_shape,
    schema={
        "oneOf": [{"required": ["block"]}, {"required": ["extra"]}],
        "examples": [
            {"rule": "a", "key": "ip=203.0.113.7", "block": True, "until": "2027-01-31T12:00:00Z"}
        ],
    },
)
@dataclass(frozen=True, slots=True)
class Override:
    """An exception for one counter of a rule, for a while: either everything is denied, or every
    limit of the rule is larger."""

    rule: Annotated[str, RuleId()]
    """The id of the rule."""
    key: Annotated[str, CounterKey()]
    """The key of the counter, as `headgate rules explain` shows it."""
    until_ns: Annotated[int, Instant()]
    """When it ends: a date and time with its offset (RFC 3339)."""
    extra: Annotated[int, QUOTA] = 0
    """By how much every limit of the rule is larger."""
    block: Annotated[bool, OnlyTrue("leave an override out that does nothing")] = False
    """Everything is denied."""


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


@table("a class of requests", names={"priority": "class"})
@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A class of requests, and how important it is."""

    priority: Annotated[Priority, Choice(PRIORITIES)]
    """Importance of the requests."""
    match: Match = Match()
    """The requests that are of the class; all by default."""


def _finish_adaptive(made: AdaptiveSlots, node: Table, _context: object) -> AdaptiveSlots:
    if made.least > made.most:
        message = f"the min of {made.least} is above the max of {made.most}"
        raise FieldError(message, path=("min",) if "min" in node.entries else ())
    return made


@table(
    "slots that move",
    names={"algorithm": "adaptive", "least": "min", "most": "max", "target_ns": "target"},
    finish=_finish_adaptive,
    needs=("adaptive",),
    always=("adaptive", "min", "max"),
    schema={"examples": [{"adaptive": "gradient", "min": 5, "max": 200}]},
)
@dataclass(frozen=True, slots=True)
class AdaptiveSlots:
    """Slots that move between a minimum and a maximum, by how the requests in them fare."""

    algorithm: Annotated[AdaptiveAlgorithm, Choice(get_args(AdaptiveAlgorithm))] = "gradient"
    """The algorithm that moves them: gradient goes by how much slower requests are than usual, aimd
    by errors and by requests that take longer than the target."""
    least: Annotated[int, Whole(1, MOST_SLOTS)] = 1
    """The fewest slots."""
    most: Annotated[int, Whole(1, MOST_SLOTS)] = 1_000
    """The most slots."""
    target_ns: Annotated[int | None, Duration()] = None
    """Longest time that a request may take."""


class _FairSlots(ModelField):
    """A number of slots, or a mapping of slots that move."""

    def __init__(self) -> None:
        super().__init__(AdaptiveSlots, Whole(1, MOST_SLOTS))


@dataclass(frozen=True)
class _Weights(Entries):
    """Weights by tier."""

    what: str = "weights of tiers"
    weight = Whole(1, 1_000)

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        name = read_key(Word("the name of a tier"), key)
        found[None if name == OTHERS else name] = self.weight.read(value)

    def made(self, found: dict[Any, Any]) -> Mapping[str | None, int]:
        return MappingProxyType(found)

    def schema(self) -> Schema:
        examples = [{"enterprise": 4, "default": 1}]
        more = {"propertyNames": Word().schema(), "examples": examples}
        return entries_schema(self.weight.schema(), **more)

    def write(self, value: Mapping[str | None, int]) -> object:
        return {OTHERS if tier is None else tier: weight for tier, weight in value.items()}


@dataclass(frozen=True)
class ReserveField(Entries):
    """Slots that are kept for requests of a class and for more important ones."""

    what: str = "what is reserved for which class of requests"

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        name = key.text
        if name in RESERVABLE:
            found[name] = Share().read(value)
            return
        if name in PRIORITIES:
            message = f"nothing can be kept for {name} requests: none matter less"
            flaw = FieldError(message, hint=f"expected {' or '.join(RESERVABLE)}")
        else:
            flaw = not_among(name, RESERVABLE, f"there is no class {shown(name)}")
        flaw.at_key = True
        raise flaw

    def made(self, found: dict[Any, Any]) -> Mapping[Priority, Fraction]:
        total = sum(found.values())
        if total >= 1:
            message = f"{float(total) * 100:g}% are reserved: nothing is left for other requests"
            raise FieldError(message, hint="expected less than 100% in all")
        return MappingProxyType(found)

    def schema(self) -> Schema:
        shares: Schema = {str(name): Share().schema() for name in RESERVABLE}
        return {
            "type": "object",
            "properties": shares,
            "additionalProperties": False,
            "minProperties": 1,
            "examples": [{"critical": "20%"}],
        }

    def write(self, value: Mapping[Priority, Fraction]) -> object:
        return {name: Share().write(share) for name, share in value.items()}


def _fair_shape(node: Table) -> Iterator[FieldError]:
    yield from one_of(node, "slots", "rate", path=("slots",))
    if "reserve" in node.entries and present(node, "slots", "rate") == ["rate"]:
        message = "is about slots, and there are none: requests take turns at a rate"
        hint = "expected slots in place of rate, or no reserve"
        yield FieldError(message, hint=hint, path=("reserve",))


def _finish_fair(made: Fair, _node: Table, _context: object) -> Fair:
    slots: object = made.slots
    return replace(made, slots=None, adaptive=slots) if isinstance(slots, AdaptiveSlots) else made


def _fair_data(made: Fair, data: dict[str, Any]) -> dict[str, Any]:
    return data if made.adaptive is None else {"slots": to_data(made.adaptive), **data}


@table(
    "how requests take turns",
    names={"max_wait_ns": "max_wait"},
    hidden=("adaptive",),
    shape=_fair_shape,
    finish=_finish_fair,
    plain=_fair_data,
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
    """Requests queue in each process and take turns, by weight of the callers (`key_by`).

    There are *slots* at a time, which *adaptive* may move, or *rate* a second: one of the two.
    """

    slots: Annotated[int | None, _FairSlots()] = None
    """Number of requests that are worked on at the same time."""
    rate: Annotated[Fraction | None, Rate()] = None
    """Rate at which requests are worked on, in place of slots."""
    adaptive: AdaptiveSlots | None = None
    weights: Annotated[Mapping[str | None, int], _Weights()] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Weights by tier; 'default' is for callers of all other tiers, and of none."""
    queue: Annotated[int, Whole(0, LONGEST_QUEUE)] = 100
    """Number of requests of one caller that may wait."""
    max_wait_ns: Annotated[int, Duration(zero=True)] = SECOND
    """Longest wait; 0 for none."""
    reserve: Annotated[Mapping[Priority, Fraction], ReserveField()] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Slots that are kept for requests of a class, and more important ones."""


_INTERVAL: Final = Duration(10 * MILLISECOND, HOUR, "a time from 10ms to 1h")


@table(
    "when there is pressure",
    names={"latency_ns": "latency", "interval_ns": "interval"},
    order=("latency", "errors", "queue", "interval"),
    schema={"examples": [{"latency": "500ms", "errors": "5%"}]},
)
@dataclass(frozen=True, slots=True)
class Pressure:
    """When limits of rules with a floor are lowered automatically, and how.

    At every interval a process, or a fleet with one store, is under pressure if requests were too
    slow, if too many of them failed, if too many wait, or if a signal of the user's says so. Then
    limits are multiplied by *backoff*; else they regain *recovery* of what they are without
    pressure. They never fall below *least*, nor a rule below its own floor.
    """

    latency_ns: Annotated[int | None, Duration()] = None
    """Requests that take longer are pressure."""
    quantile: Annotated[Fraction, Share(is_part=True)] = Fraction(9, 10)
    """Of the requests that ended, the part that must be faster."""
    errors: Annotated[Fraction | None, Share(is_part=True)] = None
    """A larger part of requests that failed is pressure."""
    queue: Annotated[int | None, Whole(0, LONGEST_LINE)] = None
    """More requests that wait are pressure."""
    interval_ns: Annotated[int, _INTERVAL] = SECOND
    """Time between two evaluations."""
    backoff: Annotated[Fraction, Share(is_part=True)] = Fraction(7, 10)
    """Factor for limits under pressure."""
    recovery: Annotated[Fraction, Share()] = Fraction(1, 20)
    """Share of the full limit that is regained without pressure."""
    least: Annotated[Fraction, Share()] = Fraction(1, 10)
    """Share of the full limit below which no limit is lowered."""


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
