"""Reading one rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, get_args

from headgate.decision import FailurePolicy, HeaderMode, OnFailure
from headgate.engine.rule import Mode
from headgate.limits import EXACT, Accuracy
from headgate.limits.accuracy import MOST_PARTS
from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.loader import scalars
from headgate.policy.loader.checks import check_rule
from headgate.policy.loader.diagnostics import Scalar, Table, shown
from headgate.policy.loader.identity import A_NAME, NAME
from headgate.policy.loader.limits import (
    LONG_FIELDS,
    NO_RESERVE,
    Limits,
    Reserve,
    read_concurrency,
    read_limits,
    read_reserve,
    read_shape,
    read_share_by,
)
from headgate.policy.loader.matches import read_cost, read_idempotency, read_key_by, read_match
from headgate.policy.loader.overload import read_fair, read_floor
from headgate.policy.loader.scalars import Fields
from headgate.policy.model import (
    AfterFailOpen,
    Cost,
    Decide,
    Match,
    Rule,
)
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.policy.loader.diagnostics import Spot
    from headgate.policy.model import Fair, Identity


# Reading what a rule is held to: limits, in one of their forms, or turns.


WHOLE_FORMS: Final = ("limit", "limits", "algorithm", "shape", "concurrency", "fair")
"""The fields of which a rule has exactly one; the long form has others beside it."""

_NO_LIMITS: Final[Limits] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Terms:
    """What a rule is held to: *limits* or *fair*, and what else is said of its slots."""

    limits: Limits = field(default_factory=lambda: _NO_LIMITS)
    fair: Fair | None = None
    reserve: Reserve = field(default_factory=lambda: NO_RESERVE)
    share_by: str | None = None


def read_terms(fields: Fields, identity: Identity) -> Terms | None:
    """The terms of a rule, in exactly one of the forms; None, noted, if there are none."""
    given = _forms(fields)
    if not given and fields.meant.intersection((*WHOLE_FORMS, *LONG_FIELDS)):
        return None
    if len(given) != 1:
        told = f"found {' and '.join(given)}" if given else "found none"
        hint = f"expected exactly one of {', '.join(WHOLE_FORMS[:-1])} or {WHOLE_FORMS[-1]}"
        fields.spot.missing("limit", f"a rule has limits in one form; {told}", hint=hint)
        return None
    match given[0]:
        case "shape":
            queue = read_shape(fields["shape"])
            return None if queue is None else _with_slots(fields, identity, _only(queue))
        case "concurrency":
            return _slots(fields, identity)
        case "fair":
            fair = read_fair(fields["fair"])
            _refuse(fields, "fair", "a rule with fair has its own reserve, and weights for shares")
            return None if fair is None else Terms(fair=fair)
    limits = read_limits(fields)
    return None if limits is None else _with_slots(fields, identity, limits)


def _forms(fields: Fields) -> list[str]:
    """The forms that are given; `limit` is a number of the long form if that is."""
    is_long = any(name in fields for name in LONG_FIELDS if name != "limit")
    given = fields.present([name for name in WHOLE_FORMS if name not in ("limit", "algorithm")])
    if is_long:
        return [*given, "algorithm"]
    return ["limit", *given] if "limit" in fields else given


def _slots(fields: Fields, identity: Identity) -> Terms | None:
    found = read_concurrency(fields["concurrency"], identity)
    _refuse(fields, "concurrency", "with concurrency it stands in there")
    if found is None:
        return None
    return Terms(_only(found.limit), reserve=found.reserve, share_by=found.share_by)


def _refuse(fields: Fields, form: str, why: str) -> None:
    for name in fields.present(("reserve", "share_by")):
        fields[name].wrong(why, hint=f"write it under {form}, or leave it out")


def _with_slots(fields: Fields, identity: Identity, limits: Limits) -> Terms:
    """*limits*, and what the rule says of the slots among them."""
    reserve = fields.read("reserve", read_reserve, NO_RESERVE)
    share_by = fields.read("share_by", lambda spot: read_share_by(spot, identity), None)
    return Terms(limits, reserve=reserve, share_by=share_by)


def _only(limit: Limit) -> Limits:
    return MappingProxyType({None: (limit,)})


# Reading `accuracy` and `on_store_failure`: how exactly a fleet keeps a limit, and what is done
# while it cannot be kept.


Word = TypeVar("Word", bound=str)

STORE_FAILURES: Final[tuple[FailurePolicy, ...]] = get_args(FailurePolicy)
AFTER_FAIL_OPEN: Final[tuple[AfterFailOpen, ...]] = get_args(AfterFailOpen)
ACCURACY_FIELDS: Final = ("max_overshoot", "batch", "sync", "denials", "split")
FAILURE_FIELDS: Final = ("mode", "share", "max_fail_open", "then")


def read_accuracy(spot: Spot) -> Accuracy | None:
    """How far a fleet may overshoot, and how it saves round trips."""
    fields = Fields.of(spot, ACCURACY_FIELDS, "the accuracy")
    if fields is None:
        return None
    before = spot.findings.errors
    if not fields.present(ACCURACY_FIELDS):
        spot.wrong(f"found nothing in it, expected one of {', '.join(ACCURACY_FIELDS)}")
    overshoot = fields.read("max_overshoot", scalars.percentage, None)
    batch = fields.read("batch", _batch, None)
    sync_ns = fields.read("sync", _sync_ns, None)
    denials_ns = fields.read("denials", _denials_ns, None)
    split = fields.read("split", _split, 1)
    if spot.findings.errors > before:
        return None
    return Accuracy(overshoot, batch, sync_ns, denials_ns, split)


def read_on_store_failure(spot: Spot) -> OnFailure | None:
    """A word, or a mapping with the word and its terms."""
    if not isinstance(spot.node, Table):
        alone = _mode(spot)
        return None if alone is None else OnFailure(alone)
    fields = Fields.of(spot, FAILURE_FIELDS, "what to do when the store cannot decide")
    if fields is None:
        return None
    before = spot.findings.errors
    mode: FailurePolicy = fields.read("mode", _mode, "fail_open")
    share = fields.read("share", scalars.percentage, Fraction(1))
    open_ns = fields.read("max_fail_open", scalars.duration_ns, None)
    then: AfterFailOpen = fields.read("then", _then, "fail_closed")
    if mode == "fail_closed" and "share" in fields:
        fields["share"].wrong("a rule that fails closed admits nothing", hint="leave share out")
    if mode != "fail_open" and "max_fail_open" in fields:
        fields["max_fail_open"].wrong(f"is for fail_open, and the mode is {mode}")
    if "then" in fields and "max_fail_open" not in fields:
        fields["then"].wrong("needs max_fail_open: after how long")
    return OnFailure(mode, share, open_ns, then) if spot.findings.errors == before else None


def _word(spot: Spot, words: tuple[Word, ...]) -> Word | None:
    found = scalars.choice(spot, *words)
    return next((known for known in words if known == found), None)


def _mode(spot: Spot) -> FailurePolicy | None:
    return _word(spot, STORE_FAILURES)


def _then(spot: Spot) -> AfterFailOpen | None:
    return _word(spot, AFTER_FAIL_OPEN)


def _batch(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, LARGEST_QUOTA)


def _split(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, MOST_PARTS)


def _sync_ns(spot: Spot) -> int | None:
    found = scalars.duration_ns(spot)
    if found is not None and found < MILLISECOND:
        spot.wrong("found less than a millisecond; expected such as 100ms")
        return None
    return found


def _denials_ns(spot: Spot) -> int | None:
    """For how long a refusal is remembered; `off` for not at all."""
    node = spot.node
    if isinstance(node, Scalar) and (node.boolean is False or node.text == "off"):
        return 0
    return scalars.duration_ns(spot)


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
        mode=fields.read("mode", _rules_mode, "enforce"),
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


def _rules_mode(spot: Spot) -> Mode | None:
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
