"""Reading one rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from headgate.decisions import OnFailure
from headgate.limits import EXACT
from headgate.rules.model import (
    Cost,
    Decide,
    HeaderMode,
    Match,
    Mode,
    Rule,
)
from headgate.rules.reading import scalars
from headgate.rules.reading.amounts import LONG_FIELDS
from headgate.rules.reading.callers import A_NAME, NAME
from headgate.rules.reading.consistency import check_rule
from headgate.rules.reading.costs import read_cost, read_idempotency
from headgate.rules.reading.fields import Fields
from headgate.rules.reading.keeping import read_accuracy, read_on_store_failure
from headgate.rules.reading.matches import read_key_by, read_match
from headgate.rules.reading.pressing import read_floor
from headgate.rules.reading.terms import Terms, read_terms
from headgate.rules.reading.tree import Scalar, Table, shown

if TYPE_CHECKING:
    from headgate.rules.model import Identity
    from headgate.rules.reading.findings import Spot

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
HEADER_MODES: Final[tuple[HeaderMode, ...]] = get_args(HeaderMode)
WAYS_TO_DECIDE: Final[tuple[Decide, ...]] = get_args(Decide)

RULE_FIELDS: Final = (
    "id",
    "description",
    "match",
    "key_by",
    "limit",
    "limits",
    *(name for name in LONG_FIELDS if name != "limit"),
    "shape",
    "concurrency",
    "fair",
    "reserve",
    "share_by",
    "adaptive",
    "cost",
    "mode",
    "candidate_of",
    "on_store_failure",
    "accuracy",
    "across_regions",
    "headers",
    "idempotency",
    "decide",
)


@dataclass(frozen=True, slots=True)
class Read:
    """A rule as far as it could be read: *rule* is None if something is wrong with it."""

    spot: Spot
    id: str | None
    rule: Rule | None


def read_rule(spot: Spot, identity: Identity, *, rule_id: str | None = None) -> Read:
    """The rule at *spot*. With a *rule_id* it need not have one of its own, but may repeat it."""
    spot = spot.in_rule(rule_id if rule_id is not None else _name_of(spot))
    before = spot.findings.errors
    fields = Fields.of(spot, RULE_FIELDS, "a rule")
    if fields is None:
        return Read(spot, None, None)
    found_id = _id(fields, rule_id)
    rule = _rule(fields, found_id or "", identity)
    if spot.findings.errors > before or rule is None:
        return Read(spot, found_id, None)
    check_rule(rule, fields, identity)
    return Read(spot, found_id, rule if spot.findings.errors == before else None)


def _rule(fields: Fields, rule_id: str, identity: Identity) -> Rule | None:
    key_by = fields.need(
        "key_by", lambda spot: read_key_by(spot, identity), "whom to count, such as ip or global"
    )
    terms = read_terms(fields, identity)
    held = terms or Terms()
    failing = fields.read("on_store_failure", read_on_store_failure, OnFailure())
    rest = Rule(
        id=rule_id,
        match=fields.read("match", read_match, Match()),
        key_by=key_by or (),
        limits=held.limits,
        cost=fields.read("cost", read_cost, Cost()),
        mode=fields.read("mode", _mode, "enforce"),
        on_store_failure=failing.mode,
        accuracy=fields.read("accuracy", read_accuracy, EXACT),
        headers=fields.read("headers", _headers, "on"),
        idempotency=fields.read("idempotency", read_idempotency, None),
        description=fields.read("description", scalars.prose, ""),
        decide=fields.read("decide", _decide, None),
        fallback_share=failing.share,
        max_fail_open_ns=failing.open_ns,
        after_fail_open=failing.then,
        across_regions=fields.read("across_regions", scalars.boolean, default=False),
        fair=held.fair,
        reserve=held.reserve,
        share_by=held.share_by,
        floor=fields.read("adaptive", read_floor, None),
        candidate_of=fields.read("candidate_of", read_id, None),
    )
    return rest if key_by and terms else None


def _name_of(spot: Spot) -> str | None:
    """The id for messages, if there is one."""
    found = spot.node.entries.get("id") if isinstance(spot.node, Table) else None
    return found.text[:100] if isinstance(found, Scalar) and not found.is_null else None


def _id(fields: Fields, given: str | None) -> str | None:
    if given is None:
        return fields.need("id", read_id, A_NAME)
    if not NAME.fullmatch(given):
        fields.spot.missing("id", f"{shown(given)} is not an id; expected {A_NAME}")
        return None
    own = fields.read("id", read_id, given)
    if own != given:
        fields["id"].wrong(f"found {shown(own)} in the rule {shown(given)}; expected none")
    return given


def read_id(spot: Spot) -> str | None:
    """The id of a rule."""
    found = scalars.text(spot, A_NAME)
    if found is not None and not NAME.fullmatch(found):
        spot.wrong(f"{shown(found)} is not an id; expected {A_NAME}")
        return None
    return found


def _mode(spot: Spot) -> Mode | None:
    if isinstance(spot.node, Scalar) and spot.node.boolean is False:  # what YAML 1.1 makes of off
        return "off"
    word = scalars.choice(spot, *MODES)
    return next((known for known in MODES if known == word), None)


def _headers(spot: Spot) -> HeaderMode | None:
    word = scalars.choice(spot, *HEADER_MODES, switch=("on", "off"))
    return next((known for known in HEADER_MODES if known == word), None)


def _decide(spot: Spot) -> Decide | None:
    word = scalars.choice(spot, *WAYS_TO_DECIDE)
    return next((known for known in WAYS_TO_DECIDE if known == word), None)
