"""Types of single values: each reads a node, has a JSON Schema and writes back.

A field of a model names its type with `Annotated[int, whole(1, 32)]`. A value that does not fit
raises `InvalidValueError`. All types are strict: no text stands for a number, and no word for a
boolean.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import LimitError, NotationError, nearest
from headgate.limits import FixedWindow, parse_limit, parse_rate
from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.document import Listing, Scalar, Table, described
from headgate.policy.problems import MAX_PROBLEMS, did_you_mean, expected_one_of, quoted
from headgate.units import MILLISECOND, SECOND, plain_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headgate.policy.document import Node, Path, Step
    from headgate.policy.problems import Severity

Schema = dict[str, Any]
Network = IPv4Network | IPv6Network

MAX_WORD: Final = 1_000
"""Characters of a text that is compared with parts of requests."""

MAX_KEY: Final = 4_096
"""Characters of the key of a counter."""

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
A_NAME: Final = "1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
A_DURATION: Final = "seconds, or a time such as 30s or '1 minute'"
AN_INSTANT: Final = "a date and time with its offset, such as 2027-01-31T12:00:00Z"

_MAX_NUMBER: Final = 100
_NUMBER: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
)
_ZEROS: Final = re.compile(r"[+-]?0[0-9_]+")
_PERCENTAGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_DURATION: Final = re.compile(r"(?:[0-9][0-9_.]* *)?[A-Za-z]+")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_CONTROL_IN_PROSE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}"  # noqa: S105 - a token of HTTP
_A_TOKEN: Final = "letters, digits and -_.!#$%&'*+^`|~, at most 200"  # noqa: S105
_LABEL: Final = r"[^\W_](?:[\w-]*[^\W_])?|_[\w-]+"
_HOST: Final = re.compile(
    rf"\*|(?:\*\.)?(?:{_LABEL})(?:\.(?:{_LABEL}))*\.?|\[[0-9a-f:.]+\]|[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*"
)
_MAX_HOST: Final = 253
_MAX_SEGMENTS: Final = 64
_INSTANT: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_A_SECOND: Final = timedelta(seconds=1)
_LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _A_SECOND


class InvalidValueError(ValueError):
    """A value that does not fit its type: one or more *errors*."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        super().__init__()
        self.errors = list(errors)


class FieldError(InvalidValueError):
    """One problem with a value: what is wrong, what would be right, and where.

    *path* leads from the value to the part that is wrong; with *at_key* its key is, with
    *at_parent* it is missing from its mapping. *offset* is the number of characters into a text.
    *instead_of* are the missing fields that a similar unknown field explains. *is_stray*: a field
    that must not be there, whatever its value.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        path: Path = (),
        at_key: bool = False,
        at_parent: bool = False,
        offset: int | None = None,
        severity: Severity = "error",
        instead_of: Sequence[str] = (),
        is_stray: bool = False,
    ) -> None:
        super().__init__([self])
        self.message = message
        self.hint = hint
        self.path = tuple(path)
        self.at_key = at_key
        self.at_parent = at_parent
        self.offset = offset
        self.severity = severity
        self.instead_of = frozenset(instead_of)
        self.is_stray = is_stray

    def __str__(self) -> str:
        return self.message

    def under(self, *steps: Step) -> FieldError:
        """The same error with a path from further up."""
        self.path = (*steps, *self.path)
        return self


def expected(node: Node, what: str, *, hint: str = "") -> FieldError:
    """The error of a *node* that is not *what* was expected."""
    return FieldError(f"found {described(node)}, expected {what}", hint=hint)


def not_among(word: str, known: Iterable[str], message: str) -> FieldError:
    """The error of a *word* that is none of the *known* ones."""
    words = tuple(known)
    near = nearest(word, words)
    return FieldError(message, hint=expected_one_of(words) if near is None else did_you_mean(near))


def warning(message: str, *path: str | int, hint: str = "") -> FieldError:
    """A problem that does not make a policy invalid."""
    return FieldError(message, hint=hint, path=path, severity="warning")


def read_each(nodes: Iterable[tuple[Step, Any]], read: Callable[[Any], Any]) -> list[Any]:
    """The value of each of *nodes*, given with its step. Raises `InvalidValueError` of all."""
    found: list[Any] = []
    errors: list[FieldError] = []
    for step, node in nodes:
        try:
            found.append(read(node))
        except InvalidValueError as error:
            errors += [each.under(step) for each in error.errors]
            if len(errors) >= MAX_PROBLEMS:
                break
    if errors:
        raise InvalidValueError(errors)
    return found


def _same(value: Any) -> object:
    return value


@dataclass(frozen=True, eq=False)
class FieldType:
    """A type of values.

    *what* names a value of it in messages. *read* makes the value of a node, or raises
    `InvalidValueError`; a type that depends on other fields or on the context of the loading has
    *read_in* instead, which takes the mapping and the context too. *schema* is its JSON Schema,
    *write* makes plain data of a value. *words* are the values of a choice, *item* is the type of
    the values of a list; *metavar* is the form of a value in the help of settings.
    """

    what: str
    read: Callable[[Node], Any] = _same
    schema: Schema | Callable[[], Schema] = field(default_factory=dict)
    write: Callable[[Any], object] = _same
    read_in: Callable[[Node, Table, Any], Any] | None = None
    words: tuple[str, ...] = ()
    item: FieldType | None = None
    metavar: str = ""

    def json_schema(self) -> Schema:
        """The JSON Schema of a value."""
        return self.schema() if callable(self.schema) else self.schema


def read_text(node: Node, what: str = "text") -> str:
    """A text as written, in quotes or not; not a plain true, false or null."""
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        is_word = isinstance(node, Scalar) and not node.is_null
        raise expected(node, what, hint="put it in quotes to mean the word" if is_word else "")
    return node.text


def read_word(node: Node, what: str = "text", longest: int = MAX_WORD) -> str:
    """A text of one line, not empty and not too long."""
    found = read_text(node, what)
    if not found.strip():
        raise FieldError(f"found an empty text, expected {what}")
    if len(found) > longest:
        raise FieldError(f"a text of {len(found)} characters; expected at most {longest}")
    return _without_control(found, _CONTROL)


def _without_control(found: str, forbidden: re.Pattern[str]) -> str:
    if control := forbidden.search(found):
        raise FieldError(f"the character U+{ord(control[0]):04X} may not be in it")
    return found


def number_in(text: str) -> int | float | None:
    """The number in *text*, in decimal: `100`, `1_000`, `1.67`, `1e3`. None if it is none."""
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        return None
    digits = text.replace("_", "")
    return int(digits) if digits.lstrip("+-").isdigit() else float(digits)


def read_number(node: Node, what: str = "a number") -> int | float:
    """A number without quotes."""
    hint = ""
    if isinstance(node, Scalar):
        text = node.text
        found = number_in(text)
        if node.is_plain and len(text) <= _MAX_NUMBER:
            if found is not None:
                node.number = int(found) if float(found).is_integer() else found
                return node.number
            if _ZEROS.fullmatch(text):
                message = f"found {text}, which some YAML parsers read as octal"
                right = text.lstrip("+-0").replace("_", "") or "0"
                raise FieldError(message, hint=f"write {right}")
        elif not node.is_plain and found is not None:
            hint = "write it without quotes"
    raise expected(node, what, hint=hint)


def read_duration(node: Node) -> int:
    """A time in nanoseconds: seconds as a number, or with a unit as in the notation."""
    if isinstance(node, Scalar) and node.boolean is None and _DURATION.fullmatch(node.text):
        try:
            return parse_limit(f"1/{node.text} fixed_window").period_ns
        except NotationError as error:
            message = f"{quoted(node.text)} is not a time: {error.problem}"
            raise FieldError(message, hint=f"expected {' or '.join(error.expected)}") from None
    amount = read_number(node, A_DURATION)
    try:
        return FixedWindow(1, amount).window_ns
    except LimitError:
        message = f"found {amount} seconds; expected from a microsecond to a hundred years"
        raise FieldError(message) from None


def notation_error(kind: str, error: NotationError) -> FieldError:
    """The error of a text that is not *kind* in the notation of limits."""
    message = f"not {kind}, at character {error.position + 1}: {error.problem}"
    return FieldError(message, hint=error.wanted, offset=error.position)


def word(
    what: str = "text",
    pattern: str = "",
    rule: str = "",
    convert: Callable[[str], Any] = str,
    *,
    prefix: str = r"\S",
    longest: int = MAX_WORD,
    may_be_number: bool = True,
    examples: Sequence[str] = (),
    write: Callable[[Any], object] = str,
) -> FieldType:
    """A text of one line, not empty, that *convert* makes the value of.

    *pattern* must match all of it; *rule* describes the pattern. *prefix* is what the JSON Schema
    checks where *convert* checks the rest, *may_be_number* if it accepts numbers.
    """

    def read(node: Node) -> Any:
        found = read_word(node, what, longest)
        if pattern and not re.fullmatch(pattern, found):
            raise FieldError(f"{quoted(found)} is not {what}; expected {rule}")
        return convert(found)

    schema = {
        "type": ["string", "number"] if may_be_number else "string",
        "minLength": 1,
        "maxLength": longest,
        "pattern": f"^{pattern}$" if pattern else prefix,
        **_examples(examples),
    }
    return FieldType(what, read, schema, write)


def _examples(examples: Sequence[Any]) -> Schema:
    return {"examples": list(examples)} if examples else {}


def checked_pattern(found: str) -> str:
    """*found* if it is a pattern of paths. Raises `FieldError`."""
    if not found.startswith("/"):
        near = f"/{found}" if found[:1] not in "*?#" else f"/{found.lstrip('/')}"
        raise FieldError(f"{quoted(found)} does not begin with '/'", hint=did_you_mean(near))
    if any(letter in found for letter in "?# "):
        hint = "leave out the query, the fragment and all spaces"
        raise FieldError(f"{quoted(found)} is not the pattern of a path", hint=hint)
    segments = found.split("/")
    if len(segments) > _MAX_SEGMENTS:
        raise FieldError(f"{quoted(found)} has more than {_MAX_SEGMENTS} segments")
    for segment in segments:
        if "*" in segment and segment not in ("*", "**"):
            message = f"{quoted(found)} has a wildcard beside text in {quoted(segment)}"
            raise FieldError(message, hint="a wildcard is a whole segment: /a/*/b, /a/**")
    return found


def _checked_host(found: str) -> str:
    host = found.lower()
    if not _HOST.fullmatch(host) or len(host) > _MAX_HOST:
        right = "expected a name such as api.example.com or *.example.com, without a port"
        raise FieldError(f"{quoted(found)} is not a host; {right}")
    return host


def _checked_network(found: str) -> Network:
    try:
        return ip_network(found)
    except ValueError:
        hint = "expected one such as 10.0.0.0/8 or 2001:db8::1"
    with suppress(ValueError):
        hint = did_you_mean(str(ip_network(found, strict=False)))
    raise FieldError(f"{quoted(found)} is not an address or a network", hint=hint)


WORD: Final = word()
RULE_ID: Final = word("an id such as per-client", NAME.pattern, A_NAME)
HEADER: Final = word("the name of a header", _TOKEN, _A_TOKEN, str.lower)
COOKIE: Final = word("the name of a cookie", _TOKEN, _A_TOKEN)
METHOD: Final = word("a method such as POST", _TOKEN, _A_TOKEN, str.upper)
HOST: Final = word("a host such as api.example.com or *.example.com", convert=_checked_host)
NETWORK: Final = word(
    "an address or a network such as 10.0.0.0/8",
    convert=_checked_network,
    may_be_number=False,
    examples=("10.0.0.0/8", "2001:db8::1"),
)
PATTERN: Final = word(
    "a path that begins with '/', with * for one segment and ** for any number",
    convert=checked_pattern,
    prefix="^/",
    may_be_number=False,
    examples=("/login", "/api/v1/*", "/api/**"),
)
MODEL: Final = word(
    "the name of a model such as gpt-4o, or gpt-* for all that begin so",
    convert=str.lower,
    examples=("gpt-4o", "claude-*"),
)
COUNTER_KEY: Final = word(
    "the key of a counter such as ip=203.0.113.7",
    rf"[!-~]{{1,{MAX_KEY}}}",
    f"1 to {MAX_KEY} printable characters of ASCII, as explain shows it",
    longest=MAX_KEY,
)


def _read_prose(node: Node) -> str:
    return _without_control(read_text(node), _CONTROL_IN_PROSE)


PROSE: Final = FieldType("text", _read_prose, {"type": ["string", "number"]})
"""A text for people, of any number of lines."""


def _read_boolean(node: Node) -> bool:
    value = node.boolean if isinstance(node, Scalar) else None
    if value is None:
        raise expected(node, "true or false")
    return value


def _read_true(node: Node) -> bool:
    if not _read_boolean(node):
        raise FieldError("found false, expected true", hint="leave it out instead")
    return True


BOOLEAN: Final = FieldType("true or false", _read_boolean, {"type": "boolean"}, metavar="BOOL")
"""Other words that YAML 1.1 took for booleans are errors."""

ONLY_TRUE: Final = FieldType("true or false", _read_true, {"const": True})


def choice(words: tuple[str, ...], switch: Mapping[bool, str] = MappingProxyType({})) -> FieldType:
    """One of *words*; plain booleans stand for a word of *switch*."""
    what = f"one of {', '.join(words)}"

    def read(node: Node) -> str:
        if not isinstance(node, Scalar) or node.is_null:
            raise expected(node, what)
        value = node.boolean
        if value is None:
            if node.text in words:
                return node.text
            raise not_among(node.text, words, f"found {quoted(node.text)}")
        if value not in switch:
            raise expected(node, what)
        return switch[value]

    return FieldType(what, read, {"enum": [*words, *switch]}, words=words)


def whole(least: int, most: int) -> FieldType:
    """A whole number from *least* to *most*."""
    what = f"a whole number from {least} to {most}"

    def read(node: Node) -> int:
        found = read_number(node, what)
        if not isinstance(found, int) or not least <= found <= most:
            raise expected(node, what)
        return found

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return FieldType(what, read, schema, metavar="N")


QUOTA: Final = whole(1, LARGEST_QUOTA)


def _read_money(node: Node) -> Decimal:
    if read_number(node, MONEY.what) < 0 or not isinstance(node, Scalar):
        raise expected(node, MONEY.what)
    return Decimal(node.text.replace("_", ""))


MONEY: Final = FieldType(
    "an amount in dollars, such as 2.50",
    _read_money,
    {"type": "number", "minimum": 0},
    lambda amount: int(amount) if amount == int(amount) else float(amount),
)


def number(what: str, is_valid: Callable[[int | float], bool], **schema: Any) -> FieldType:
    """A number that *is_valid*."""

    def read(node: Node) -> int | float:
        found = read_number(node, what)
        if not is_valid(found):
            raise expected(node, what)
        return found

    return FieldType(what, read, schema)


_ABOVE_ZERO: Final[Schema] = {"type": "number", "exclusiveMinimum": 0}
PER_SECOND: Final = number(
    "a number of units per second, above 0", lambda found: 0 < found < float("inf"), **_ABOVE_ZERO
)


def _read_rate(node: Node) -> Fraction:
    try:
        return parse_rate(read_text(node, RATE.what))
    except NotationError as error:
        raise notation_error("a rate", error) from None


def rate_text(per_second: Fraction) -> str:
    """A rate in the notation."""
    each = "" if per_second.denominator == 1 else str(per_second.denominator)
    return f"{per_second.numerator}/{each}s"


RATE: Final = FieldType(
    "a rate such as 10/s or '100 per minute'",
    _read_rate,
    {
        "type": "string",
        "pattern": r"^\s*[0-9][0-9_]*\s*(/|[Pp][Ee][Rr])",
        "examples": ["10/s", "100 per minute"],
    },
    rate_text,
)
"""Units per second, exactly, from the notation without options."""


def duration(
    least: int = 0,
    most: int | None = None,
    bounds: str = "",
    *,
    zero: bool = False,
    off: bool = False,
    in_seconds: bool = False,
) -> FieldType:
    """A time from *least* to *most* in nanoseconds, or, *in_seconds*, in seconds.

    *bounds* names the two. With *zero* 0 is a time too, with *off* that word (or false) is 0.
    """

    def read(node: Node) -> int | float:
        if isinstance(node, Scalar):
            if zero and node.is_plain and node.text == "0":
                return read_number(node)
            if off and (node.boolean is False or node.text == "off"):
                return 0
        found = read_duration(node)
        if found < least or (most is not None and found > most):
            raise expected(node, bounds)
        return plain_seconds(found) if in_seconds else found

    def write(value: Any) -> object:
        if off and not value:
            return "off"
        return value if in_seconds else plain_seconds(value)

    text = {"type": "string", "pattern": "^([0-9][0-9_.]* *)?[A-Za-z]+$"}
    more: list[Schema] = [{"const": 0}] if zero else []
    more += [{"enum": ["off", False]}] if off else []
    return FieldType(A_DURATION, read, {"anyOf": [_ABOVE_ZERO, text, *more]}, write)


SYNC: Final = duration(MILLISECOND, bounds="at least a millisecond, such as 100ms")


def share(what: str = "a percentage such as 1%", *, is_part: bool = False) -> FieldType:
    """A percentage as a fraction, above 0 and at most 1, or, if it *is_part*, below 1."""

    def read(node: Node) -> Fraction:
        value = _read_percentage(node)
        if not 0 < value <= 1 or (is_part and value == 1):
            most = "below" if is_part else "up to"
            raise expected(node, f"a percentage above 0% and {most} 100%")
        return value

    pattern = r"^(?!0+(\.0+)? ?%$)0*(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?) ?%$"
    return FieldType(what, read, {"type": "string", "pattern": pattern}, _percentage)


def _read_percentage(node: Node) -> Fraction:
    found = _PERCENTAGE.fullmatch(node.text) if isinstance(node, Scalar) else None
    if found is None or len(found[0]) > _MAX_NUMBER:
        raise expected(node, "a percentage such as 1%")
    return Fraction(found[1]) / 100


def _read_multiple(node: Node) -> Fraction:
    value = _read_percentage(node)
    if value > 10:
        raise expected(node, "a percentage from 0% to 1000%")
    return value


def _percentage(value: Fraction) -> str:
    percent = value * 100
    return f"{Decimal(percent.numerator) / percent.denominator:f}%"


MULTIPLE: Final = FieldType(
    "a percentage from 0% to 1000%",
    _read_multiple,
    {"type": "string", "pattern": r"^0*(1000(\.0+)?|[0-9]{1,3}(\.[0-9]+)?) ?%$"},
    _percentage,
)
"""A percentage that may be 0 or above 100%."""


def _read_instant(node: Node) -> int:
    found = instant_ns(node.text) if isinstance(node, Scalar) else None
    if found is None:
        raise expected(node, AN_INSTANT)
    return found


def instant_ns(text: str) -> int | None:
    """The moment *text* in nanoseconds since the epoch; None if it is none, or before 1970."""
    found = re.fullmatch(_INSTANT, text)
    if found is None:
        return None
    fraction = found[1] or "."
    try:
        whole = datetime.fromisoformat(text[:19] + found[2].upper())
    except ValueError:  # the 30th of February
        return None
    since = (whole - _EPOCH) // _A_SECOND
    if not 0 <= since <= _LAST:
        return None
    return since * SECOND + int(fraction[1:].ljust(9, "0"))


def instant_text(since_epoch_ns: int) -> str:
    """The moment as text, in UTC; its fraction of a second only if it has one."""
    seconds, rest = divmod(since_epoch_ns, SECOND)
    whole = (_EPOCH + seconds * _A_SECOND).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}Z"


INSTANT: Final = FieldType(
    AN_INSTANT,
    _read_instant,
    {"type": "string", "pattern": f"^{_INSTANT}$", "examples": ["2027-01-31T12:00:00Z"]},
    instant_text,
)
"""A moment as RFC 3339 writes it, in nanoseconds since the epoch."""


def read_several(
    read: Callable[[Node], Any], what: str, most: int | None, node: Node
) -> tuple[Any, ...]:
    """One value, or a list of at least one and at most *most*, none twice."""
    if not isinstance(node, Listing):
        return (read(node),)
    if not node.items:
        raise expected(node, f"{what}, or a list of at least one")
    found = read_each(enumerate(node.items), read)
    first = {value: n for n, value in reversed([*enumerate(found)])}
    again = [n for n, value in enumerate(found) if first[value] != n]
    if again:
        message = "the same value is in the list before"
        raise InvalidValueError(FieldError(message, path=(n,)) for n in again[:MAX_PROBLEMS])
    if most is not None and len(found) > most:
        raise FieldError(f"{len(found)} entries; expected at most {most}")
    return tuple(found)


def several(
    item: FieldType, what: str, *, most: int | None = None, is_listed: bool = False
) -> FieldType:
    """One value of the type *item*, or a list of at least one and at most *most*, none twice."""

    def write(value: tuple[Any, ...]) -> object:
        written = [item.write(one) for one in value]
        return written[0] if len(written) == 1 and not is_listed else written

    bound = {} if most is None else {"maxItems": most}
    many = {"type": "array", "items": item.json_schema(), "minItems": 1, **bound}
    schema = {"anyOf": [item.json_schema(), many]}
    return FieldType(what, partial(read_several, item.read, what, most), schema, write, item=item)


WORDS: Final = several(WORD, "a value")


def _read_entry(key: FieldType, value: FieldType, entry: tuple[Scalar, Node]) -> tuple[Any, Any]:
    errors: list[FieldError] = []
    name = one = None
    try:
        name = key.read(entry[0])
    except InvalidValueError as error:
        errors = error.errors
        for each in errors:
            each.at_key = True
    try:
        child = entry[1]
        if value.read_in is None:
            one = value.read(child)
        else:
            one = value.read_in(child, Table(child.place), None)
    except InvalidValueError as error:
        errors += error.errors
    if errors:
        raise InvalidValueError(errors)
    return name, one


def entries(
    what: str,
    key: FieldType,
    value: FieldType,
    make: Callable[[list[tuple[Any, Any]]], Any] = lambda pairs: MappingProxyType(dict(pairs)),
    pairs: Callable[[Any], Iterable[tuple[Any, Any]]] = lambda made: made.items(),
    *,
    most: int | None = None,
    secret: bool = False,
    unique: bool = False,
    examples: Sequence[Schema] = (),
) -> FieldType:
    """A mapping of at least one and at most *most* entries, with keys of its author's choice.

    *make* makes the value of the pairs of keys and values, *pairs* the reverse. Keys that are
    *secret* are texts of any kind, which messages replace by their number. No two *unique* keys
    may read as the same.
    """
    if secret:
        key = FieldType(key.what, lambda node: getattr(node, "text", ""))

    def read(node: Node) -> Any:
        if not isinstance(node, Table) or not node.entries:
            raise expected(node, f"{what}: a mapping with at least one entry")
        if most is not None and len(node.entries) > most:
            raise FieldError(f"{len(node.entries)} entries; expected at most {most}")
        numbered = enumerate(node.entries.items())
        given = (
            ((name, n) if secret else name, (node.keys[name], child))
            for n, (name, child) in numbered
        )
        found = read_each(given, partial(_read_entry, key, value))
        seen: set[Any] = set()
        for name, (one, _) in zip(node.entries, found, strict=True):
            if unique and one in seen:
                message = f"{quoted(one)} is given twice; case does not matter in it"
                raise FieldError(message, path=(name,))
            seen.add(one)
        return make(found)

    def schema() -> Schema:
        inside = value.json_schema()
        found = {"type": "object", "minProperties": 1, "additionalProperties": inside}
        found |= {} if secret else {"propertyNames": key.json_schema()}
        found |= {} if most is None else {"maxProperties": most}
        return found | _examples(examples)

    def write(made: Any) -> object:
        return {key.write(name): value.write(one) for name, one in pairs(made)}

    return FieldType(what, read, schema, write)
