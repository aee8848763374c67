"""Reading what a rule is held to: limits, in one of their forms, or turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.rules.reading.amounts import LONG_FIELDS, Limits, read_limits
from headgate.rules.reading.queues import read_shape
from headgate.rules.reading.slots import (
    NO_RESERVE,
    Reserve,
    read_concurrency,
    read_reserve,
    read_share_by,
)
from headgate.rules.reading.turns import read_fair

if TYPE_CHECKING:
    from headgate.limits import Limit
    from headgate.rules.model import Identity
    from headgate.rules.reading.fields import Fields
    from headgate.rules.soft import Fair

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
