"""What a single value means, as the field that it stands in expects it.

Every reader here takes the `Spot` of a value, notes what is wrong with it and then answers None.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.errors import LimitError, NotationError
from headgate.limits import FixedWindow, parse_limit
from headgate.policy.loader.diagnostics import Listing, Scalar, Table, shown
from headgate.units import SECOND, plain_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headgate.policy.loader.diagnostics import Spot


LONGEST_WORD: Final = 1_000
"""The most characters in a text that is compared with what a request says."""

_LONGEST_NUMBER: Final = 100
_NUMBER: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
)
_ZEROS: Final = re.compile(r"[+-]?0[0-9_]+")
_PERCENTAGE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")
_DURATION: Final = re.compile(r"(?:[0-9][0-9_.]* *)?[A-Za-z]+")
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNFIT_IN_PROSE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")

A_DURATION: Final = "seconds, or a time such as 30s or '1 minute'"


def text(spot: Spot, what: str = "text") -> str | None:
    """A text as it was written, in quotes or not; without a plain true, false or null."""
    node = spot.node
    if not isinstance(node, Scalar) or node.is_null or node.boolean is not None:
        is_word = isinstance(node, Scalar) and not node.is_null
        spot.expected(what, hint="put it in quotes to mean the word" if is_word else "")
        return None
    return node.text


def word(spot: Spot, what: str = "text") -> str | None:
    """A text of one line, not empty and not too long."""
    found = text(spot, what)
    if found is None:
        return None
    if not found.strip():
        spot.wrong(f"found an empty text, expected {what}")
    elif len(found) > LONGEST_WORD:
        spot.wrong(f"a text of {len(found)} characters; expected at most {LONGEST_WORD}")
    elif unfit := _UNFIT.search(found):
        spot.wrong(f"the character U+{ord(unfit[0]):04X} may not be in it")
    else:
        return found
    return None


def prose(spot: Spot) -> str | None:
    """A text for people, of any number of lines."""
    found = text(spot)
    unfit = _UNFIT_IN_PROSE.search(found) if found is not None else None
    if unfit is not None:
        spot.wrong(f"the character U+{ord(unfit[0]):04X} may not be in it")
        return None
    return found


def token(spot: Spot, what: str) -> str | None:
    """A name as HTTP has them: of a header, a cookie or a method."""
    found = word(spot, what)
    if found is not None and not _TOKEN.fullmatch(found):
        spot.wrong(
            f"{shown(found)} is not {what}: letters, digits and -_.!#$%&'*+^`|~, at most 200"
        )
        return None
    return found


def header_name(spot: Spot) -> str | None:
    """The name of a header, in lower case."""
    found = token(spot, "the name of a header")
    return None if found is None else found.lower()


def boolean(spot: Spot) -> bool | None:
    """True or false. What YAML 1.1 took for them besides is refused, not guessed."""
    said = spot.node.boolean if isinstance(spot.node, Scalar) else None
    if said is None:
        spot.expected("true or false")
    return said


def choice(spot: Spot, *words: str, switch: tuple[str, str] | None = None) -> str | None:
    """One of *words*; with a *switch*, true and false stand for the words of it."""
    node = spot.node
    if isinstance(node, Scalar) and not node.is_null:
        said = node.boolean
        if said is not None and switch is not None:
            return switch[0] if said else switch[1]
        if said is None and node.text in words:
            return node.text
        if said is None:
            spot.not_among(node.text, words, f"found {shown(node.text)}")
            return None
    spot.expected(f"one of {', '.join(words)}")
    return None


def number(spot: Spot, what: str = "a number") -> int | float | None:
    """A number without quotes, in decimal: `100`, `1_000`, `1.67`, `1e3`."""
    node = spot.node
    if isinstance(node, Scalar) and node.is_plain and len(node.text) <= _LONGEST_NUMBER:
        if _NUMBER.fullmatch(node.text):
            return _value(node.text.replace("_", ""))
        if _ZEROS.fullmatch(node.text):
            told = f"found {node.text}, which YAML reads as octal or not"
            spot.wrong(told, hint=f"write {node.text.lstrip('+-0').replace('_', '') or '0'}")
            return None
    is_quoted = isinstance(node, Scalar) and not node.is_plain and _NUMBER.fullmatch(node.text)
    spot.expected(what, hint="write it without quotes" if is_quoted else "")
    return None


def _value(digits: str) -> int | float:
    exact = Fraction(digits)
    return exact.numerator if exact.denominator == 1 else float(digits)


def whole(spot: Spot, least: int, most: int) -> int | None:
    """A whole number from *least* to *most*."""
    expected = f"a whole number from {least} to {most}"
    found = number(spot, expected)
    if found is None:
        return None
    if not isinstance(found, int) or not least <= found <= most:
        spot.expected(expected)
        return None
    return found


def duration_ns(spot: Spot) -> int | None:
    """A time in nanoseconds: seconds as a number, or with a unit as the notation has them."""
    node = spot.node
    if isinstance(node, Scalar) and _DURATION.fullmatch(node.text) and node.boolean is None:
        return _spelled_ns(spot, node.text)
    amount = number(spot, A_DURATION)
    if amount is None:
        return None
    try:
        return FixedWindow(1, amount).window_ns
    except LimitError:
        spot.wrong(f"found {amount} seconds; expected from a microsecond to a hundred years")
        return None


def seconds(spot: Spot) -> int | float | None:
    """The same in seconds."""
    found = duration_ns(spot)
    return None if found is None else plain_seconds(found)


def _spelled_ns(spot: Spot, spelled: str) -> int | None:
    try:
        return parse_limit(f"1/{spelled} fixed_window").period_ns
    except NotationError as error:
        told = f"{shown(spelled)} is not a time: {error.problem}"
        spot.wrong(told, hint=f"expected {' or '.join(error.expected)}")
        return None


def percentage(spot: Spot) -> Fraction | None:
    """A text such as 1% or 0.5%, more than nothing and at most 100%."""
    node = spot.node
    found = _PERCENTAGE.fullmatch(node.text) if isinstance(node, Scalar) else None
    if found is None or len(found[0]) > _LONGEST_NUMBER:
        spot.expected("a percentage such as 1%")
        return None
    share = Fraction(found[1]) / 100
    if not 0 < share <= 1:
        spot.expected("a percentage above 0% and up to 100%")
        return None
    return share


# Mappings with a fixed set of fields, and values that may be one or several.


T = TypeVar("T")


class Fields:
    """The fields of a mapping. All that have other names than *known* have been noted."""

    def __init__(self, spot: Spot, table: Table, known: Sequence[str]) -> None:
        self.spot = spot
        self._table = table
        unknown = [spot.child(name).of_key() for name in table.entries if name not in known]
        self.meant = {key.not_among(key.name, known, "unknown field") for key in unknown}
        """The fields that the unknown ones were meant to be: not to be called missing too."""

    @classmethod
    def of(cls, spot: Spot, known: Sequence[str], what: str) -> Fields | None:
        """The fields at *spot*, or None, noted, if it is no mapping."""
        if isinstance(spot.node, Table):
            return cls(spot, spot.node, known)
        spot.expected(f"{what}: a mapping with {', '.join(known)}")
        return None

    def __contains__(self, name: str) -> bool:
        return name in self._table.entries

    def __getitem__(self, name: str) -> Spot:
        return self.spot.child(name)

    def present(self, names: Sequence[str]) -> list[str]:
        """Which of *names* are given, in the order of *names*."""
        return [name for name in names if name in self]

    def read(self, name: str, reader: Callable[[Spot], T | None], default: T) -> T:
        """What *reader* makes of a field; *default* if there is none, or if it is wrong."""
        if name not in self:
            return default
        found = reader(self.spot.child(name))
        return default if found is None else found

    def need(self, name: str, reader: Callable[[Spot], T | None], expected: str) -> T | None:
        """What *reader* makes of a field that must be there."""
        if name in self:
            return reader(self.spot.child(name))
        if name not in self.meant:
            self.spot.missing(name, f"missing; expected {expected}")
        return None

    def spot_of(self, name: str) -> Spot:
        """The field *name*, or the whole mapping if it is not given."""
        return self.spot.child(name) if name in self else self.spot


def entries(spot: Spot, what: str) -> Iterator[tuple[str, Spot]]:
    """The names and values of a mapping with names of its author's choice; at least one."""
    if isinstance(spot.node, Table) and spot.node.entries:
        for name in spot.node.entries:
            yield name, spot.child(name)
    else:
        spot.expected(f"{what}: a mapping with at least one entry")


def several(spot: Spot, reader: Callable[[Spot], T | None], what: str) -> tuple[T, ...] | None:
    """One value, or a list of at least one, none of them twice."""
    if not isinstance(spot.node, Listing):
        one = reader(spot)
        return None if one is None else (one,)
    if not spot.node.items:
        spot.expected(f"{what}, or a list of at least one")
        return None
    found: dict[T, None] = {}
    for child in spot.children():
        value = reader(child)
        if value is not None and value in found:
            child.wrong("the same is in the list before")
        elif value is not None:
            found[value] = None
    return tuple(found) or None


# Moments as RFC 3339 writes them, with an offset, exact to the nanosecond: from text and back.


AN_INSTANT: Final = "a date and time with its offset, such as 2027-01-31T12:00:00Z"

INSTANT: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_INSTANT: Final = re.compile(INSTANT)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_A_SECOND: Final = timedelta(seconds=1)
_LAST: Final = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _A_SECOND


def instant_ns(text: str) -> int | None:
    """The moment *text* in nanoseconds since the epoch; None if it is none, or before 1970."""
    found = _INSTANT.fullmatch(text)
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
