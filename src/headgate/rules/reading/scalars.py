"""What a single value means, as the field that it stands in expects it.

Every reader here takes the `Spot` of a value, notes what is wrong with it and then answers None.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError, NotationError
from headgate.limits import FixedWindow, parse_limit
from headgate.rules.reading.tree import Scalar, shown
from headgate.units import plain_seconds

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot

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
