r"""The cookies of a request, in all the ways in which servers read them.

Servers disagree about cookies, and a caller may send what they disagree about:

- Of two cookies with one name Starlette and Django take the last, Flask and Go the first. ASP.NET
  takes names in any case for one; PHP and old versions of Rack decode them, or see `_` in a dot.
- `"a\054b"` is `a,b` for some, `%41` is `A` and `+` a blank for others.
- A blank or a comma ends a cookie for `http.cookies` or for old Java servers, a NUL for C, a quote
  without another for old versions of Express.

`cookie_of` is for keys. Spellings that some server takes for one value are one value. What can be
read as several values is ambiguous and has none: whichever was taken, some server would use
another, and its callers would have a new counter for each request. `cookies_of` is for matching: a
rule is for a request if it is for any value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.rules.request import Request

_BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\0\ufeff\udc85\udca0"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]*")
_HIDDEN: Final = re.compile(rf'[,"{_BLANKS}]([^=,"{_BLANKS}]+)[{_BLANKS}]*=')
"""A name that some servers see within a pair: after a blank, a comma or a quote."""

_VALUE: Final = re.compile(r"[!#-+\--~]*")
"""A value that RFC 6265 allows, or one with backslashes: no blanks, quotes, commas, controls, and
nothing beyond ASCII."""

_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\[ -~])*)"')
_ESCAPED: Final = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)
_MOST_PASSES: Final = 6
"""A value that is encoded more often is ambiguous."""


class Cookie(NamedTuple):
    """The *value* of a cookie; None if it is missing, empty or *is_ambiguous*."""

    value: str | None = None
    is_ambiguous: bool = False


_AMBIGUOUS: Final = Cookie(is_ambiguous=True)


def cookie_of(request: Request, name: str) -> Cookie:
    """The cookie *name*, in the one spelling that stands for all spellings of its value."""
    wanted = _spelt_name(name)
    values: set[str] = set()
    look_alikes: set[str] = set()
    for label, text, pair in _pairs(request):
        if label == name or _spelt_name(label) == wanted:
            value = _spelt_value(text)
            if value is None:
                return _AMBIGUOUS
            (values if label == name else look_alikes).add(value)
        if any(_spelt_name(hidden) == wanted for hidden in _HIDDEN.findall(pair)):
            return _AMBIGUOUS
    values.discard("")
    if len(values | look_alikes) > 1 or (look_alikes and not values):
        return _AMBIGUOUS
    return Cookie(values.pop()) if values else Cookie()


def cookies_of(request: Request) -> dict[str, list[str]]:
    """Names, and all values of each in all Cookie lines, as they are and decoded.

    Blanks around both and one pair of quotes around a value do not count. What has no `=` or no
    name is passed over; nothing spoils the rest. Names are compared as they are.
    """
    found: dict[str, list[str]] = {}
    for label, text, _ in _pairs(request):
        if label:
            values = found.setdefault(label, [])
            values.append(value := _unquoted(text))
            decoded = _spelt_value(text)
            if decoded is not None and decoded != value:
                values.append(decoded)
    return found


def _pairs(request: Request) -> Iterator[tuple[str, str, str]]:
    """The name and the value of each pair, without blanks around them, and the whole pair."""
    for line in request.header_lines("cookie"):
        for part in line.split(";"):
            pair = part.strip(_BLANKS)
            name, equals, value = pair.partition("=")
            if equals:
                yield name.rstrip(_BLANKS), value.lstrip(_BLANKS), pair


def _spelt_name(name: str) -> str:
    """One spelling for all names that some server takes for *name*."""
    if _PLAIN_NAME.fullmatch(name) is None:
        name = unquote(name, encoding="latin-1").strip(_BLANKS)
        name = name.replace(".", "_").replace(" ", "_").replace("+", "_")
    return name.lower()


def _spelt_value(text: str) -> str | None:
    """One spelling for all values that some server takes for *text*; None if it is ambiguous."""
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        text = quoted[1].strip(_BLANKS)
    elif _VALUE.fullmatch(text) is None:
        return None
    for _ in range(_MOST_PASSES):
        decoded = _ESCAPED.sub(_unescaped, unquote(text, encoding="latin-1"))
        if decoded == text:
            return text.replace("+", " ")
        text = decoded
    return None


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8)) if escape[1] else escape[2]


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value
