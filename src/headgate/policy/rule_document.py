"""A rule as it stands in a file, and the `Rule` that it makes.

Limits have several forms, all of which make the same values:

limit: 100/minute; 1000/hour                      a text
limits: [100/minute, 1000/hour]                   a list, stacked
limits: {free: 10/s, default: 100/s}              by tier
algorithm: token_bucket, capacity: 100, ...       the long form, also within the others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

from headgate.decision import OnFailure
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
)
from headgate.limits.model import LARGEST_QUOTA, MOST_SHARES
from headgate.limits.notation import LONGEST_TEXT
from headgate.limits.queues import LONGEST_QUEUE
from headgate.policy.diagnostics import MOST_PROBLEMS, shown
from headgate.policy.document import Listing, Scalar, Table
from headgate.policy.fields import (
    A_NAME,
    NAME,
    QUOTA,
    Boolean,
    Choice,
    CompoundFieldError,
    ContextField,
    Entries,
    FieldError,
    FieldType,
    Name,
    PerSecond,
    Rate,
    Schema,
    Seconds,
    Share,
    Whole,
    Word,
    entries_schema,
    expected,
    not_among,
    notation_flaw,
    read_key,
    read_number,
    read_word,
)
from headgate.policy.model import (
    BY_PRIORITY,
    OTHERS,
    FailureFields,
    Fair,
    KeyBy,
    Match,
    ReserveField,
    Rule,
    RuleOptions,
    present,
)
from headgate.policy.tables import ModelField, Short, read, table, to_data
from headgate.units import SECOND, exact_rate, plain_rate
from headgate.units import Rate as PlainRate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.policy.document import Node
    from headgate.policy.model import Identity

Limits = Mapping[str | None, tuple[Limit, ...]]
Parts = tuple[tuple[str, int | Fraction], ...]
"""Shares as they are written: slots, or a part of the limit."""

DEFAULT_TIER: Final = OTHERS
"""In `limits` by tier: callers of all other tiers, and of none."""

MOST_STACKED: Final = 16
"""Limits that a rule may have for one caller."""

USUAL_TTL: Final[int | float] = 60
"""Seconds after which a slot that is never returned is free, by default."""

WHOLE_FORMS: Final = ("limit", "limits", "algorithm", "shape", "concurrency", "fair")
"""The fields of which a rule has exactly one; the long form has others beside it."""

_A_LIMIT: Final = "a limit such as 100/minute, or a mapping with 'algorithm' and its numbers"
_parsed: Final = lru_cache(maxsize=512)(parse_limits)
"""Rules have many limits in common, and parsing is slow."""


def queue_of(
    rate: PlainRate, *, queue: int | None = None, max_wait: int | float | None = None
) -> LeakyQueue:
    """A leaky queue; without *queue*, as many requests wait as *max_wait* allows.

    Raises `LimitError`.
    """
    if queue is not None:
        return LeakyQueue(rate, queue, max_wait)
    if max_wait is None:
        raise LimitError("how many may wait is not said; expected queue, max_wait or both")
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


@dataclass(frozen=True)
class _Shares(Entries):
    """The slots that parts of the callers are guaranteed, or their share of the limit."""

    what: str = "shares of the slots"
    part = "a share such as 40%, or a number of slots"

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        name = key.text
        flaws: list[FieldError] = []
        if not NAME.fullmatch(name):
            message = f"{shown(name)} cannot have a share; expected {A_NAME}"
            flaws.append(FieldError(message, at_key=True))
        try:
            found[name] = self._part(value)
        except FieldError as flaw:
            flaws.append(flaw)
        if flaws:
            raise CompoundFieldError(flaws)

    def _part(self, node: Node) -> int | Fraction:
        if isinstance(node, Scalar) and "%" in node.text:
            return Share().read(node)
        found = read_number(node, self.part)
        if not isinstance(found, int) or not 1 <= found <= LARGEST_QUOTA:
            raise expected(node, f"{self.part} from 1")
        return found

    def made(self, found: dict[Any, Any]) -> Parts:
        if len(found) > MOST_SHARES:
            raise FieldError(f"{len(found)} shares; expected at most {MOST_SHARES}")
        return tuple(found.items())

    def schema(self) -> Schema:
        return entries_schema(
            {"anyOf": [Share().schema(), QUOTA.schema()]},
            maxProperties=MOST_SHARES,
            propertyNames=Name().schema(),
            examples=[{"enterprise": "40%", "paid": 60}],
        )


def _is_long(entries: Mapping[str, object]) -> bool:
    return not _BESIDE_LIMIT.isdisjoint(entries)


class _LimitValue(ContextField):
    """The text of limits; beside the numbers of a long form, a number."""

    what = _A_LIMIT

    def read_in(self, node: Node, info: Any) -> int | tuple[Limit, ...]:
        given = info.data  # fields with errors are missing
        beside = [name for name in _BESIDE_LIMIT if given.get(name, node) is not None]
        if not beside:
            return read_notation(node)
        algorithm = given.get("algorithm")
        if _is_text(node) and beside == ["algorithm"] and algorithm in IN_NOTATION:
            return read_notation(node, algorithm)
        return QUOTA.read(node)

    def schema(self) -> Schema:
        return {"anyOf": [limit_text_schema(), QUOTA.schema()]}


def _is_text(node: Node | None) -> bool:
    """True for a scalar that is not a plain number of digits."""
    return isinstance(node, Scalar) and not node.text.replace("_", "").isdigit()


def read_notation(node: Node, algorithm: str = "") -> tuple[Limit, ...]:
    """Limits in the notation, all of them of *algorithm*. Raises `FieldError`."""
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        raise expected(node, _A_LIMIT)
    text = node.text
    if algorithm:
        text = ";".join(f"{part} {algorithm}" for part in text.split(";"))
    try:
        return _parsed(text)
    except NotationError as error:
        raise notation_flaw("a limit", error) from None


def limit_text_schema() -> Schema:
    """The JSON Schema of limits in the notation."""
    return {
        "title": "A limit as text",
        "type": "string",
        "maxLength": LONGEST_TEXT,
        "pattern": r"^\s*([0-9][0-9_]*\s*(/|[Pp][Ee][Rr])|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd])",
        "examples": ["100/minute", "10/s burst 50", "5/minute sliding_window_log"],
    }


@dataclass(frozen=True, kw_only=True)
class LimitFields:
    """The fields of the long form of a limit."""

    algorithm: Annotated[str | None, Choice(tuple(FORMS))] = None
    """The algorithm of a limit, for its long form or beside a limit as text."""
    capacity: Annotated[int | None, QUOTA] = None
    """Units that are allowed at once after a rest."""
    burst: Annotated[int | None, QUOTA] = None
    """Units that are allowed at once after a rest."""
    refill_rate_per_sec: Annotated[int | float | None, PerSecond()] = None
    """Units that come back in a second."""
    rate_per_sec: Annotated[int | float | None, PerSecond()] = None
    """Units a second in the long run."""
    leak_rate_per_sec: Annotated[int | float | None, PerSecond()] = None
    """Units that leave the bucket in a second."""
    window: Annotated[int | float | None, Seconds()] = None
    """The length of the window."""
    ttl: Annotated[int | float | None, Seconds()] = None
    """When a slot that is not returned is free."""
    subwindows: Annotated[int | None, Whole(1, 1_000)] = None
    """In how many parts a window is counted."""
    rate: Annotated[Fraction | None, Rate()] = None
    """A rate such as 10/s; nothing else of the notation."""
    queue: Annotated[int | None, Whole(0, LONGEST_QUEUE)] = None
    """Number of requests that may wait."""
    max_wait: Annotated[int | float | None, Seconds(zero=True)] = None
    """Longest wait; 0 for none."""
    shares: Annotated[Parts | None, _Shares()] = None
    """Slots that parts of the callers are guaranteed: a number, or a percentage."""
    lends: Annotated[bool | None, Boolean()] = None
    """Let all callers use guaranteed slots that lie idle; true by default."""
    limit: Annotated[int | tuple[Limit, ...] | None, _LimitValue()] = None
    """A limit such as 100/minute; with the numbers of an algorithm, a number."""


LONG_FIELDS: Final = tuple(one.name for one in fields(LimitFields))
_BESIDE_LIMIT: Final = frozenset(LONG_FIELDS) - {"limit"}
_OPTIONS: Final = tuple(one.name for one in fields(RuleOptions))


def _long_shape(node: Table) -> Iterator[FieldError]:
    """Fields that the algorithm of a long form lacks, or does not have."""
    said = node.entries.get("algorithm")
    if said is None:
        message = f"missing; expected one of {', '.join(FORMS)}"
        yield FieldError(message, path=("algorithm",), instead_of=("algorithm",))
        return
    name = said.text if isinstance(said, Scalar) else ""
    form = FORMS.get(name)
    if form is None or _is_text_limit(node):
        return
    for other in LONG_FIELDS:
        if other in node.entries and other not in (*form.fields, "algorithm"):
            message = f"{name} has no {other}; it has {', '.join(form.fields)}"
            yield FieldError(message, path=(other,), is_stray=True)
    for need in form.needs:
        other = form.other.get(need, "")
        if other in node.entries and need in node.entries:
            yield FieldError(f"{need} says it already; expected one of them", path=(other,))
        elif need not in node.entries and other not in node.entries:
            message = f"missing; expected the {need} of a {name}"
            yield FieldError(message, path=(need,), instead_of=(need, other))


def _is_text_limit(node: Table) -> bool:
    """True for a `limit` as text with an `algorithm` beside it, and nothing else of a long form."""
    is_alone = present(node, *LONG_FIELDS) == ["algorithm", "limit"]
    return is_alone and _is_text(node.entries["limit"])


def _long_limits(made: LimitFields) -> tuple[Limit, ...]:
    """The limits of a long form without flaws in its shape. Raises `FieldError`."""
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


def _finish_long(made: LongLimit, _node: Table, _context: object) -> tuple[Limit, ...]:
    return _long_limits(made)


def _long_schema() -> Schema:
    text = {
        "title": "a text with its algorithm",
        "properties": {"limit": limit_text_schema(), "algorithm": {"enum": list(IN_NOTATION)}},
        "required": ["algorithm", "limit"],
        **_nothing_else("algorithm", "limit"),
    }
    return {"oneOf": [*(_form_schema(name) for name in FORMS), text]}


def _nothing_else(*names: str) -> Schema:
    return {"propertyNames": {"enum": list(names)}}


def _form_schema(name: str) -> Schema:
    """The fields of one algorithm, and no others of limits."""
    form = FORMS[name]
    found: Schema = {
        "title": name,
        "properties": {"algorithm": {"const": name}, "limit": QUOTA.schema()},
        "required": ["algorithm", *(need for need in form.needs if need not in form.other)],
        **_nothing_else("algorithm", *form.fields),
    }
    if form.other:
        both = form.other.items()
        found["allOf"] = [{"oneOf": [{"required": [each]} for each in one]} for one in both]
    return found


@table("a limit", shape=_long_shape, finish=_finish_long, schema=_long_schema)
@dataclass(frozen=True, kw_only=True)
class LongLimit(LimitFields):
    """A limit with its numbers."""


class LimitsField(FieldType):
    """A list of limits, all of which apply, or limits by tier."""

    what = _A_LIMIT

    def read(self, node: Node) -> Limits:
        if not isinstance(node, Table) or "algorithm" in node.entries:
            return MappingProxyType({None: _read_stack(node)})
        if not node.entries:
            raise expected(node, "a limit for at least one tier")
        found: Limits = _Tiers().read(node)
        return found

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        inner = handler.generate_schema(LongLimit)
        return core_schema.no_info_wrap_validator_function(lambda node, _: self.read(node), inner)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Schema:
        one = {"anyOf": [limit_text_schema(), handler(core["schema"])]}
        many = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_STACKED}
        by_tier = entries_schema(
            {"anyOf": [one, many]},
            propertyNames=Word().schema(),
            **{"not": {"required": ["algorithm"]}},
        )
        examples = [["100/minute", "1000/hour"], {"free": "10/s", "paid": "100/s"}]
        return {"anyOf": [one, many, by_tier], "examples": examples}

    def write(self, value: Limits) -> object:
        if set(value) == {None}:
            return [_limit_data(limit) for limit in value[None]]
        return {
            DEFAULT_TIER if tier is None else tier: [_limit_data(limit) for limit in limits]
            for tier, limits in value.items()
        }


@dataclass(frozen=True)
class _Tiers(Entries):
    """Limits by tier."""

    what: str = "limits"

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        name = read_key(Word("the name of a tier"), key)
        found[None if name == DEFAULT_TIER else name] = _read_stack(value)

    def made(self, found: dict[Any, Any]) -> Limits:
        return MappingProxyType(found)


def _read_stack(node: Node) -> tuple[Limit, ...]:
    """One limit or a list of them. Raises `FieldError` or `CompoundFieldError`."""
    if not isinstance(node, Listing):
        return _read_one(node)
    if not node.items:
        raise expected(node, f"{_A_LIMIT}, or a list of at least one")
    found: list[Limit] = []
    flaws: list[FieldError] = []
    for number, item in enumerate(node.items):
        try:
            found += _read_one(item)
        except FieldError as flaw:
            flaws.append(flaw.under(number))
        except CompoundFieldError as several:
            flaws += [flaw.under(number) for flaw in several.flaws]
        if len(flaws) >= MOST_PROBLEMS:
            break
    if flaws:
        raise CompoundFieldError(flaws)
    if len(found) > MOST_STACKED:
        raise FieldError(f"{len(found)} limits for one caller; expected at most {MOST_STACKED}")
    return tuple(found)


def _read_one(node: Node) -> tuple[Limit, ...]:
    if not isinstance(node, Table):
        return read_notation(node)
    made: Any = read(LongLimit, node)  # what its form makes of it
    limits: tuple[Limit, ...] = made
    return limits


def _limit_data(limit: Limit) -> object:
    """The notation; limits without one in the long form."""
    if isinstance(limit, Concurrency):
        data: dict[str, Any] = {"algorithm": limit.algorithm, "limit": limit.limit}
        data["ttl"] = limit.ttl
        data |= {"shares": dict(limit.shares)} if limit.shares else {}
        return data if limit.lends else {**data, "lends": False}
    if isinstance(limit, LeakyQueue):
        data = {"algorithm": limit.algorithm, "rate": Rate().write(limit.per_second)}
        data["queue"] = limit.queue
        return data if limit.max_wait is None else {**data, "max_wait": limit.max_wait}
    return str(limit)


def _finish_shape(made: Shape, node: Table, _context: object) -> LeakyQueue:
    try:
        return queue_of(plain_rate(made.rate), queue=made.queue, max_wait=made.max_wait)
    except LimitError as error:
        name = str(error).partition(" ")[0]
        raise FieldError(str(error), path=(name,) if name in node.entries else ()) from None


@table(
    "how requests are delayed",
    finish=_finish_shape,
    schema={
        "anyOf": [{"required": ["queue"]}, {"required": ["max_wait"]}],
        "examples": [{"rate": "10/s", "queue": 100, "max_wait": "5s"}],
    },
)
@dataclass(frozen=True, slots=True)
class Shape:
    """Requests wait in a queue, in the order of arrival, instead of being denied."""

    rate: Annotated[Fraction, Rate()]
    """The rate at which requests leave the queue."""
    queue: Annotated[int | None, Whole(0, LONGEST_QUEUE)] = None
    """Number of requests that may wait."""
    max_wait: Annotated[int | float | None, Seconds(zero=True)] = None
    """Longest wait; 0 for none."""


class ShareBy(ContextField):
    """The basis of a caller's share: the class of a request, or a name in the identity."""

    what = "one of priority and the names in identity"

    def read_in(self, node: Node, info: Any) -> str:
        identity: Identity = info.context
        known = (BY_PRIORITY, *identity.sources)
        found = read_word(node, f"one of {', '.join(known)}")
        if found not in known:
            message = f"nothing is known of callers by the name of {shown(found)}"
            raise not_among(found, known, message)
        if found != BY_PRIORITY and identity.sources[found].secret:
            message = f"{shown(found)} is a secret, and shares stand in the store by their names"
            hint = f"expected a name in identity that looks {shown(found)} up"
            raise FieldError(message, hint=hint)
        return found

    def schema(self) -> Schema:
        return {**Word().schema(), "examples": ["tier", "priority"]}


@dataclass(frozen=True, slots=True)
class Slots:
    """A concurrency limit, and the options of the rule that has it."""

    limit: Concurrency
    reserve: Mapping[Priority, Fraction]
    share_by: str | None


def _finish_slots(made: ConcurrencyFields, node: Table, _context: object) -> Slots:
    try:
        limit = slots_of(made.limit, made.ttl, shares=made.shares, lends=made.lends)
    except LimitError as error:
        path = ("shares",) if "shares" in node.entries else ()
        raise FieldError(str(error), path=path) from None
    return Slots(limit, made.reserve, made.share_by)


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
    ttl: Annotated[int | float, Seconds()] = USUAL_TTL
    """When a slot that is not returned is free."""
    share_by: Annotated[str | None, ShareBy()] = None
    """The basis of a caller's share: priority, or a name in identity such as tier."""
    shares: Annotated[Parts, _Shares()] = ()
    """Slots that parts of the callers are guaranteed: a number, or a percentage."""
    lends: Annotated[bool, Boolean()] = True
    """Let all callers use guaranteed slots that lie idle."""
    reserve: Annotated[Mapping[Priority, Fraction], ReserveField()] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Slots that are kept for requests of a class, and more important ones."""


@table("how pressure lowers the limits", schema={"examples": [{"floor": "20%"}]})
@dataclass(frozen=True, slots=True)
class AdaptiveFields:
    """Bound below which pressure does not lower the limits."""

    floor: Annotated[Fraction, Share(what="a share of the limits such as 20%")]
    """The share of the limits that is never taken away."""


def _forms(node: Table) -> list[str]:
    """The forms that are given; `limit` is a number of the long form if that is."""
    given = present(node, "limits", "shape", "concurrency", "fair")
    if _is_long(node.entries):
        return [*given, "algorithm"]
    return ["limit", *given] if "limit" in node.entries else given


def _rule_shape(node: Table) -> Iterator[FieldError]:
    given = _forms(node)
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        hint = f"expected exactly one of {', '.join(WHOLE_FORMS[:-1])} or {WHOLE_FORMS[-1]}"
        message = f"a rule has limits in one form; {found}"
        meant = () if given else (*WHOLE_FORMS, *LONG_FIELDS)
        yield FieldError(message, hint=hint, path=("limit",), at_parent=True, instead_of=meant)
        return
    if given == ["algorithm"]:
        yield from _long_shape(node)
    reasons = {
        "fair": "a rule with fair has its own reserve, and weights for shares",
        "concurrency": "with concurrency it stands in there",
    }
    if given[0] in reasons:
        for name in present(node, "reserve", "share_by"):
            hint = f"write it under {given[0]}, or leave it out"
            yield FieldError(reasons[given[0]], hint=hint, path=(name,))


def _finish_rule(made: RuleDocument, _node: Table, _context: object) -> Rule:
    slots, failing = made.concurrency, made.on_store_failure
    options = {name: getattr(made, name) for name in _OPTIONS}
    return Rule(
        made.id,
        made.match,
        made.key_by,
        _limits_of(made),
        **options,
        on_store_failure=failing.mode,
        fallback_share=failing.share,
        max_fail_open_ns=failing.open_ns,
        after_fail_open=failing.then,
        fair=made.fair,
        reserve=made.reserve if slots is None else slots.reserve,
        share_by=made.share_by if slots is None else slots.share_by,
        floor=None if made.adaptive is None else made.adaptive.floor,
    )


def _limits_of(made: RuleDocument) -> Limits:
    if made.fair is not None:
        return MappingProxyType({})
    if made.shape is not None:
        return MappingProxyType({None: (made.shape,)})
    if made.concurrency is not None:
        return MappingProxyType({None: (made.concurrency.limit,)})
    if made.limits is not None:
        return made.limits
    return MappingProxyType({None: _long_limits(made)})


def _rule_schema() -> Schema:
    alone = {"reserve": False, "share_by": False}
    one: list[tuple[str, str, Schema]] = [
        ("limit as text", "limit", {"limit": limit_text_schema()}),
        ("limits", "limits", {}),
        ("shape", "shape", {}),
        ("concurrency", "concurrency", alone),
        ("fair", "fair", alone),
    ]
    forms = [
        {"title": title, "properties": own | _without(name), "required": [name]}
        for title, name, own in one
    ]
    for form in _long_schema()["oneOf"]:
        allowed = form.pop("propertyNames")["enum"]
        form["properties"] |= _without(*allowed)
        forms.append(form)
    candidate = {"required": ["mode"], "properties": {"mode": {"enum": ["shadow", "off", False]}}}
    return {
        "oneOf": forms,
        "dependentSchemas": {"candidate_of": candidate},
        "examples": [{"id": "login", "key_by": "ip", "limit": "5/minute"}],
    }


def _without(*kept: str) -> Schema:
    """No field of any form of limits but those *kept*."""
    return dict.fromkeys((one for one in (*WHOLE_FORMS, *LONG_FIELDS) if one not in kept), False)


class _Failure(ModelField):
    """An `OnFailure`."""

    def __init__(self) -> None:
        super().__init__(FailureFields)

    def write(self, value: OnFailure) -> object:
        data = to_data(FailureFields.of(value))
        if value.open_ns is not None:
            data["then"] = value.then
        return data["mode"] if set(data) == {"mode"} else data


_ANY: Final = Match()
_OPEN: Final = OnFailure()
_ORDER: Final = (
    *("id", "description", "match", "key_by", "limit", "limits", *LONG_FIELDS),
    *("shape", "concurrency", "fair", "share_by", "reserve", "adaptive", "cost", "mode"),
    *("headers", "candidate_of", "on_store_failure", "accuracy", "idempotency", "across_regions"),
)
"""The fields in the order of messages, data and the reference."""


@table("a rule", shape=_rule_shape, finish=_finish_rule, schema=_rule_schema, order=_ORDER)
@dataclass(frozen=True, kw_only=True)
class RuleDocument(RuleOptions, LimitFields):
    """A rule: when this matches, count by that key against these limits."""

    id: Annotated[str, Name()]
    """The name of the rule, unique in the policy."""
    match: Match = _ANY
    """The requests that the rule is for; all by default."""
    key_by: Annotated[tuple[str, ...], KeyBy()]
    """The parts of the key of a counter."""
    limits: Annotated[Limits | None, LimitsField()] = None
    """A list of limits, all of which apply, or limits by tier."""
    shape: Annotated[LeakyQueue | None, ModelField(Shape)] = None
    """Requests wait in a queue, in the order of arrival, instead of being denied."""
    concurrency: Annotated[Slots | None, ModelField(ConcurrencyFields), Short("limit")] = None
    """Number of requests at the same time."""
    fair: Fair | None = None
    """Requests queue in each process and take turns, by weight of the callers."""
    reserve: Annotated[Mapping[Priority, Fraction], ReserveField()] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Slots that are kept for requests of a class, and more important ones."""
    share_by: Annotated[str | None, ShareBy()] = None
    """The basis of a caller's share: priority, or a name in identity such as tier."""
    adaptive: AdaptiveFields | None = None
    """Bound below which pressure does not lower the limits."""
    on_store_failure: Annotated[OnFailure, _Failure(), Short("mode")] = _OPEN
    """The failure policy while the store cannot decide."""


def rule_to_data(rule: Rule) -> dict[str, Any]:
    """*rule* as plain data without its id; fields with their defaults are left out."""
    document = RuleDocument(
        id=rule.id,
        match=rule.match,
        key_by=rule.key_by,
        limits=rule.limits if rule.fair is None else None,
        fair=rule.fair,
        reserve=rule.reserve,
        share_by=rule.share_by,
        adaptive=None if rule.floor is None else AdaptiveFields(rule.floor),
        on_store_failure=rule.on_failure,
        **{name: getattr(rule, name) for name in _OPTIONS},
    )
    data = to_data(document)
    del data["id"]
    return data
