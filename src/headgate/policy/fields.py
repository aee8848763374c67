"""Types of single values: each reads a node, describes itself in JSON Schema and writes back.

A field of a model names its type with `Annotated[int, Whole(1, 32)]`. pydantic calls the type while
it validates; nothing here imports it. A value that does not fit raises `FieldError`. All types are
strict: no text stands for a number, and no word for a boolean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import LimitError, NotationError
from headgate.limits import FixedWindow, parse_limit, parse_rate
from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.diagnostics import MOST_PROBLEMS, choosing, closest, meaning, shown
from headgate.policy.document import Listing, Scalar, Table, described
from headgate.units import MILLISECOND, SECOND, plain_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headgate.policy.document import Node, Path
    from headgate.policy.problems import Severity

Schema = dict[str, Any]
Network = IPv4Network | IPv6Network

LONGEST_WORD: Final = 1_000
"""Characters of a text that is compared with parts of requests."""

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
A_NAME: Final = "1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
A_DURATION: Final = "seconds, or a time such as 30s or '1 minute'"
A_RATE: Final = "a rate such as 10/s or '100 per minute'"
A_PATTERN: Final = "a path that begins with '/', with * for one segment and ** for any number"
AN_INSTANT: Final = "a date and time with its offset, such as 2027-01-31T12:00:00Z"

_LONGEST_NUMBER: Final = 100
_NUMBER: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
)
_ZEROS: Final = re.compile(r"[+-]?0[0-9_]+")
_PERCENTAGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_DURATION: Final = re.compile(r"(?:[0-9][0-9_.]* *)?[A-Za-z]+")
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNFIT_IN_PROSE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}"  # noqa: S105 - a token of HTTP
_IS_TOKEN: Final = re.compile(_TOKEN)
_LABEL: Final = r"[^\W_](?:[\w-]*[^\W_])?|_[\w-]+"
_HOST: Final = re.compile(
    rf"\*|(?:\*\.)?(?:{_LABEL})(?:\.(?:{_LABEL}))*\.?|\[[0-9a-f:.]+\]|[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*"
)
_MOST_SEGMENTS: Final = 64
_INSTANT: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_IS_INSTANT: Final = re.compile(_INSTANT)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_A_SECOND: Final = timedelta(seconds=1)
_LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _A_SECOND


class FieldError(ValueError):
    """One problem with a value: what is wrong, what would be right, and where.

    *path* leads from the value to the part that is wrong; with *at_key* its key is, with
    *at_parent* it is missing from its mapping. *offset* is the number of characters into a text.
    *instead_of* are the fields that it misses: an unknown field that resembles one of them explains
    it. *is_stray*: a field that must not be there, whatever its value.
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
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = tuple(path)
        self.at_key = at_key
        self.at_parent = at_parent
        self.offset = offset
        self.severity = severity
        self.instead_of = frozenset(instead_of)
        self.is_stray = is_stray

    def under(self, *steps: str | int | tuple[str, int]) -> FieldError:
        """The same flaw, seen from further up."""
        self.path = (*steps, *self.path)
        return self


class CompoundFieldError(ValueError):
    """Several flaws of one value."""

    def __init__(self, flaws: Iterable[FieldError]) -> None:
        super().__init__()
        self.flaws = list(flaws)


def expected(node: Node, what: str, *, hint: str = "") -> FieldError:
    """The flaw of a *node* that is not *what* was expected."""
    return FieldError(f"found {described(node)}, expected {what}", hint=hint)


def not_among(word: str, known: Iterable[str], message: str) -> FieldError:
    """The flaw of a *word* that is none of the *known* ones."""
    words = tuple(known)
    near = closest(word, words)
    return FieldError(message, hint=choosing(words) if near is None else meaning(near))


def warning(message: str, *path: str | int, hint: str = "") -> FieldError:
    """A flaw that does not keep a policy out of force."""
    return FieldError(message, hint=hint, path=path, severity="warning")


class FieldType:
    """A type of values. *what* names a value of it in messages."""

    what: str

    def read(self, node: Node) -> Any:
        """The value of *node*. Raises `FieldError` or `CompoundFieldError`."""
        raise NotImplementedError

    def schema(self) -> Schema:
        """Its JSON Schema."""
        return {}

    def write(self, value: Any) -> object:
        """*value* as plain data."""
        return value

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _core: object, _handler: object) -> Schema:
        return self.schema()


class ContextField(FieldType):
    """A type whose values depend on the context of the loading, or on other fields."""

    def read_in(self, node: Node, info: Any) -> Any:
        """The value of *node*; *info* has the `context` and, as `data`, the fields before it."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(self.read_in)


def read_text(node: Node, what: str = "text") -> str:
    """A text as written, in quotes or not; not a plain true, false or null."""
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        is_word = isinstance(node, Scalar) and not node.is_null
        raise expected(node, what, hint="put it in quotes to mean the word" if is_word else "")
    return node.text


def read_word(node: Node, what: str = "text") -> str:
    """A text of one line, not empty and not too long."""
    found = read_text(node, what)
    if not found.strip():
        raise FieldError(f"found an empty text, expected {what}")
    if len(found) > LONGEST_WORD:
        raise FieldError(f"a text of {len(found)} characters; expected at most {LONGEST_WORD}")
    if unfit := _UNFIT.search(found):
        raise FieldError(f"the character U+{ord(unfit[0]):04X} may not be in it")
    return found


def read_number(node: Node, what: str = "a number") -> int | float:
    """A number without quotes, in decimal: `100`, `1_000`, `1.67`, `1e3`."""
    hint = ""
    if isinstance(node, Scalar):
        text = node.text
        if node.is_plain and len(text) <= _LONGEST_NUMBER:
            if _NUMBER.fullmatch(text):
                digits = text.replace("_", "")
                exact = Fraction(digits)
                return exact.numerator if exact.denominator == 1 else float(digits)
            if _ZEROS.fullmatch(text):
                message = f"found {text}, which YAML reads as octal or not"
                right = text.lstrip("+-0").replace("_", "") or "0"
                raise FieldError(message, hint=f"write {right}")
        elif not node.is_plain and _NUMBER.fullmatch(text):
            hint = "write it without quotes"
    raise expected(node, what, hint=hint)


def read_duration(node: Node) -> int:
    """A time in nanoseconds: seconds as a number, or with a unit as in the notation."""
    if isinstance(node, Scalar) and node.boolean is None and _DURATION.fullmatch(node.text):
        try:
            return parse_limit(f"1/{node.text} fixed_window").period_ns
        except NotationError as error:
            message = f"{shown(node.text)} is not a time: {error.problem}"
            raise FieldError(message, hint=f"expected {' or '.join(error.expected)}") from None
    amount = read_number(node, A_DURATION)
    try:
        return FixedWindow(1, amount).window_ns
    except LimitError:
        message = f"found {amount} seconds; expected from a microsecond to a hundred years"
        raise FieldError(message) from None


def notation_flaw(kind: str, error: NotationError) -> FieldError:
    """The flaw of a text that is not *kind* in the notation of limits."""
    message = f"not {kind}, at character {error.position + 1}: {error.problem}"
    return FieldError(
        message, hint=f"expected {' or '.join(error.expected)}", offset=error.position
    )


@dataclass(frozen=True)
class Word(FieldType):
    """A text of one line, not empty."""

    what: str = "text"

    def read(self, node: Node) -> str:
        return read_word(node, self.what)

    def schema(self) -> Schema:
        return {
            "type": ["string", "number"],
            "minLength": 1,
            "maxLength": LONGEST_WORD,
            "pattern": r"\S",
        }


class Prose(FieldType):
    """A text for people, of any number of lines."""

    what = "text"

    def read(self, node: Node) -> str:
        found = read_text(node)
        if unfit := _UNFIT_IN_PROSE.search(found):
            raise FieldError(f"the character U+{ord(unfit[0]):04X} may not be in it")
        return found

    def schema(self) -> Schema:
        return {"type": ["string", "number"]}


@dataclass(frozen=True)
class Token(FieldType):
    """A name as HTTP has them: of a header (in lower case), a cookie or a method."""

    what: str
    is_lower: bool = False

    def read(self, node: Node) -> str:
        found = read_word(node, self.what)
        if not _IS_TOKEN.fullmatch(found):
            rules = "letters, digits and -_.!#$%&'*+^`|~, at most 200"
            raise FieldError(f"{shown(found)} is not {self.what}: {rules}")
        return found.lower() if self.is_lower else found

    def schema(self) -> Schema:
        return {"type": ["string", "number"], "minLength": 1, "pattern": f"^{_TOKEN}$"}


HEADER: Final = Token("the name of a header", is_lower=True)
COOKIE: Final = Token("the name of a cookie")


@dataclass(frozen=True)
class Name(FieldType):
    """The id of a rule."""

    what: str = A_NAME

    def read(self, node: Node) -> str:
        found = read_text(node, self.what)
        if not NAME.fullmatch(found):
            raise FieldError(f"{shown(found)} is not an id; expected {self.what}")
        return found

    def schema(self) -> Schema:
        return {"type": ["string", "number"], "minLength": 1, "pattern": f"^{NAME.pattern}$"}


class Boolean(FieldType):
    """True or false. Other words that YAML 1.1 took for them are errors."""

    what = "true or false"

    def read(self, node: Node) -> bool:
        value = node.boolean if isinstance(node, Scalar) else None
        if value is None:
            raise expected(node, self.what)
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class OnlyTrue(Boolean):
    """True, where false would say nothing."""

    hint: str

    def read(self, node: Node) -> bool:
        if not super().read(node):
            raise FieldError("found false, expected true", hint=self.hint)
        return True

    def schema(self) -> Schema:
        return {"const": True}


@dataclass(frozen=True)
class Choice(FieldType):
    """One of *words*; plain booleans stand for a word of *switch*."""

    words: tuple[str, ...]
    switch: Mapping[bool, str] = field(default_factory=dict)

    @property
    def what(self) -> str:  # type: ignore[override]
        return f"one of {', '.join(self.words)}"

    def read(self, node: Node) -> str:
        if not isinstance(node, Scalar) or node.is_null:
            raise expected(node, self.what)
        value = node.boolean
        if value is None:
            if node.text in self.words:
                return node.text
            raise not_among(node.text, self.words, f"found {shown(node.text)}")
        if value not in self.switch:
            raise expected(node, self.what)
        return self.switch[value]

    def schema(self) -> Schema:
        return {"enum": [*self.words, *self.switch]}


@dataclass(frozen=True)
class Whole(FieldType):
    """A whole number from *least* to *most*."""

    least: int
    most: int

    @property
    def what(self) -> str:  # type: ignore[override]
        return f"a whole number from {self.least} to {self.most}"

    def read(self, node: Node) -> int:
        found = read_number(node, self.what)
        if not isinstance(found, int) or not self.least <= found <= self.most:
            raise expected(node, self.what)
        return found

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


QUOTA: Final = Whole(1, LARGEST_QUOTA)


class PerSecond(FieldType):
    """Units per second, as a number."""

    what = "a number of units per second"

    def read(self, node: Node) -> int | float:
        found = read_number(node, self.what)
        if not 0 < found < float("inf"):
            raise expected(node, f"{self.what}, above 0")
        return found

    def schema(self) -> Schema:
        return {"type": "number", "exclusiveMinimum": 0}


class Rate(FieldType):
    """Units per second, exactly, from the notation without options."""

    what = A_RATE

    def read(self, node: Node) -> Fraction:
        if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
            raise expected(node, self.what)
        try:
            return parse_rate(node.text)
        except NotationError as error:
            raise notation_flaw("a rate", error) from None

    def schema(self) -> Schema:
        pattern = r"^\s*[0-9][0-9_]*\s*(/|[Pp][Ee][Rr])"
        return {"type": "string", "pattern": pattern, "examples": ["10/s", "100 per minute"]}

    def write(self, value: Fraction) -> str:
        each = "" if value.denominator == 1 else str(value.denominator)
        return f"{value.numerator}/{each}s"


@dataclass(frozen=True)
class Duration(FieldType):
    """A time, in nanoseconds, within the bounds *least* and *most*.

    With *zero* 0 is a time too, with *off* that word (or false) stands for it.
    """

    least: int = 0
    most: int = 0
    bounds: str = ""
    zero: bool = False
    off: bool = False
    what: str = A_DURATION

    def read(self, node: Node) -> int:
        if self.zero and isinstance(node, Scalar) and node.is_plain and node.text == "0":
            return 0
        if self.off and isinstance(node, Scalar) and (node.boolean is False or node.text == "off"):
            return 0
        found = read_duration(node)
        if found < self.least or (self.most and found > self.most):
            raise FieldError(self.bounds) if ";" in self.bounds else expected(node, self.bounds)
        return found

    def schema(self) -> Schema:
        number = {"type": "number", "exclusiveMinimum": 0}
        text = {"type": "string", "pattern": "^([0-9][0-9_.]* *)?[A-Za-z]+$"}
        more: list[Schema] = [{"const": 0}] if self.zero else []
        more += [{"enum": ["off", False]}] if self.off else []
        return {"anyOf": [number, text, *more]}

    def write(self, value: int) -> object:
        return "off" if self.off and not value else plain_seconds(value)


@dataclass(frozen=True)
class Seconds(Duration):
    """A time in seconds, as limits have it."""

    def read(self, node: Node) -> Any:
        return plain_seconds(super().read(node))

    def write(self, value: Any) -> object:
        return value


@dataclass(frozen=True)
class Share(FieldType):
    """A percentage as a fraction, more than nothing and at most (or less than) all."""

    is_part: bool = False
    what: str = "a percentage such as 1%"

    def read(self, node: Node) -> Fraction:
        found = _PERCENTAGE.fullmatch(node.text) if isinstance(node, Scalar) else None
        if found is None or len(found[0]) > _LONGEST_NUMBER:
            raise expected(node, "a percentage such as 1%")
        share = Fraction(found[1]) / 100
        if not 0 < share <= 1:
            raise expected(node, "a percentage above 0% and up to 100%")
        if self.is_part and share == 1:
            raise expected(node, "a percentage above 0% and below 100%")
        return share

    def schema(self) -> Schema:
        pattern = r"^(?!0+(\.0+)? ?%$)0*(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?) ?%$"
        return {"type": "string", "pattern": pattern}

    def write(self, value: Fraction) -> str:
        percent = value * 100
        return f"{Decimal(percent.numerator) / percent.denominator:f}%"


class Instant(FieldType):
    """A moment as RFC 3339 writes it, in nanoseconds since the epoch."""

    what = AN_INSTANT

    def read(self, node: Node) -> int:
        found = instant_ns(node.text) if isinstance(node, Scalar) else None
        if found is None:
            raise expected(node, self.what)
        return found

    def schema(self) -> Schema:
        return {
            "type": "string",
            "pattern": f"^{_INSTANT}$",
            "examples": ["2027-01-31T12:00:00Z"],
        }

    def write(self, value: int) -> str:
        return instant_text(value)


def instant_ns(text: str) -> int | None:
    """The moment *text* in nanoseconds since the epoch; None if it is none, or before 1970."""
    found = _IS_INSTANT.fullmatch(text)
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


class Pattern(FieldType):
    """A pattern of paths: `*` is one segment, `**` any number of them, none included."""

    what = A_PATTERN

    def read(self, node: Node) -> str:
        return checked_pattern(read_word(node, self.what))

    def schema(self) -> Schema:
        examples = ["/login", "/api/v1/*", "/api/**"]
        return {
            "type": "string",
            "pattern": "^/",
            "maxLength": LONGEST_WORD,
            "examples": examples,
        }


def checked_pattern(found: str) -> str:
    """*found* if it is a pattern of paths. Raises `FieldError`."""
    if not found.startswith("/"):
        near = f"/{found}" if found[:1] not in "*?#" else f"/{found.lstrip('/')}"
        raise FieldError(f"{shown(found)} does not begin with '/'", hint=meaning(near))
    if any(letter in found for letter in "?# "):
        hint = "leave out the query, the fragment and all spaces"
        raise FieldError(f"{shown(found)} is not the pattern of a path", hint=hint)
    segments = found.split("/")
    if len(segments) > _MOST_SEGMENTS:
        raise FieldError(f"{shown(found)} has more than {_MOST_SEGMENTS} segments")
    for segment in segments:
        if "*" in segment and segment not in ("*", "**"):
            rule = "** stands for whole segments" if "**" in segment else "* stands for a whole one"
            message = f"{shown(found)} has a wildcard glued to text in {shown(segment)}"
            raise FieldError(message, hint=f"{rule}: /a/*/b, /a/**")
    return found


@dataclass(frozen=True)
class Method(Token):
    """A method, in upper case."""

    what: str = "a method such as POST"

    def read(self, node: Node) -> str:
        return super().read(node).upper()


class Host(FieldType):
    """A host in lower case; `*.` in front is any subdomain."""

    what = "a host such as api.example.com or *.example.com"

    def read(self, node: Node) -> str:
        found = read_word(node, self.what)
        if not _HOST.fullmatch(found.lower()) or len(found) > 253:
            right = "expected a name such as api.example.com or *.example.com, without a port"
            raise FieldError(f"{shown(found)} is not a host; {right}")
        return found.lower()

    def schema(self) -> Schema:
        return Word().schema()


class Networks(FieldType):
    """An address or a network of addresses."""

    what = "an address or a network such as 10.0.0.0/8"

    def read(self, node: Node) -> Network:
        found = read_word(node, self.what)
        try:
            return ip_network(found)
        except ValueError:
            message = f"{shown(found)} is not an address or a network"
            raise FieldError(message, hint=self._hint(found)) from None

    @staticmethod
    def _hint(found: str) -> str:
        try:
            return meaning(str(ip_network(found, strict=False)))
        except ValueError:
            return "expected one such as 10.0.0.0/8 or 2001:db8::1"

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "examples": ["10.0.0.0/8", "2001:db8::1"]}

    def write(self, value: Network) -> str:
        return str(value)


@dataclass(frozen=True)
class Several(FieldType):
    """One value of the type *item*, or a list of at least one and at most *most*, none twice."""

    item: FieldType
    what: str
    most: int = 0
    plural: str = "entries"
    is_listed: bool = False

    def read(self, node: Node) -> tuple[Any, ...]:
        if not isinstance(node, Listing):
            return (self.item.read(node),)
        if not node.items:
            raise expected(node, f"{self.what}, or a list of at least one")
        found: dict[Any, None] = {}
        flaws: list[FieldError] = []
        for number, each in enumerate(node.items):
            try:
                value = self.item.read(each)
            except FieldError as flaw:
                flaws.append(flaw.under(number))
            else:
                if value in found:
                    flaws.append(FieldError("the same is in the list before", path=(number,)))
                found[value] = None
            if len(flaws) >= MOST_PROBLEMS:
                break
        if flaws:
            raise CompoundFieldError(flaws)
        if self.most and len(found) > self.most:
            raise FieldError(f"{len(found)} {self.plural}; expected at most {self.most}")
        return tuple(found)

    def schema(self) -> Schema:
        one = self.item.schema()
        many: Schema = {"type": "array", "items": one, "minItems": 1}
        if self.most:
            many["maxItems"] = self.most
        return {"anyOf": [one, many]}

    def write(self, value: Sequence[Any]) -> object:
        written = [self.item.write(one) for one in value]
        return written[0] if len(written) == 1 and not self.is_listed else written


@dataclass(frozen=True)
class Entries(FieldType):
    """A mapping with keys of its author's choice, at least one: a dict of what `entry` reads."""

    what: str

    def read(self, node: Node) -> Any:
        if not isinstance(node, Table) or not node.entries:
            raise expected(node, f"{self.what}: a mapping with at least one entry")
        found: dict[Any, Any] = {}
        flaws: list[FieldError] = []
        for number, (name, value) in enumerate(node.entries.items()):
            try:
                self.enter(found, node.keys[name], value)
            except FieldError as flaw:
                flaws.append(self.placed(flaw, name, number))
            except CompoundFieldError as several:
                flaws += [self.placed(flaw, name, number) for flaw in several.flaws]
            if len(flaws) >= MOST_PROBLEMS:
                break
        if flaws:
            raise CompoundFieldError(flaws)
        return self.made(found)

    def placed(self, flaw: FieldError, name: str, _number: int) -> FieldError:
        """*flaw* as one of the entry *name*."""
        return flaw.under(name)

    def enter(self, found: dict[Any, Any], key: Scalar, value: Node) -> None:
        """Add an entry to *found*. Raises `FieldError`."""
        raise NotImplementedError

    def made(self, found: dict[Any, Any]) -> Any:
        """The value that the entries *found* make."""
        return found


def read_key(kind: FieldType, key: Scalar) -> Any:
    """The key of an entry as a value of *kind*. Raises `FieldError`."""
    try:
        return kind.read(key)
    except FieldError as flaw:
        flaw.at_key = True
        raise


SYNC: Final = Duration(MILLISECOND, bounds="found less than a millisecond; expected such as 100ms")


def entries_schema(values: Schema, **more: object) -> Schema:
    """The JSON Schema of a mapping from names to *values*."""
    return {"type": "object", "minProperties": 1, "additionalProperties": values, **more}


def all_flaws(error: ValueError) -> Iterator[FieldError]:
    """The flaws in *error*, a `FieldError` or `CompoundFieldError`."""
    if isinstance(error, CompoundFieldError):
        yield from error.flaws
    elif isinstance(error, FieldError):
        yield error
