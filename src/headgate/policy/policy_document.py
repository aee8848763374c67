"""A policy as it stands in a file, and its JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from headgate.policy.document import Listing, Node, Table
from headgate.policy.fields import NAME, Choice, FieldError, FieldType, Schema, Whole, expected
from headgate.policy.limit_forms import LongLimit, Shape
from headgate.policy.model import (
    BUILT_IN_PARTS,
    DEFAULT_SOURCES,
    AccuracyFields,
    Adaptive,
    AdaptiveSlots,
    AddressSource,
    After,
    Cost,
    FailureFields,
    Fair,
    Fallback,
    Idempotency,
    Match,
    Override,
    Pressure,
    PriorityClass,
    Source,
)
from headgate.policy.rule_document import ConcurrencyFields, RuleDocument
from headgate.policy.tables import field_rows, json_schema, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION: Final = 1
MAX_OVERRIDES: Final = 10_000
MAX_CLASSES: Final = 1_000
"""Entries of `priority` at most."""

RESERVED: Final = tuple(name for name in BUILT_IN_PARTS if name != "ip")
FALLBACK: Final = Choice(get_args(Fallback))


class _Version(FieldType):
    """The version of the format."""

    what = f"version: {VERSION}"

    def read(self, node: Node) -> int:
        found = Whole(1, 1_000_000).read(node)
        if found != VERSION:
            raise FieldError(f"found version {found}; this Headgate reads version {VERSION}")
        return found

    def schema(self) -> Schema:
        return {"const": VERSION}


class _Section(FieldType):
    """A section that the loader reads item by item: its node is kept.

    *kinds* are the models in it, whose JSON Schemas *describe* makes that of the section of.
    """

    container: type[Node] = Table

    def __init__(self, what: str, *kinds: type[Any], describe: Callable[..., Schema]) -> None:
        self.what = what
        self.kinds = kinds
        self.describe = describe

    def read(self, node: Node) -> Node:
        if not isinstance(node, self.container):
            raise expected(node, self.what)
        return node

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        inner = core_schema.tuple_schema([handler.generate_schema(kind) for kind in self.kinds])
        return core_schema.no_info_wrap_validator_function(lambda node, _: node, inner)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        return self.describe(*(handler(one) for one in core["schema"]["items_schema"]))


class _ListSection(_Section):
    """A list of the model *kind*, at most *most* of them."""

    container = Listing

    def __init__(self, what: str, kind: type[Any], most: int = 0, **more: Any) -> None:
        bound = {"maxItems": most} if most else {}
        schema = {"type": "array", **bound, **more}
        super().__init__(what, kind, describe=lambda one: {**schema, "items": one})
        self.most = most

    def read(self, node: Node) -> Node:
        found = super().read(node)
        if self.most and isinstance(found, Listing) and len(found.items) > self.most:
            raise FieldError(f"{len(found.items)} entries; expected at most {self.most}")
        return found


def _identity_schema(source: Schema, address: Schema) -> Schema:
    fallback = {**FALLBACK.schema(), "default": "ip"}
    text = "The counter of a caller without identity."
    return {
        "type": "object",
        "properties": {
            **dict.fromkeys(DEFAULT_SOURCES, source),
            "ip": address,
            "fallback": {**fallback, "description": text},
        },
        "propertyNames": {"pattern": f"^{NAME.pattern}$", "not": {"enum": list(RESERVED)}},
        "additionalProperties": source,
        "examples": [{"tier": {"header": "x-tier", "default": "free"}}],
    }


_CRITICAL: Final = {"class": "critical", "match": {"endpoint": "/pay/**"}}


@table("a policy")
@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """Limits for requests, by the counters of their callers."""

    version: Annotated[int, _Version()]
    """The version of this format: 1."""
    identity: Annotated[
        Node | None,
        _Section(
            "a mapping from names to where they are found",
            Source,
            AddressSource,
            describe=_identity_schema,
        ),
    ] = None
    """The identification of callers: names, and where they are found."""
    rules: Annotated[Node | None, _ListSection("a list of rules ([] for none)", RuleDocument)] = (
        None
    )
    """Every rule that matches a request applies, all or nothing."""
    overrides: Annotated[
        Node | None, _ListSection("a list of overrides ([] for none)", Override, MAX_OVERRIDES)
    ] = None
    """Exceptions for single counters, for a while."""
    priority: Annotated[
        Node | None,
        _ListSection(
            "a list such as [{class: critical, match: {endpoint: /pay/**}}]",
            PriorityClass,
            MAX_CLASSES,
            examples=[[_CRITICAL]],
        ),
    ] = None
    """Classes of requests by importance: the first that fits counts."""
    pressure: Annotated[
        Node | None, _Section("the signs of pressure", Pressure, describe=lambda one: one)
    ] = None
    """When limits of rules with a floor are lowered automatically, and how."""


def policy_schema() -> Schema:
    """The JSON Schema of a policy: what it rejects the loader rejects too, not the reverse."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **json_schema(PolicyDocument), "title": "Headgate policy"}


_MODELS: Final = {
    "The policy": PolicyDocument,
    "A rule": RuleDocument,
    "`match`": Match,
    "A limit in `limits`": LongLimit,
    "`shape`": Shape,
    "`concurrency`": ConcurrencyFields,
    "`fair`": Fair,
    "`fair.slots`": AdaptiveSlots,
    "`adaptive`": Adaptive,
    "`cost`": Cost,
    "`cost.after`": After,
    "`on_store_failure`": FailureFields,
    "`accuracy`": AccuracyFields,
    "`idempotency`": Idempotency,
    "A source in `identity`": Source,
    "`identity.ip`": AddressSource,
    "An override": Override,
    "An entry of `priority`": PriorityClass,
    "`pressure`": Pressure,
}


def reference_rows() -> Iterator[str]:
    """The fields of every model in Markdown, for the reference page."""
    for heading, kind in _MODELS.items():
        text = (kind.__doc__ or "").partition("\n\n")[0]
        yield from ("", f"### All fields: {heading}", "", " ".join(text.split()), "")
        yield from field_rows(kind)
