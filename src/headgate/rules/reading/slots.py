"""Reading `concurrency`: how many at the same time, who is guaranteed how many of the slots, and
what is kept for requests that matter more."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError
from headgate.limits import Concurrency
from headgate.limits.model import LARGEST_QUOTA
from headgate.limits.shares import MOST_SHARES
from headgate.rules.reading import scalars
from headgate.rules.reading.callers import A_NAME, NAME
from headgate.rules.reading.fields import Fields, entries
from headgate.rules.reading.tree import Scalar, Table, shown
from headgate.rules.soft import BY_PRIORITY, PRIORITIES, Priority

if TYPE_CHECKING:
    from headgate.rules.model import Identity
    from headgate.rules.reading.findings import Spot

CONCURRENCY_FIELDS: Final = ("limit", "ttl", "share_by", "shares", "lends", "reserve")
USUAL_TTL: Final[int | float] = 60
"""In how many seconds a slot that is never given back is free, if a rule does not say."""

RESERVABLE: Final = PRIORITIES[:-1]
"""The classes that something can be kept for: there is nobody to keep it from for the last."""

Parts = tuple[tuple[str, int | Fraction], ...]
"""Shares as they are written: slots, or a part of the limit."""

Reserve = MappingProxyType[Priority, Fraction]
NO_RESERVE: Final[Reserve] = MappingProxyType({})
_NO_PARTS: Final[Parts] = ()


@dataclass(frozen=True, slots=True)
class Slots:
    """What `concurrency` says: of the *limit*, and of the rule that has it."""

    limit: Concurrency
    reserve: Reserve
    share_by: str | None


def read_concurrency(spot: Spot, identity: Identity) -> Slots | None:
    """A number of slots, or a mapping with their terms."""
    if not isinstance(spot.node, Table):
        alone = _slots(spot)
        return None if alone is None else Slots(Concurrency(alone, USUAL_TTL), NO_RESERVE, None)
    fields = Fields.of(spot, CONCURRENCY_FIELDS, "slots")
    if fields is None:
        return None
    before = spot.findings.errors
    limit = fields.need("limit", _slots, "how many at the same time")
    ttl = fields.read("ttl", scalars.seconds, USUAL_TTL)
    shares = fields.read("shares", read_shares, _NO_PARTS)
    lends = fields.read("lends", scalars.boolean, default=True)
    reserve = fields.read("reserve", read_reserve, NO_RESERVE)
    share_by = fields.read("share_by", lambda own: read_share_by(own, identity), None)
    if limit is None or spot.findings.errors > before:
        return None
    try:
        return Slots(slots_of(limit, ttl, shares=shares, lends=lends), reserve, share_by)
    except LimitError as error:
        fields.spot_of("shares").wrong(str(error))
        return None


def slots_of(limit: int, ttl: float, *, shares: Parts = (), lends: bool = True) -> Concurrency:
    """What a rule says of slots: parts of the limit are rounded down, and at least one slot.

    Raises `LimitError`.
    """
    if not shares and not lends:
        raise LimitError("lends is about shares, and there are none; expected shares with it")
    sized = tuple((name, _size(part, limit)) for name, part in shares)
    return Concurrency(limit, ttl, sized, lends=lends)


def _size(part: int | Fraction, limit: int) -> int:
    return part if isinstance(part, int) else max(1, int(limit * part))


def read_shares(spot: Spot) -> Parts | None:
    """The slots that parts of the callers are guaranteed, or how much of the limit that is."""
    found: dict[str, int | Fraction] = {}
    for name, child in entries(spot, "shares of the slots"):
        if not NAME.fullmatch(name):
            child.of_key().wrong(f"{shown(name)} cannot have a share; expected {A_NAME}")
        part = _part(child)
        if part is not None:
            found[name] = part
    if len(found) > MOST_SHARES:
        spot.wrong(f"{len(found)} shares; expected at most {MOST_SHARES}")
        return None
    return tuple(found.items()) or None


def _part(spot: Spot) -> int | Fraction | None:
    node = spot.node
    if isinstance(node, Scalar) and "%" in node.text:
        return scalars.percentage(spot)
    found = scalars.number(spot, "a share such as 40%, or a number of slots")
    if found is None:
        return None
    if not isinstance(found, int) or not 1 <= found <= LARGEST_QUOTA:
        spot.expected("a share such as 40%, or a number of slots from 1")
        return None
    return found


def read_reserve(spot: Spot) -> Reserve | None:
    """What is kept for requests of a class and for those that matter more."""
    found: dict[Priority, Fraction] = {}
    for name, child in entries(spot, "what is reserved for which class of requests"):
        kind = next((one for one in RESERVABLE if one == name), None)
        if kind is not None:
            share = scalars.percentage(child)
            if share is not None:
                found[kind] = share
        elif name in PRIORITIES:
            told = f"nothing can be kept for {name} requests: none matter less"
            child.of_key().wrong(told, hint=f"expected {' or '.join(RESERVABLE)}")
        else:
            child.of_key().not_among(name, RESERVABLE, f"there is no class {shown(name)}")
    total = sum(found.values())
    if total >= 1:
        told = f"{_percent(total)} are reserved: nothing is left for other requests"
        spot.wrong(told, hint="expected less than 100% in all")
        return None
    return MappingProxyType(found) if found else None


def read_share_by(spot: Spot, identity: Identity) -> str | None:
    """What a caller's share goes by: the class of a request, or what identity finds."""
    known = (BY_PRIORITY, *identity.sources)
    found = scalars.word(spot, f"one of {', '.join(known)}")
    if found is None:
        return None
    if found not in known:
        spot.not_among(found, known, f"nothing is known of callers by the name of {shown(found)}")
        return None
    if found != BY_PRIORITY and _is_secret(found, identity):
        told = f"{shown(found)} is a secret, and shares stand in the store by their names"
        spot.wrong(told, hint=f"expected a name in identity that looks {shown(found)} up")
        return None
    return found


def _is_secret(name: str, identity: Identity) -> bool:
    """Whether callers may be known by a secret; what is looked up by one is none."""
    return identity.sources[name].secret


def _slots(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, LARGEST_QUOTA)


def _percent(share: Fraction | int) -> str:
    return f"{float(share) * 100:g}%"
