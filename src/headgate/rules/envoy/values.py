"""Single values as the original reads them: with YAML 1.1, and leniently where it is lenient.

Every reader takes the `Spot` of a value, notes what is wrong with it and then answers as if it were
not there. Nothing (`key:`) is as good as leaving the field out.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.rules.reading.tree import Listing, Scalar, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.rules.reading.findings import Spot
    from headgate.rules.reading.tree import Node

MOST_REQUESTS: Final = 2**32 - 1

_BOOLEANS: Final = {
    spelled: word in ("y", "yes", "on", "true")
    for word in ("y", "yes", "on", "true", "n", "no", "off", "false")
    for spelled in (word, word.capitalize(), word.upper())
}
_WHOLE: Final = re.compile(
    r"[+-]?(?:0|[1-9][0-9_]*|(?P<octal>0[0-7_]+)|0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+)"
)
_DECIMAL: Final = re.compile(
    r"[+-]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?|[+-]?\.(?:inf|nan)", re.I
)
_LONGEST_NUMBER: Final = 100


def text(spot: Spot, what: str) -> str | None:
    """A text; a whole number or a boolean is taken as it is written, None for an empty one."""
    node = spot.node
    if not isinstance(node, Scalar):
        spot.expected(what)
    elif _number(node) is not None and not isinstance(_number(node), int):
        spot.wrong(f"found {node.text}, a number with a fraction", hint="put it in quotes")
    elif not node.is_null:
        return node.text or None
    return None


def boolean(spot: Spot) -> bool:
    """True or false, or yes and no, on and off, y and n."""
    node = spot.node
    said = _boolean(node) if isinstance(node, Scalar) else None
    if said is None and not is_nothing(node):
        spot.expected("true or false")
    return bool(said)


def requests(spot: Spot) -> int:
    """How many requests: what 32 bits hold."""
    node = spot.node
    count = _number(node) if isinstance(node, Scalar) else None
    if isinstance(count, int) and 0 <= count <= MOST_REQUESTS:
        if isinstance(node, Scalar) and len(node.text) > 1 and node.text.startswith("0"):
            spot.warn(f"{node.text} is read as {count}", hint="write it in decimal")
        return count
    if not is_nothing(node):
        spot.expected(f"a whole number from 0 to {MOST_REQUESTS}")
    return 0


def metadata(spot: Spot) -> Mapping[str, object]:
    """Any mapping, as plain data that cannot be changed."""
    if isinstance(spot.node, Table):
        return _table(spot.node)
    if not is_nothing(spot.node):
        spot.expected("a mapping")
    return MappingProxyType({})


def is_nothing(node: Node) -> bool:
    """Whether there is only a name and nothing under it."""
    return isinstance(node, Scalar) and node.is_null


def _boolean(node: Scalar) -> bool | None:
    return _BOOLEANS.get(node.text) if node.is_plain else None


def _number(node: Scalar) -> int | float | None:
    """The number that a plain scalar is, None if it is none."""
    if not node.is_plain or len(node.text) > _LONGEST_NUMBER:
        return None
    whole = _WHOLE.fullmatch(node.text)
    if whole is not None:
        return _whole(node.text.replace("_", ""), is_octal=whole["octal"] is not None)
    if _DECIMAL.fullmatch(node.text):
        return float(node.text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    return None


def _whole(digits: str, *, is_octal: bool) -> int | float | None:
    try:
        number = int(digits, 8 if is_octal else 0)
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else float(number)


def _plain(node: Node) -> object:
    match node:
        case Table():
            return _table(node)
        case Listing():
            return tuple(_plain(item) for item in node.items)
    if node.is_null:
        return None
    meant = (_boolean(node), _number(node), node.text)
    return next(each for each in meant if each is not None)


def _table(table: Table) -> Mapping[str, object]:
    return MappingProxyType({name: _plain(node) for name, node in table.entries.items()})
