"""Reading limits, in their three forms, all of which come to the same values.

limit: 100/minute; 1000/hour                      a text
limits: [100/minute, 1000/hour]                   a list, stacked
limits: {free: 10/s, default: 100/s}              by tier
algorithm: token_bucket, capacity: 100, ...       the long form, also within the others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import LimitError, NotationError
from headgate.limits import (
    GCRA,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    parse_limits,
)
from headgate.limits.model import LARGEST_QUOTA
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import Fields
from headgate.rules.reading.queues import queue_of, read_max_wait, read_queue, read_rate
from headgate.rules.reading.slots import read_shares, slots_of
from headgate.rules.reading.tree import Listing, Place, Scalar, Table

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

Limits = Mapping[str | None, tuple[Limit, ...]]

_parsed: Final = lru_cache(maxsize=512)(parse_limits)
"""Rules have many limits in common, and to read one takes long."""

DEFAULT_TIER: Final = "default"
"""In `limits` by tier: callers of all other tiers, and of none."""

MOST_STACKED: Final = 16
"""How many limits a rule may have for one caller."""

LARGEST_LOG: Final = 10_000
"""Above this an exact log is a burden: it keeps every admitted request."""

_A_LIMIT: Final = "a limit such as 100/minute, or a mapping with 'algorithm' and its numbers"


def _quota(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, LARGEST_QUOTA)


def _rate(spot: Spot) -> int | float | None:
    found = scalars.number(spot, "a number of units per second")
    if found is not None and not 0 < found < float("inf"):
        spot.expected("a number of units per second, above 0")
        return None
    return found


def _subwindows(spot: Spot) -> int | None:
    return scalars.whole(spot, 1, 1_000)


@dataclass(frozen=True, slots=True)
class Form:
    """The long form of an algorithm: the fields it needs, in the order that *make* takes them.

    *other* are fields that may stand for one that it needs: the same, said in another way.
    """

    make: Callable[..., Limit]
    needs: tuple[str, ...]
    may: tuple[str, ...] = ()
    other: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """All that it may have."""
        return (*self.needs, *self.other.values(), *self.may)


READERS: Final[Mapping[str, Callable[[Spot], Any]]] = {
    "capacity": _quota,
    "burst": _quota,
    "limit": _quota,
    "refill_rate_per_sec": _rate,
    "rate_per_sec": _rate,
    "leak_rate_per_sec": _rate,
    "window": scalars.seconds,
    "ttl": scalars.seconds,
    "subwindows": _subwindows,
    "rate": read_rate,
    "queue": read_queue,
    "max_wait": read_max_wait,
    "shares": read_shares,
    "lends": scalars.boolean,
}
FORMS: Final[Mapping[str, Form]] = {
    "token_bucket": Form(TokenBucket, ("capacity", "refill_rate_per_sec")),
    "gcra": Form(GCRA, ("rate_per_sec", "burst")),
    "leaky_bucket": Form(LeakyBucket, ("capacity", "leak_rate_per_sec")),
    "fixed_window": Form(FixedWindow, ("limit", "window")),
    "sliding_window_log": Form(SlidingWindowLog, ("limit", "window")),
    "sliding_window_counter": Form(SlidingWindowCounter, ("limit", "window"), ("subwindows",)),
    "leaky_queue": Form(
        queue_of, ("rate_per_sec",), ("queue", "max_wait"), {"rate_per_sec": "rate"}
    ),
    "concurrency": Form(slots_of, ("limit", "ttl"), ("shares", "lends")),
}
LONG_FIELDS: Final = ("algorithm", *READERS)


def read_limits(fields: Fields) -> Limits | None:
    """The limits of a rule that says them as a text, as a list, by tier or in the long form."""
    if any(name in fields for name in LONG_FIELDS if name != "limit"):
        one = _long_form(fields)
        return None if one is None else MappingProxyType({None: (one,)})
    if "limits" in fields:
        return _by_tier(fields["limits"])
    found = _written(fields["limit"])
    return None if found is None else MappingProxyType({None: found})


def _by_tier(spot: Spot) -> Limits | None:
    if isinstance(spot.node, Table) and "algorithm" not in spot.node.entries:
        found = {child.name: _of_tier(child) for child in spot.children()}
        if not found:
            spot.expected("a limit for at least one tier")
            return None
        tiers = {None if name == DEFAULT_TIER else name: limits for name, limits in found.items()}
        return MappingProxyType({tier: limits or () for tier, limits in tiers.items()})
    limits = _stacked(spot)
    return None if limits is None else MappingProxyType({None: limits})


def _of_tier(spot: Spot) -> tuple[Limit, ...] | None:
    scalars.word(spot.of_key(), "the name of a tier")
    return _stacked(spot)


def _stacked(spot: Spot) -> tuple[Limit, ...] | None:
    """One limit or a list of them."""
    children = list(spot.children()) if isinstance(spot.node, Listing) else [spot]
    if not children:
        spot.expected(f"{_A_LIMIT}, or a list of at least one")
        return None
    found = [limit for child in children for limit in _one(child) or ()]
    if len(found) > MOST_STACKED:
        spot.wrong(f"{len(found)} limits for one caller; expected at most {MOST_STACKED}")
        return None
    if len(set(found)) < len(found):
        spot.warn("the same limit is given twice")
    return tuple(found) or None


def _one(spot: Spot) -> tuple[Limit, ...] | None:
    if not isinstance(spot.node, Table):
        return _written(spot)
    fields = Fields.of(spot, LONG_FIELDS, "a limit")
    limit = None if fields is None else _long_form(fields)
    return None if limit is None else (limit,)


def _written(spot: Spot) -> tuple[Limit, ...] | None:
    """Limits in the notation."""
    node = spot.node
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        spot.expected(_A_LIMIT)
        return None
    try:
        found = _parsed(node.text)
    except NotationError as error:
        _not_a_limit(spot, node, error)
        return None
    for limit in found:
        _warn_of_log(spot, limit)
    return found


def _not_a_limit(spot: Spot, node: Scalar, error: NotationError) -> None:
    at = node.place
    if node.inset is not None and at.line is not None and at.column is not None:
        at = Place(at.line, at.column + node.inset + error.position)
    told = f"not a limit, at character {error.position + 1}: {error.problem}"
    spot.wrong(told, hint=f"expected {' or '.join(error.expected)}", at=at)


def _long_form(fields: Fields) -> Limit | None:
    """The limit that `algorithm` and its numbers say."""
    name = fields.need("algorithm", _algorithm, f"one of {', '.join(FORMS)}")
    if name is None:
        return None
    form = FORMS[name]
    for other in fields.present([one for one in READERS if one not in form.fields]):
        fields[other].wrong(f"{name} has no {other}; it has {', '.join(form.fields)}")
    numbers = [_number(fields, need, name) for need in form.needs]
    options = {may: fields[may] for may in form.may if may in fields}
    read = {may: READERS[may](spot) for may, spot in options.items()}
    if None in numbers or None in read.values():
        return None
    try:
        limit = form.make(*numbers, **read)
    except LimitError as error:
        fields.spot.wrong(str(error))
        return None
    _warn_of_log(fields.spot_of(form.needs[0]), limit)
    return limit


def _number(fields: Fields, need: str, name: str) -> Any:
    """What the algorithm *name* needs, under one of its names."""
    other = FORMS[name].other.get(need)
    if other is None or other not in fields:
        return fields.need(need, READERS[need], f"the {need} of a {name}")
    if need in fields:
        fields[other].wrong(f"{need} says it already; expected one of them")
        return None
    return READERS[other](fields[other])


def _algorithm(spot: Spot) -> str | None:
    return scalars.choice(spot, *FORMS)


def _warn_of_log(spot: Spot, limit: Limit) -> None:
    if isinstance(limit, SlidingWindowLog) and limit.limit > LARGEST_LOG:
        told = f"a log of {limit.limit} entries for each key is heavy on memory and on the store"
        spot.warn(told, hint=f"above {LARGEST_LOG}, sliding_window_counter is almost as exact")
