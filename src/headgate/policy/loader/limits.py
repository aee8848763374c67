"""Reading limits, in their three forms, all of which come to the same values.

limit: 100/minute; 1000/hour                      a text
limits: [100/minute, 1000/hour]                   a list, stacked
limits: {free: 10/s, default: 100/s}              by tier
algorithm: token_bucket, capacity: 100, ...       the long form, also within the others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.engine.rule import Priority
from headgate.errors import LimitError, NotationError
from headgate.limits import (
    GCRA,
    Concurrency,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    parse_limits,
    parse_rate,
)
from headgate.limits.model import LARGEST_QUOTA, MOST_SHARES
from headgate.limits.queues import LONGEST_QUEUE
from headgate.policy.loader import scalars
from headgate.policy.loader.diagnostics import Listing, Place, Scalar, Table, shown
from headgate.policy.loader.identity import A_NAME, NAME
from headgate.policy.loader.scalars import Fields, entries
from headgate.policy.model import BY_PRIORITY, PRIORITIES
from headgate.units import SECOND, Rate, exact_rate, plain_rate, plain_seconds

if TYPE_CHECKING:
    from headgate.policy.loader.diagnostics import Spot
    from headgate.policy.model import Identity


# Reading `shape`, and what else is said of rates, queues and waiting.


SHAPE_FIELDS: Final = ("rate", "queue", "max_wait")
A_RATE: Final = "a rate such as 10/s or '100 per minute'"


def read_shape(spot: Spot) -> LeakyQueue | None:
    """The queue that a rule shapes its requests with."""
    fields = Fields.of(spot, SHAPE_FIELDS, "how requests are delayed")
    if fields is None:
        return None
    before = spot.findings.errors
    rate = fields.need("rate", read_rate, A_RATE)
    queue = fields.read("queue", read_queue, None)
    max_wait = fields.read("max_wait", read_max_wait, None)
    if rate is None or fields.meant or spot.findings.errors > before:
        return None
    try:
        return queue_of(plain_rate(rate), queue=queue, max_wait=max_wait)
    except LimitError as error:
        field = str(error).partition(" ")[0]
        fields.spot_of(field).wrong(str(error))
        return None


def queue_of(
    rate: Rate, *, queue: int | None = None, max_wait: int | float | None = None
) -> LeakyQueue:
    """What a rule says of a queue; without a *queue*, as many wait as *max_wait* allows.

    Raises `LimitError`.
    """
    if queue is not None:
        return LeakyQueue(rate, queue, max_wait)
    if max_wait is None:
        raise LimitError("how many may wait is not said; expected queue, max_wait or both")
    longest = ceil(exact_rate(rate, "rate") * round(max_wait * SECOND) / SECOND)
    if longest > LONGEST_QUEUE:
        told = f"max_wait is {max_wait} seconds: {longest} requests would wait"
        raise LimitError(f"{told}; expected a queue of at most {LONGEST_QUEUE}")
    return LeakyQueue(rate, longest, max_wait)


def read_rate(spot: Spot) -> Fraction | None:
    """Units a second, exactly, from a text in the notation without options."""
    node = spot.node
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        spot.expected(A_RATE)
        return None
    try:
        return parse_rate(node.text)
    except NotationError as error:
        at = node.place
        if node.inset is not None and at.line is not None and at.column is not None:
            at = Place(at.line, at.column + node.inset + error.position)
        told = f"not a rate, at character {error.position + 1}: {error.problem}"
        spot.wrong(told, hint=f"expected {' or '.join(error.expected)}", at=at)
        return None


def read_queue(spot: Spot) -> int | None:
    """How many may wait."""
    return scalars.whole(spot, 0, LONGEST_QUEUE)


def read_max_wait(spot: Spot) -> int | float | None:
    """How long one may wait, in seconds; 0 for not at all."""
    found = wait_ns(spot)
    return None if found is None else plain_seconds(found)


def wait_ns(spot: Spot) -> int | None:
    """The same in nanoseconds."""
    node = spot.node
    if isinstance(node, Scalar) and node.is_plain and node.text == "0":
        return 0
    return scalars.duration_ns(spot)


# Reading `concurrency`: how many at the same time, who is guaranteed how many of the slots, and
# what is kept for requests that matter more.


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
