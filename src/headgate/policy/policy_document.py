"""A policy as it stands in a file: its sections, the forms of a rule, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from headgate.engine.plan import Priority
from headgate.errors import LimitError
from headgate.limits import Concurrency, LeakyQueue
from headgate.policy.document import Listing, Node, Table
from headgate.policy.fields import (
    BOOLEAN,
    MODEL,
    NAME,
    QUOTA,
    FieldError,
    FieldType,
    Schema,
    choice,
    entries,
    expected,
    whole,
)
from headgate.policy.limit_forms import (
    LIMIT_TEXT,
    LONG_FIELDS,
    SECONDS,
    SHARES,
    LimitFields,
    Limits,
    Parts,
    Shape,
    check_long_form,
    in_usd,
    is_long,
    long_form_schemas,
    long_limits,
    slots_of,
)
from headgate.policy.model import (
    BUILT_IN_PARTS,
    DEFAULT_SOURCES,
    RESERVE,
    SHARE_BY,
    AddressSource,
    Fallback,
    Match,
    Override,
    Pressure,
    PriceFields,
    PriorityClass,
    Rule,
    Source,
)
from headgate.policy.tables import (
    json_schema,
    model_field,
    reference,
    table,
    to_data,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = 1
MAX_OVERRIDES: Final = 10_000
MAX_CLASSES: Final = 1_000
"""Entries of `priority` at most."""

RESERVED: Final = tuple(name for name in BUILT_IN_PARTS if name != "ip")
FALLBACK: Final = choice(get_args(Fallback))

LIMIT_FORMS: Final = ("limit", "limits", "algorithm", "shape", "concurrency", "fair")
"""The fields of which a rule has exactly one; the long form has others beside it."""


_ANY: Final = Match()
_RULE_FIELDS: Final = tuple(one.name for one in fields(Rule))


def _finish_slots(
    made: ConcurrencyFields, node: Table, _context: object
) -> tuple[Concurrency, ConcurrencyFields]:
    """The limit, and the fields with the options of the rule."""
    try:
        return slots_of(made.limit, made.ttl, shares=made.shares, lends=made.lends), made
    except LimitError as error:
        path = ("shares",) if "shares" in node.entries else ()
        raise FieldError(str(error), path=path) from None


@table(
    "slots",
    finish=_finish_slots,
    schema={"examples": [{"limit": 200, "ttl": "30s", "reserve": {"critical": "20%"}}]},
)
@dataclass(frozen=True, slots=True)
class ConcurrencyFields:
    """Number of requests at the same time."""

    limit: Annotated[int, QUOTA]
    """Number of requests at the same time."""
    ttl: Annotated[int | float, SECONDS] = 60
    """When a slot that is not returned is free again."""
    share_by: Annotated[str | None, SHARE_BY] = None
    """The basis of a caller's share: priority, or a name in identity such as tier."""
    shares: Annotated[Parts, SHARES] = ()
    """Slots that parts of the callers are guaranteed: a percentage (rounded down, at least one), or
    a number."""
    lends: Annotated[bool, BOOLEAN] = True
    """Let all callers use guaranteed slots that lie idle."""
    reserve: Annotated[Mapping[Priority, Fraction], RESERVE] = field(
        default_factory=partial(MappingProxyType[Any, Any], {})
    )
    """Slots that are kept for requests of a class, and more important ones."""


def _rule_shape(node: Table) -> Iterator[FieldError]:
    given = [form for form in LIMIT_FORMS if form in node.entries]
    if is_long(node):  # `limit` is a number of the long form
        given = [*(form for form in given if form not in ("limit", "algorithm")), "algorithm"]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        hint = f"expected exactly one of {', '.join(LIMIT_FORMS[:-1])} or {LIMIT_FORMS[-1]}"
        message = f"a rule has limits in one form; {found}"
        meant = () if given else (*LIMIT_FORMS, *LONG_FIELDS)
        yield FieldError(message, hint=hint, path=("limit",), at_parent=True, instead_of=meant)
        return
    if given == ["algorithm"]:
        yield from check_long_form(node)
    if given[0] in ("fair", "concurrency"):
        for name in ("reserve", "share_by"):
            if name in node.entries:
                hint = f"write it under {given[0]}, or leave it out"
                yield FieldError(f"a rule with {given[0]} has it there", hint=hint, path=(name,))


def _finish_rule(made: RuleDocument, _node: Table, _context: object) -> Rule:
    values = {name: getattr(made, name) for name in _RULE_FIELDS}
    if made.concurrency is not None:
        _, options = made.concurrency
        values |= {"reserve": options.reserve, "share_by": options.share_by}
    return Rule(**values | {"limits": _limits_of(made)})


def _limits_of(made: RuleDocument) -> Limits:
    if made.limits or made.fair is not None:
        return made.limits
    if made.shape is not None:
        return MappingProxyType({None: (made.shape,)})
    if made.concurrency is not None:
        return MappingProxyType({None: made.concurrency[:1]})
    return MappingProxyType({None: long_limits(made)})


def _rule_schema() -> Schema:
    elsewhere = {"reserve": False, "share_by": False}
    one: list[tuple[str, str, Schema]] = [
        ("limit as text", "limit", {"limit": LIMIT_TEXT}),
        ("limits", "limits", {}),
        ("shape", "shape", {}),
        ("concurrency", "concurrency", elsewhere),
        ("fair", "fair", elsewhere),
    ]
    forms = [
        {"title": title, "properties": own | _without(name), "required": [name]}
        for title, name, own in one
    ]
    for form, allowed in long_form_schemas():
        forms.append({**form, "properties": form["properties"] | _without(*allowed)})
    candidate = {"required": ["mode"], "properties": {"mode": {"enum": ["shadow", "off", False]}}}
    return {
        "oneOf": forms,
        "dependentSchemas": {"candidate_of": candidate},
        "examples": [{"id": "login", "key_by": "ip", "limit": "5/minute"}],
    }


def _without(*kept: str) -> Schema:
    """No field of any form of limits but those *kept*."""
    return dict.fromkeys((one for one in (*LIMIT_FORMS, *LONG_FIELDS) if one not in kept), False)


def _write_money(rule: Rule, data: dict[str, Any]) -> None:
    """Write the limits of a rule that counts spend in dollars."""
    if rule.counts_spend:
        data["limits"] = in_usd(data["limits"])


@table(
    "a rule",
    names={"on_failure": "on_store_failure"},
    synonyms={
        **dict.fromkeys(("endpoint", "path", "method", "host", "tier"), "match"),
        **dict.fromkeys(("shadow", "enabled", "dry_run"), "mode"),
        "name": "id",
    },
    shape=_rule_shape,
    finish=_finish_rule,
    write=_write_money,
    makes=Rule,
    schema=_rule_schema,
    order=("id", "description", "match", "key_by", "limit", "limits", *LONG_FIELDS, "shape"),
)
@dataclass(frozen=True, kw_only=True)
class RuleDocument(Rule, LimitFields):
    """A rule: when this matches, count by that key against these limits."""

    match: Match = _ANY
    """The requests that the rule is for; all by default."""
    shape: Annotated[LeakyQueue | None, model_field(Shape)] = None
    """Requests wait in a queue, in the order of arrival, instead of being denied."""
    concurrency: Annotated[
        tuple[Concurrency, ConcurrencyFields] | None, model_field(ConcurrencyFields, short="limit")
    ] = None
    """Number of requests at the same time."""


def rule_to_data(rule: Rule) -> dict[str, Any]:
    """*rule* as plain data without its id; fields with their defaults are left out."""
    data = to_data(rule)
    del data["id"]
    return data


def _read_version(node: Node) -> int:
    found: int = whole(1, 1_000_000).read(node)
    if found != VERSION:
        raise FieldError(f"found version {found}; this Headgate reads version {VERSION}")
    return found


def _section(
    what: str, schema: Schema, container: type[Node] = Table, most: int | None = None
) -> FieldType:
    """A section that the loader reads item by item: within the document its node is kept."""

    def read(node: Node) -> Node:
        if not isinstance(node, container):
            raise expected(node, what)
        if most is not None and isinstance(node, Listing) and len(node.items) > most:
            raise FieldError(f"{len(node.items)} entries; expected at most {most}")
        return node

    return FieldType(what, read, schema, read_in=lambda node, *_: node)


def _list_section(what: str, kind: type[Any], most: int | None = None, **more: Any) -> FieldType:
    """A list of the model *kind*, at most *most* of them."""
    bound = {} if most is None else {"maxItems": most}
    schema = {"type": "array", **bound, **more, "items": reference(kind)}
    return _section(what, schema, Listing, most)


_IDENTITY: Final[Schema] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(DEFAULT_SOURCES, reference(Source)),
        "ip": reference(AddressSource),
        "fallback": {
            **FALLBACK.json_schema(),
            "default": "ip",
            "description": "The counter of a caller without identity.",
        },
    },
    "propertyNames": {"pattern": f"^{NAME.pattern}$", "not": {"enum": list(RESERVED)}},
    "additionalProperties": reference(Source),
    "examples": [{"tier": {"header": "x-tier", "default": "free"}}],
}
PRICES: Final = entries(
    "prices of models",
    MODEL,
    model_field(PriceFields),
    unique=True,
    examples=({"gpt-4o*": {"input": 2.5, "cached": 1.25, "output": 10}},),
)
_CRITICAL: Final = {"class": "critical", "match": {"endpoint": "/pay/**"}}


@table("a policy")
@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """Limits for requests, by the counters of their callers."""

    version: Annotated[int, FieldType(f"version: {VERSION}", _read_version, {"const": VERSION})]
    """The version of this format: 1."""
    identity: Annotated[
        Node | None, _section("a mapping from names to where they are found", _IDENTITY)
    ] = None
    """The identification of callers: names, and where they are found."""
    rules: Annotated[Node | None, _list_section("a list of rules ([] for none)", RuleDocument)] = (
        None
    )
    """Every rule that matches a request applies, all or nothing."""
    overrides: Annotated[
        Node | None, _list_section("a list of overrides ([] for none)", Override, MAX_OVERRIDES)
    ] = None
    """Exceptions for single counters, for a while."""
    priority: Annotated[
        Node | None,
        _list_section(
            "a list such as [{class: critical, match: {endpoint: /pay/**}}]",
            PriorityClass,
            MAX_CLASSES,
            examples=[[_CRITICAL]],
        ),
    ] = None
    """Classes of requests by importance: the first that fits counts."""
    pressure: Annotated[Node | None, _section("the signs of pressure", reference(Pressure))] = None
    """When limits of rules with a floor are lowered automatically, and how."""
    prices: Annotated[Node | None, _section("prices of models", PRICES.json_schema())] = None
    """Prices of language models by name, in dollars for a million tokens."""


def policy_schema() -> Schema:
    """The JSON Schema of a policy: what it rejects the loader rejects too, not the reverse."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **json_schema(PolicyDocument), "title": "Headgate policy"}
