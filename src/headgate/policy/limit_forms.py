"""The forms of limits in a file, all of which make the same values.

limit: 100/minute; 1000/hour                      a text
limits: [100/minute, 1000/hour]                   a list, stacked
limits: {free: 10/s, default: 100/s}              by tier
algorithm: token_bucket, capacity: 100, ...       the long form, also within the others
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

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
)
from headgate.limits.model import LONGEST_QUEUE, MOST_SHARES
from headgate.limits.notation import LONGEST_TEXT, USD
from headgate.policy.document import Listing, Scalar, Table
from headgate.policy.fields import (
    A_NAME,
    BOOLEAN,
    NAME,
    PER_SECOND,
    QUOTA,
    RATE,
    FieldError,
    FieldType,
    Schema,
    choice,
    duration,
    entries,
    expected,
    notation_error,
    rate_text,
    read_each,
    read_text,
    share,
    whole,
    word,
)
from headgate.policy.tables import read, reference, table
from headgate.units import SECOND, Rate, exact_rate, plain_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.policy.document import Node

Limits = Mapping[str | None, tuple[Limit, ...]]
"""Limits by tier; None: for callers of all other tiers, and of none."""

Parts = tuple[tuple[str, int | Fraction], ...]
"""Shares as they are written: slots, or a part of the limit."""

DEFAULT_TIER: Final = "default"
"""In `limits` and `weights`: callers of all other tiers, and of none."""

MAX_STACKED: Final = 16
"""Limits that a rule may have for one caller."""

_A_LIMIT: Final = "a limit such as 100/minute, or a mapping with 'algorithm' and its numbers"
_parsed: Final = lru_cache(maxsize=512)(parse_limits)
"""Rules have many limits in common, and parsing is slow."""


def queue_of(
    rate: Rate, *, queue: int | None = None, max_wait: int | float | None = None
) -> LeakyQueue:
    """A leaky queue; without *queue*, as many requests wait as *max_wait* allows.

    Raises `LimitError`.
    """
    if queue is not None:
        return LeakyQueue(rate, queue, max_wait)
    if max_wait is None:
        raise LimitError("the length of the queue is missing; expected queue, max_wait or both")
    longest = ceil(exact_rate(rate, "rate") * round(max_wait * SECOND) / SECOND)
    if longest > LONGEST_QUEUE:
        message = f"max_wait is {max_wait} seconds: {longest} requests would wait"
        raise LimitError(f"{message}; expected a queue of at most {LONGEST_QUEUE}")
    return LeakyQueue(rate, longest, max_wait)


def slots_of(limit: int, ttl: float, *, shares: Parts = (), lends: bool = True) -> Concurrency:
    """A concurrency limit: parts of the limit are rounded down, to at least one slot.

    Raises `LimitError`.
    """
    if not shares and not lends:
        raise LimitError("lends is about shares, and there are none; expected shares with it")
    sized = tuple(
        (name, part if isinstance(part, int) else max(1, int(limit * part)))
        for name, part in shares
    )
    return Concurrency(limit, ttl, sized, lends=lends)


@dataclass(frozen=True, slots=True)
class LongForm:
    """The long form of an algorithm: the fields it needs, in the order that *make* takes them.

    *other* are fields that may stand for one that it needs.
    """

    make: Callable[..., Limit]
    needs: tuple[str, ...]
    may: tuple[str, ...] = ()
    other: Mapping[str, str] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """All that it may have."""
        return (*self.needs, *self.other.values(), *self.may)


FORMS: Final[Mapping[str, LongForm]] = {
    "token_bucket": LongForm(TokenBucket, ("capacity", "refill_rate_per_sec")),
    "gcra": LongForm(GCRA, ("rate_per_sec", "burst")),
    "leaky_bucket": LongForm(LeakyBucket, ("capacity", "leak_rate_per_sec")),
    "fixed_window": LongForm(FixedWindow, ("limit", "window")),
    "sliding_window_log": LongForm(SlidingWindowLog, ("limit", "window")),
    "sliding_window_counter": LongForm(SlidingWindowCounter, ("limit", "window"), ("subwindows",)),
    "leaky_queue": LongForm(
        queue_of, ("rate_per_sec",), ("queue", "max_wait"), {"rate_per_sec": "rate"}
    ),
    "concurrency": LongForm(slots_of, ("limit", "ttl"), ("shares", "lends")),
}
IN_NOTATION: Final = tuple(name for name in FORMS if name not in ("leaky_queue", "concurrency"))
"""The algorithms that the notation has: `limit` may be a text beside them."""


TIER: Final = word(
    "the name of a tier",
    convert=lambda name: None if name == DEFAULT_TIER else name,
    write=lambda tier: DEFAULT_TIER if tier is None else tier,
)
"""None is the default."""

_SHARE: Final = share()


def _read_part(node: Node) -> int | Fraction:
    is_share = isinstance(node, Scalar) and "%" in node.text
    found: int | Fraction = (_SHARE if is_share else QUOTA).read(node)
    return found


_PART: Final = FieldType(
    "a share such as 40%, or a number of slots from 1",
    _read_part,
    {"anyOf": [_SHARE.json_schema(), QUOTA.json_schema()]},
)
SHARES: Final = entries(
    "shares of the slots",
    word("the name of a share", NAME.pattern, A_NAME),
    _PART,
    tuple,
    most=MOST_SHARES,
    examples=({"enterprise": "40%", "paid": 60},),
)
SECONDS: Final = duration(in_seconds=True)
_WAIT: Final = duration(zero=True, in_seconds=True)
_QUEUE: Final = whole(0, LONGEST_QUEUE)


def _read_limit(node: Node, table: Table, _context: object) -> int | tuple[Limit, ...]:
    """The text of limits; beside the numbers of a long form, a number."""
    beside = _BESIDE_LIMIT & table.entries.keys()
    if not beside:
        return read_notation(node)
    algorithm = getattr(table.entries.get("algorithm"), "text", "")
    if _is_text(node) and beside == {"algorithm"} and algorithm in IN_NOTATION:
        return read_notation(node, algorithm)
    number: int = QUOTA.read(node)
    return number


def _is_text(node: Node | None) -> bool:
    """True for a scalar that is not a plain number of digits."""
    return isinstance(node, Scalar) and not node.text.replace("_", "").isdigit()


def read_notation(node: Node, algorithm: str = "") -> tuple[Limit, ...]:
    """Limits in the notation, all of them of *algorithm*. Raises `FieldError`."""
    text = read_text(node, _A_LIMIT)
    if algorithm:
        text = ";".join(f"{part} {algorithm}" for part in text.split(";"))
    try:
        return _parsed(text)
    except NotationError as error:
        raise notation_error("a limit", error) from None


LIMIT_TEXT: Final[Schema] = {
    "title": "A limit as text",
    "type": "string",
    "maxLength": LONGEST_TEXT,
    "pattern": (
        r"^\s*([0-9][0-9_.]*\s*([Uu][Ss][Dd]\s*)?(/|[Pp][Ee][Rr])"
        r"|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd])"
    ),
    "examples": ["100/minute", "10/s burst 50", "5/minute sliding_window_log", "50 usd/day"],
}
"""The JSON Schema of limits in the notation."""

_LIMIT: Final = FieldType(
    _A_LIMIT, schema={"anyOf": [LIMIT_TEXT, QUOTA.json_schema()]}, read_in=_read_limit
)


@dataclass(frozen=True, kw_only=True)
class LimitFields:
    """The fields of the long form of a limit."""

    algorithm: Annotated[str | None, choice(tuple(FORMS))] = None
    """The algorithm of a limit, for its long form or beside a limit as text."""
    capacity: Annotated[int | None, QUOTA] = None
    """Units that are allowed at once after a rest."""
    burst: Annotated[int | None, QUOTA] = None
    """Units that are allowed at once after a rest."""
    refill_rate_per_sec: Annotated[int | float | None, PER_SECOND] = None
    """Units that come back in a second."""
    rate_per_sec: Annotated[int | float | None, PER_SECOND] = None
    """Units a second in the long run."""
    leak_rate_per_sec: Annotated[int | float | None, PER_SECOND] = None
    """Units that leave the bucket in a second."""
    window: Annotated[int | float | None, SECONDS] = None
    """The length of the window."""
    ttl: Annotated[int | float | None, SECONDS] = None
    """When a slot that is not returned is free again."""
    subwindows: Annotated[int | None, whole(1, 1_000)] = None
    """Number of parts in which a window is counted."""
    rate: Annotated[Fraction | None, RATE] = None
    """A rate such as 10/s; nothing else of the notation."""
    queue: Annotated[int | None, _QUEUE] = None
    """Number of requests that may wait."""
    max_wait: Annotated[int | float | None, _WAIT] = None
    """Longest wait; 0 for none."""
    shares: Annotated[Parts | None, SHARES] = None
    """Slots that parts of the callers are guaranteed: a percentage (rounded down, at least one), or
    a number."""
    lends: Annotated[bool | None, BOOLEAN] = None
    """Let all callers use guaranteed slots that lie idle; true by default."""
    limit: Annotated[int | tuple[Limit, ...] | None, _LIMIT] = None
    """A limit such as 100/minute; with the numbers of an algorithm, a number."""


LONG_FIELDS: Final = tuple(one.name for one in fields(LimitFields))
_BESIDE_LIMIT: Final = frozenset(LONG_FIELDS) - {"limit"}


def is_long(node: Table) -> bool:
    """True if *node* has fields of a long form besides `limit`."""
    return not _BESIDE_LIMIT.isdisjoint(node.entries)


def check_long_form(node: Table) -> Iterator[FieldError]:
    """Fields that the algorithm of a long form lacks, or does not have."""
    given = node.entries.get("algorithm")
    if given is None:
        message = f"missing; expected one of {', '.join(FORMS)}"
        yield FieldError(message, path=("algorithm",), instead_of=("algorithm",))
        return
    name = given.text if isinstance(given, Scalar) else ""
    form = FORMS.get(name)
    present = [one for one in LONG_FIELDS if one in node.entries]
    is_text = present == ["algorithm", "limit"] and _is_text(node.entries["limit"])
    if form is None or is_text:
        return
    for other in present:
        if other not in (*form.fields, "algorithm"):
            message = f"{name} has no {other}; it has {', '.join(form.fields)}"
            yield FieldError(message, path=(other,), is_stray=True)
    for need in form.needs:
        other = form.other.get(need, "")
        if other in present and need in present:
            message = f"{need} is given as well; expected one of the two"
            yield FieldError(message, path=(other,))
        elif need not in present and other not in present:
            message = f"missing; expected the {need} of a {name}"
            yield FieldError(message, path=(need,), instead_of=(need, other))


def long_limits(made: LimitFields) -> tuple[Limit, ...]:
    """The limits of a long form that `check_long_form` has passed. Raises `FieldError`."""
    if isinstance(made.limit, tuple):
        return made.limit
    form = FORMS[made.algorithm or ""]
    given = {name: getattr(made, name) for name in form.fields}
    numbers = [
        given[need] if given[need] is not None else given[form.other[need]] for need in form.needs
    ]
    options = {name: given[name] for name in form.may if given[name] is not None}
    try:
        return (form.make(*numbers, **options),)
    except LimitError as error:
        raise FieldError(str(error)) from None


def long_form_schemas() -> list[tuple[Schema, tuple[str, ...]]]:
    """The JSON Schema of each long form, and the fields that it may have."""
    text = {
        "title": "a text with its algorithm",
        "properties": {"limit": LIMIT_TEXT, "algorithm": {"enum": list(IN_NOTATION)}},
        "required": ["algorithm", "limit"],
    }
    found: list[tuple[Schema, tuple[str, ...]]] = []
    for name, form in FORMS.items():
        one: Schema = {
            "title": name,
            "properties": {"algorithm": {"const": name}, "limit": QUOTA.json_schema()},
            "required": ["algorithm", *(need for need in form.needs if need not in form.other)],
        }
        for either in form.other.items():
            one["oneOf"] = [{"required": [each]} for each in either]
        found.append((one, ("algorithm", *form.fields)))
    return [*found, (text, ("algorithm", "limit"))]


def _long_schema() -> Schema:
    forms = [{**one, "propertyNames": {"enum": list(names)}} for one, names in long_form_schemas()]
    return {"oneOf": forms}


@table(
    "a limit",
    shape=check_long_form,
    finish=lambda made, _node, _context: long_limits(made),
    schema=_long_schema,
)
@dataclass(frozen=True, kw_only=True)
class LongLimit(LimitFields):
    """A limit with its numbers."""


def _read_stack(node: Node) -> tuple[Limit, ...]:
    """One limit or a list of them, all of which apply."""
    if not isinstance(node, Listing):
        return _read_one(node)
    if not node.items:
        raise expected(node, f"{_A_LIMIT}, or a list of at least one")
    found = read_each(enumerate(node.items), _read_one)
    limits = tuple(limit for several in found for limit in several)
    if len(limits) > MAX_STACKED:
        raise FieldError(f"{len(limits)} limits for one caller; expected at most {MAX_STACKED}")
    return limits


def _read_one(node: Node) -> tuple[Limit, ...]:
    if not isinstance(node, Table):
        return read_notation(node)
    made: Any = read(LongLimit, node)  # the limits that `finish` makes of it
    limits: tuple[Limit, ...] = made
    return limits


def _limit_data(limit: Limit) -> object:
    """The notation; limits without one in the long form."""
    data: dict[str, Any] = {"algorithm": limit.algorithm}
    if isinstance(limit, Concurrency):
        data |= {"limit": limit.limit, "ttl": limit.ttl}
        data |= {"shares": dict(limit.shares)} if limit.shares else {}
        return data if limit.lends else {**data, "lends": False}
    if isinstance(limit, LeakyQueue):
        data |= {"rate": rate_text(limit.per_second), "queue": limit.queue}
        return data if limit.max_wait is None else {**data, "max_wait": limit.max_wait}
    return str(limit)


_UNITS: Final = re.compile(r"^[0-9]+|(?<= burst )[0-9]+")


def in_usd(limits: Any) -> Any:
    """The plain data of *limits* with amounts of units in the notation as dollars."""
    if isinstance(limits, dict):
        return {tier: in_usd(several) for tier, several in limits.items()}
    if isinstance(limits, list):
        return [in_usd(one) for one in limits]
    return _UNITS.sub(_usd, limits) if isinstance(limits, str) else limits


def _usd(units: re.Match[str]) -> str:
    return f"{Decimal(units[0]) / USD:f} usd"


_ONE: Final[Schema] = {"anyOf": [LIMIT_TEXT, reference(LongLimit)]}
_MANY: Final[Schema] = {"type": "array", "items": _ONE, "minItems": 1, "maxItems": MAX_STACKED}
_STACK: Final = FieldType(
    _A_LIMIT,
    _read_stack,
    {"anyOf": [_ONE, _MANY]},
    lambda limits: [_limit_data(limit) for limit in limits],
)
_TIERS: Final = entries("a limit for at least one tier", TIER, _STACK)


def _read_limits(node: Node) -> Limits:
    if isinstance(node, Table) and "algorithm" not in node.entries:
        found: Limits = _TIERS.read(node)
        return found
    return MappingProxyType({None: _read_stack(node)})


LIMITS: Final = FieldType(
    _A_LIMIT,
    _read_limits,
    {
        "anyOf": [_ONE, _MANY, _TIERS.json_schema() | {"not": {"required": ["algorithm"]}}],
        "examples": [["100/minute", "1000/hour"], {"free": "10/s", "paid": "100/s"}],
    },
    lambda limits: _STACK.write(limits[None]) if set(limits) == {None} else _TIERS.write(limits),
)
"""A list of limits, all of which apply, or limits by tier."""


def _finish_shape(made: Shape, node: Table, _context: object) -> LeakyQueue:
    try:
        return queue_of(plain_rate(made.rate), queue=made.queue, max_wait=made.max_wait)
    except LimitError as error:
        name = str(error).partition(" ")[0]
        raise FieldError(str(error), path=(name,) if name in node.entries else ()) from None


@table(
    "the delay of requests",
    finish=_finish_shape,
    schema={
        "anyOf": [{"required": ["queue"]}, {"required": ["max_wait"]}],
        "examples": [{"rate": "10/s", "queue": 100, "max_wait": "5s"}],
    },
)
@dataclass(frozen=True, slots=True)
class Shape:
    """Requests wait in a queue, in the order of arrival, instead of being denied."""

    rate: Annotated[Fraction, RATE]
    """The rate at which requests leave the queue."""
    queue: Annotated[int | None, _QUEUE] = None
    """Number of requests that may wait; as many as max_wait allows if not given."""
    max_wait: Annotated[int | float | None, _WAIT] = None
    """Longest wait, 0 for none; unlimited by default. One of queue and max_wait is required."""
